from hypothesis import given
from hypothesis import strategies as st

from rag_jax.text.tasks.dpr import python_strings

texts = st.text(st.characters(codec="utf-8"), max_size=12)
quoting = st.text(st.sampled_from("'\"\\\n\tx,[]é\x00\u2028"), max_size=8)


@given(st.lists(st.one_of(texts, quoting), max_size=5))
def test_a_list_that_python_wrote_is_read_back(strings):
    assert python_strings(repr(strings)) == tuple(strings)


@given(st.text(st.sampled_from("'\"[], \\ab1"), max_size=12))
def test_anything_else_is_none_and_no_error(text):
    assert python_strings(text) is None or text.strip()[0] == "["
