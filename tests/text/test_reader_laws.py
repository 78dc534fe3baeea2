"""Laws of the readers for any text and any bytes: what was written comes back, or one ReadError says where it broke."""

import csv
import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_jax.text.readers import ReadError, read_passages, read_questions
from rag_jax.text.table import PassageTable
from rag_jax.types import Passage, Question
from tests.wild_text import ids, texts

passages = st.lists(st.builds(Passage, ids, texts, texts), min_size=1, max_size=6, unique_by=lambda passage: passage.id)
# The fields of questions. (Made here, they would be checked here: for that, beartype draws random numbers of its own.)
questions = st.lists(
    st.tuples(ids, texts.filter(str.strip), st.lists(texts, max_size=3), st.lists(texts, max_size=3)),
    min_size=1,
    max_size=5,
    unique_by=lambda fields: fields[0],
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
endings = st.sampled_from(["", ".gz"])


def tsv(rows, quoting=csv.QUOTE_ALL, end="\n"):
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, delimiter="\t", lineterminator=end, quoting=quoting)
    writer.writerows([("id", "text", "title"), *((passage.id, passage.text, passage.title) for passage in rows)])
    return sink.getvalue().encode()


def json_lines(records, **options):
    return b"".join(json.dumps(record, **options).encode() + b"\n" for record in records)


def written(tmp_path, raw, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(raw, 1) if name.endswith(".gz") else raw)
    return path


def read(path, reader=read_passages):
    """What came before the first fault, and the fault or None. Any other error passes through."""
    found, fault = [], None
    try:
        for row in reader(path):
            found.append(row)
    except ReadError as error:
        fault = error
    assert fault is None or str(path) in str(fault)
    return found, fault


@given(rows=passages, ending=endings, end=st.sampled_from(["\n", "\r\n"]))
def test_a_quoted_tsv_gives_back_exactly_what_csv_wrote(tmp_path, rows, ending, end):
    assert read(written(tmp_path, tsv(rows, end=end), f"p.tsv{ending}")) == (rows, None)


@given(rows=passages)
def test_a_tsv_quoted_as_little_as_csv_allows_comes_back_whole_or_is_a_fault_in_its_line(tmp_path, rows):
    # Unquoted before a line's end it is a part of it, as Windows writes lines; newer versions of csv quote it.
    rows = [Passage(row.id, row.title.rstrip("\r"), row.text) for row in rows]
    found, fault = read(written(tmp_path, tsv(rows, csv.QUOTE_MINIMAL), "p.tsv"))
    assert found == rows[: len(found)]
    assert (fault is None) == (len(found) == len(rows))
    if fault is not None:
        before = tsv(rows[: len(found)], csv.QUOTE_MINIMAL).count(b"\n")
        assert fault.line == before + 1


@given(rows=passages, ending=endings, plain=st.booleans(), blank=st.sampled_from([b"", b"\n", b" \r\n"]))
def test_json_lines_give_back_exactly_what_json_wrote(tmp_path, rows, ending, plain, blank):
    records = [{"id": row.id, "title": row.title, "text": row.text, "more": [row.id]} for row in rows]
    raw = blank + blank.join(json_lines([record], ensure_ascii=plain) for record in records)
    assert read(written(tmp_path, raw, f"p.jsonl{ending}")) == (rows, None)


@given(rows=questions, plain=st.booleans())
def test_questions_come_back_exactly_as_written(tmp_path, rows, plain):
    records = [dict(zip(("id", "question", "answers", "positive_ids"), row, strict=True)) for row in rows]
    path = written(tmp_path, json_lines(records, ensure_ascii=plain), "q.jsonl")
    assert read_questions(path) == tuple(Question(id, text, *map(tuple, lists)) for id, text, *lists in rows)


@given(rows=passages, data=st.data(), kind=st.sampled_from(["tsv", "jsonl"]))
def test_a_second_passage_with_an_id_is_named_wherever_it_stands(tmp_path, rows, data, kind):
    again = data.draw(st.sampled_from(rows))
    rows = [*rows, Passage(again.id, "another", "text")]
    records = [{"id": row.id, "title": row.title, "text": row.text} for row in rows]
    found, fault = read(written(tmp_path, tsv(rows) if kind == "tsv" else json_lines(records), f"p.{kind}"))
    assert found == rows[:-1]
    assert "came before" in fault.fault
    assert repr(again.id) in fault.fault


