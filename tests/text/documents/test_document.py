import hypothesis.strategies as st
import pytest
from hypothesis import given

from rag_jax.text.documents.document import Document, cut
from rag_jax.types import Passage


@given(st.text(), st.integers(1, 5))
def test_passages_joined_are_the_words_of_the_document(text, words):
    passages = list(cut(Document("7", "T", text), words))
    assert " ".join(passage.text for passage in passages).split() == text.split()
    assert [len(passage.text.split()) for passage in passages[:-1]] == [words] * (len(passages) - 1)
    assert all(passage.text and passage.title == "T" for passage in passages)
    assert [passage.id for passage in passages] == [f"7#{piece}" for piece in range(len(passages))]


def test_the_last_passage_keeps_what_is_left():
    passages = list(cut(Document("a/b.md", "T", "w " * 201)))
    assert [len(passage.text.split()) for passage in passages] == [100, 100, 1]
    assert list(cut(Document("x", "", "just this"))) == [Passage("x#0", "", "just this")]


def test_a_document_without_words_gives_no_passage():
    assert not list(cut(Document("7", "T", " \n\t ")))


def test_a_passage_of_no_words_is_refused():
    with pytest.raises(ValueError, match="at least one word"):
        list(cut(Document("7", "T", "a"), 0))
