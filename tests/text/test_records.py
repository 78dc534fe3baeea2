import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_jax.text import records
from rag_jax.text.faults import ReadError
from rag_jax.text.records import json_array, json_lines, json_object

texts = st.text(st.characters(codec="utf-8"), max_size=30)
values = st.dictionaries(texts, st.one_of(texts, st.integers(), st.lists(texts, max_size=3), st.none()), max_size=4)


@given(objects=st.lists(values, max_size=5), indent=st.sampled_from([None, 0, 20]), chunk=st.integers(1, 40))
def test_an_array_is_the_same_read_in_parts_of_any_size(tmp_path, monkeypatch, objects, indent, chunk):
    monkeypatch.setattr(records, "CHUNK", chunk)
    (tmp_path / "a.json").write_text(json.dumps(objects, indent=indent, ensure_ascii=False), "utf-8", newline="")
    assert [record.fields for record in json_array(tmp_path / "a.json")] == objects


def test_records_of_an_array_know_their_lines(tmp_path):
    (tmp_path / "a.json").write_text('[\n{"a":\n1},\n\n{"b": 2},{"c":\n3}\n]\n', "utf-8")
    assert [record.line for record in json_array(tmp_path / "a.json")] == [2, 5, 5]


def test_an_array_is_read_no_further_than_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "CHUNK", 16)
    (tmp_path / "a.json").write_text('[{"a": 1},\n' + '{"b": 2},\n' * 100 + "broken", "utf-8")
    rows = json_array(tmp_path / "a.json")
    assert next(rows).fields == {"a": 1}
    with pytest.raises(ReadError, match="line 102: broken JSON"):
        list(rows)


@pytest.mark.parametrize(
    ("read", "text", "line"),
    [
        (lambda path: list(json_lines(path)), '{"b": 1}\n{"a": 1, "a": 2}\n', 2),
        (json_object, '{"b": {"a": 1, "a": 2}}', None),
        (lambda path: list(json_array(path)), '[{"b": 1},\n{"b": {"a": 1, "a": 2}}]', 2),
    ],
)
def test_of_two_fields_with_one_name_none_is_taken_in_silence(tmp_path, read, text, line):
    (tmp_path / "a.json").write_text(text, "utf-8")
    with pytest.raises(ReadError, match="the field 'a' comes twice in one object") as caught:
        read(tmp_path / "a.json")
    assert caught.value.line == line