@given(rows=passages, data=st.data(), kind=st.sampled_from(["p.tsv", "p.jsonl", "p.tsv.gz", "p.jsonl.gz"]))
def test_damaged_bytes_are_read_or_are_one_read_error(tmp_path, rows, data, kind):
    records = [{"id": row.id, "title": row.title, "text": row.text} for row in rows]
    raw = tsv(rows) if ".tsv" in kind else json_lines(records, ensure_ascii=False)
    raw = gzip.compress(raw, 1) if kind.endswith(".gz") else raw
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(len(raw), start + 8)))
    damage = data.draw(
        st.binary(max_size=8) | st.sampled_from([b'"', b"\t", b"\xff", b"\0", b"\n", b"{", b"\xed\xa0\x80"])
    )
    (tmp_path / kind).write_bytes(raw[:start] + damage + raw[end:])
    found, fault = read(tmp_path / kind)
    assert found or fault


@given(rows=passages, data=st.data(), kind=st.sampled_from(["tsv", "jsonl"]))
def test_a_cut_archive_is_never_taken_for_a_whole_one(tmp_path, rows, data, kind):
    records = [{"id": row.id, "title": row.title, "text": row.text} for row in rows]
    raw = gzip.compress(tsv(rows) if kind == "tsv" else json_lines(records), 1)
    path = tmp_path / f"p.{kind}.gz"
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])
    found, fault = read(path)
    assert found == rows[: len(found)]
    assert fault is not None


@given(
    record=st.dictionaries(
        st.sampled_from(["id", "question", "answers", "answer", "positive_ids", "other"]), anything, max_size=6
    )
)
def test_a_question_of_any_json_is_read_as_it_stands_or_is_a_fault_in_its_line(tmp_path, record):
    (found, fault) = read(written(tmp_path, json_lines([record]), "q.jsonl"), read_questions)
    if fault is not None:
        assert fault.line == 1
        return
    (question,) = found
    answers = record["answers"] if "answers" in record else record["answer"]
    assert (question.id, question.text) == (str(record["id"]), record["question"])
    assert question.answers == ((answers,) if isinstance(answers, str) else tuple(answers))
    assert question.positive_ids == tuple(map(str, record.get("positive_ids") or ()))


@given(record=st.dictionaries(st.sampled_from(["id", "title", "text"]), anything, max_size=3))
def test_a_passage_of_any_json_is_read_as_it_stands_or_is_a_fault_in_its_line(tmp_path, record):
    found, fault = read(written(tmp_path, json_lines([record]), "p.jsonl"))
    if fault is not None:
        assert fault.line == 1
        return
    assert found == [Passage(str(record["id"]), record["title"], record["text"])]


@given(rows=passages)
def test_a_table_gives_back_every_passage_by_its_row_and_by_its_id(rows):
    table = PassageTable.from_passages(rows)
    assert list(table) == rows
    assert [table.row_of(row.id) for row in rows] == list(range(len(rows)))


@given(rows=passages, data=st.data(), name=st.sampled_from(["id", "title", "text"]))
def test_a_table_with_another_text_in_it_has_another_fingerprint(rows, data, name):
    at = data.draw(st.integers(0, len(rows) - 1))
    other = data.draw(ids.filter(lambda text: text not in [row.id for row in rows]))
    fields = {field: getattr(rows[at], field) for field in Passage.__slots__}
    changed = [*rows[:at], Passage(**(fields | {name: other})), *rows[at + 1 :]]
    same = changed == rows
    assert (PassageTable.from_passages(rows).fingerprint == PassageTable.from_passages(changed).fingerprint) == same


@pytest.mark.parametrize("name", Passage.__slots__)
def test_what_cannot_be_written_is_one_clear_error(name):
    fields = {"id": "a", "title": "b", "text": "c"} | {name: "x\ud800"}
    with pytest.raises(ValueError, match=r"passage 1, .*half of a surrogate pair"):
        PassageTable.from_passages([Passage("0", "", ""), Passage(**fields)])


def test_a_megabyte_in_one_passage_comes_back_whole(tmp_path):
    rows = [Passage("1", "t" * 100_000, "é\t\n" * 250_000), Passage("2", "", "")]
    records = [{"id": row.id, "title": row.title, "text": row.text} for row in rows]
    assert read(written(tmp_path, tsv(rows), "p.tsv")) == (rows, None)
    assert read(written(tmp_path, json_lines(records), "p.jsonl")) == (rows, None)
    assert list(PassageTable.write(tmp_path / "table", rows)) == rows
