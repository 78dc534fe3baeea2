import csv
import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_jax.text.readers import ReadError, read_passages, read_questions
from rag_jax.types import Passage, Question

PASSAGES = [
    Passage("1", "Aaron", 'Aaron ("Ahärôn") is a prophet'),
    Passage("2", '"Weird Al"', "tab\there, newline\nthere"),
    Passage("x-3", "", "plain"),
]


def tsv(passages, header=("id", "text", "title")):
    sink = io.StringIO(newline="")
    rows = csv.writer(sink, delimiter="\t", lineterminator="\n")
    rows.writerows([header, *((p.id, p.text, p.title) for p in passages)])
    return sink.getvalue()


def write(tmp_path, content, name="psgs.tsv"):
    path = tmp_path / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def fault(path, read=lambda path: list(read_passages(path))):
    with pytest.raises(ReadError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["psgs.tsv", "psgs.tsv.gz"])
def test_tsv_gives_back_what_csv_wrote(tmp_path, name):
    assert list(read_passages(write(tmp_path, tsv(PASSAGES), name))) == PASSAGES


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_byte_order_mark_blank_lines_and_windows_ends_are_no_content(tmp_path, end):
    content = "\ufeff" + tsv([PASSAGES[0], PASSAGES[2]]).replace("\n", end) + end
    assert list(read_passages(write(tmp_path, content))) == [PASSAGES[0], PASSAGES[2]]


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz"])
def test_json_lines_give_the_same_passages(tmp_path, name):
    records = [{"id": p.id, "title": p.title, "text": p.text, "extra": 1} for p in PASSAGES]
    assert list(read_passages(write(tmp_path, lines(*records), name))) == PASSAGES


def test_passages_are_streamed(tmp_path):
    path = write(tmp_path, tsv(PASSAGES) + "broken\n")
    rows = read_passages(path)
    assert [next(rows) for _ in PASSAGES] == PASSAGES
    with pytest.raises(ReadError, match="line 6"):
        next(rows)


@pytest.mark.parametrize(
    ("content", "where", "what"),
    [
        ("", "psgs.tsv: ", "an empty passage file"),
        ("id\ttext\ttitle\n", "psgs.tsv: ", "an empty passage file"),
        ("1\ta\tb\n", "line 1:", "header must be"),
        ("id\ttitle\ttext\n1\ta\tb\n", "line 1:", "header must be"),
        (tsv(PASSAGES) + "9\tonly two\n", "line 6:", "2 column"),
        (tsv(PASSAGES) + "9\ta\tb\tc\n", "line 6:", "4 column"),
        (tsv(PASSAGES) + "1\tagain\tAaron\n", "line 6:", "'1' came before"),
        (tsv(PASSAGES) + "\ttext\ttitle\n", "line 6:", "id is empty"),
        (tsv(PASSAGES) + '9\ttext\t"never closed\n10\ta\tb\n', "line 6:", "never ends"),
        (tsv(PASSAGES) + '9\t"never closed\ttitle\n10\ta\tb\n', "line 6:", "never ends"),
        (tsv(PASSAGES) + "9\ta\rb\tc\n", "line 6:", "not csv"),
        (tsv(PASSAGES).encode() + b"9\tcaf\xe9\tb\n", "line 6:", "not UTF-8 (byte 6"),
    ],
)
def test_a_fault_in_a_tsv_is_named_with_its_line(tmp_path, content, where, what):
    message = fault(write(tmp_path, content))
    assert where in message
    assert what in message


def test_a_row_of_several_lines_is_named_by_its_first(tmp_path):
    content = tsv([PASSAGES[1]]) + '7\t"one\ntwo\nthree"\n'
    assert "line 4: 2 column" in fault(write(tmp_path, content))


def test_fields_longer_than_csv_allows_by_default_are_read(tmp_path):
    long = [Passage("1", "t", "word " * 40_000)]
    assert list(read_passages(write(tmp_path, tsv(long)))) == long


def test_a_cut_archive_is_a_read_error(tmp_path):
    path = write(tmp_path, tsv(PASSAGES * 1), "psgs.tsv.gz")
    path.write_bytes(path.read_bytes()[:-12])
    assert "archive is broken" in fault(path)
    path.write_bytes(b"not gzip at all")
    assert "archive is broken" in fault(path)


def test_a_missing_file_or_unknown_ending_is_refused_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_passages(tmp_path / "none.tsv")
    with pytest.raises(ReadError, match=r"read from \.tsv or \.jsonl"):
        read_passages(write(tmp_path, "x", "passages.csv"))


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=12)
wild = st.text(st.sampled_from('ab"\t\n\r é'), max_size=8)


@given(
    rows=st.lists(st.tuples(texts, st.one_of(texts, wild.map(lambda t: t.replace("\r", "")))), min_size=1, max_size=6)
)
def test_any_text_survives_csv(tmp_path, rows):
    passages = [Passage(str(number), title, text) for number, (title, text) in enumerate(rows)]
    assert list(read_passages(write(tmp_path, tsv(passages)))) == passages


@given(
    good=st.lists(wild.map(lambda t: t.replace("\r", "")), max_size=5),
    columns=st.sampled_from([1, 2, 4, 7]),
    after=st.integers(0, 2),
)
def test_a_row_of_wrong_width_is_named_wherever_it_stands(tmp_path, good, columns, after):
    head = tsv([Passage(str(number), "t", text) for number, text in enumerate(good)])
    path = write(tmp_path, head + "\t".join("y" * columns) + "\n" + "8\ta\tb\n" * after)
    assert f", line {head.count(chr(10)) + 1}: {columns} column" in fault(path)


@given(noise=st.binary(max_size=40), name=st.sampled_from(["p.tsv", "p.jsonl", "q"]))
def test_noise_is_read_or_is_a_read_error(tmp_path, noise, name):
    path = write(tmp_path, b"id\ttext\ttitle\n" + noise if name == "p.tsv" else noise, name)
    try:
        found = read_questions(path) if name == "q" else list(read_passages(path))
    except ReadError as error:
        found = error.path == str(path)
    assert found


def test_questions_keep_their_fields(tmp_path):
    path = write(
        tmp_path,
        lines(
            {"id": "a", "question": "Who?", "answers": ["me", "I"], "positive_ids": ["p1", 2]},
            {"id": 7, "question": " When? ", "answer": "now"},
            {"id": "c", "question": "Why?", "answer": ["a", "b"], "positive_ids": None},
            {"id": "d", "question": "How?", "answers": []},
        ),
        "q.jsonl",
    )
    assert read_questions(path) == (
        Question("a", "Who?", ("me", "I"), ("p1", "2")),
        Question("7", " When? ", ("now",)),
        Question("c", "Why?", ("a", "b")),
        Question("d", "How?"),
    )


GOOD = {"id": "a", "question": "Who?", "answers": ["me"]}


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "an empty question file"),
        ("\n\n", "an empty question file"),
        (lines(GOOD) + "{'id': 1}\n", "line 2: broken JSON"),
        (lines(GOOD) + "\n[1]\n", "line 3: not a JSON object"),
        (lines(GOOD) + "[" * 200_000 + "\n", "line 2: broken JSON"),
        (
            '{"id": "a", "id": "b", "question": "Who?", "answers": []}\n',
            "line 1: broken JSON (the field 'id' comes twice",
        ),
        (lines(GOOD, GOOD), "line 2: the id 'a' came before"),
        (lines(GOOD, GOOD | {"id": "10"}, GOOD | {"id": 10}), "line 3: the id '10' came before"),
        (lines({"question": "Who?", "answers": []}), "line 1: missing field 'id'"),
        (lines({"id": "", "question": "Who?", "answers": []}), "line 1: the id is empty"),
        (lines({"id": True, "question": "Who?", "answers": []}), "line 1: 'id' must hold strings"),
        (lines({"id": "a", "answers": []}), "line 1: missing field 'question'"),
        (lines(GOOD | {"question": " "}), "line 1: the question is empty"),
        (lines(GOOD | {"question": 3}), "line 1: 'question' must be a string"),
        (lines({"id": "a", "question": "Who?"}), "line 1: missing field 'answers'"),
        (lines(GOOD | {"answer": "x"}), "line 1: both 'answers' and 'answer'"),
        (lines(GOOD | {"answers": "me"}), "line 1: 'answers' must be a list"),
        (lines(GOOD | {"answers": [1]}), "line 1: 'answers' must hold strings"),
        (lines(GOOD | {"positive_ids": "p1"}), "line 1: 'positive_ids' must be a list"),
        (lines(GOOD | {"question": "\ud800"}), "line 1: 'question' holds half of a surrogate pair"),
        (lines(GOOD).encode() + b'{"id": "\xff"}\n', "line 2: not UTF-8"),
    ],
)
def test_a_fault_in_a_question_file_is_named(tmp_path, content, what):
    assert what in fault(write(tmp_path, content, "q.jsonl"), read_questions)


def test_a_json_passage_without_title_is_refused(tmp_path):
    path = write(tmp_path, lines({"id": 1, "text": "x"}), "p.jsonl")
    assert "line 1: missing field 'title'" in fault(path)


def test_large_and_padded_numbers_are_ids_of_their_own(tmp_path):
    ids = ["1", "01", "0", "00", "268435455", "268435456", "9999999999", "٣", "3"]
    records = [{"id": id, "title": "", "text": ""} for id in ids]
    path = write(tmp_path, lines(*records), "p.jsonl")
    assert [passage.id for passage in read_passages(path)] == ids
    for id in ids:
        again = write(tmp_path, lines(*records, {"id": id, "title": "", "text": ""}), "again.jsonl")
        assert f"line {len(ids) + 1}: the id {id!r} came before" in fault(again)


def test_a_folder_in_the_place_of_a_file_is_told_apart_from_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="a folder, not a file; check the path"):
        read_questions(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file or folder; check the path"):
        read_questions(tmp_path / "none")
