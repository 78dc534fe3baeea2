"""DPR's json for training retrievers: what is read of it, how much at a time, and what a fault says."""

import gzip
import json

import pytest

from rag_jax.text import records
from rag_jax.text.datasets import Collection
from rag_jax.text.dpr_json import read_evaluation, read_examples
from rag_jax.text.readers import ReadError
from rag_jax.types import Passage, Question


def passage(number, **more):
    return {"title": f"T{number}", "text": f"text “{number}”", "score": 1.5, "passage_id": str(number)} | more


RECORDS = [
    {
        "dataset": "made_up",
        "question": "who keeps [the] keys",
        "answers": ["Ada", "Ada {L.}"],
        "positive_ctxs": [passage(1), passage(2)],
        "negative_ctxs": [passage(7)],
        "hard_negative_ctxs": [passage(3), {"title": "T4", "text": "text", "psg_id": 44}],
    },
    {
        "question": 'what is\n\t"quoted" \\ here',
        "answers": [],
        "positive_ctxs": [{"title": "", "text": "no id"}],
        "negative_ctxs": [passage(7)],
        "hard_negative_ctxs": [],
    },
    {"question": "nothing known", "answers": ["x"], "positive_ctxs": []},
]


def write(tmp_path, content, name="train.json"):
    path = tmp_path / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize(("name", "chunk"), [("train.json", 1 << 20), ("train.json", 7), ("train.json.gz", 64)])
def test_examples_come_back_however_the_list_is_laid_out_and_cut(tmp_path, monkeypatch, indent, name, chunk):
    monkeypatch.setattr(records, "CHUNK", chunk)
    path = write(tmp_path, "\ufeff" + json.dumps(RECORDS, indent=indent, ensure_ascii=False), name)
    first, second, third = read_examples(path)
    assert (first.question, first.answers) == ("who keeps [the] keys", ("Ada", "Ada {L.}"))
    assert first.positives == (Passage("1", "T1", "text “1”"), Passage("2", "T2", "text “2”"))
    assert [negative.id for negative in first.hard_negatives] == ["3", "44"]
    assert second.question == RECORDS[1]["question"]
    assert [negative.id for negative in second.hard_negatives] == ["7"], "other negatives where none are hard"
    assert second.positives[0].id.startswith("text-")
    assert (third.positives, third.hard_negatives) == ((), ())


def test_a_long_list_is_not_held_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "CHUNK", 512)
    path = write(tmp_path, json.dumps(RECORDS[:1] * 200))  # in one line
    longest, read = [], records._Unread._read

    def watched(text, count):
        more = read(text, count)
        longest.append(len(text._text))
        return more

    monkeypatch.setattr(records._Unread, "_read", watched)
    assert sum(1 for _ in read_examples(path)) == 200
    assert max(longest) < 4 * len(json.dumps(RECORDS[0])) < path.stat().st_size / 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"question": "q"}\n', "line 1: not a JSON array"),
        ("[]", "an empty list"),
        ('[\n{"question": "q", "answers": []},\n{"question": 3}]', "line 3: 'question' must be a string, not 3"),
        ('[\n{"answers": []}]', "line 2: missing field 'question'"),
        ('[{"question": "q", "answers": []}, {"question": "q"}]', "line 1: missing field 'answers'"),
        ('[{"question": "q", "answers": [], "positive_ctxs": ["text"]}]', "'positive_ctxs' must be a list of objects"),
        ('[{"question": "q", "answers": [], "hard_negative_ctxs": [{"title": "t"}]}]', "missing field 'text'"),
        ('[{"question": "q", "answers": [], "negative_ctxs": [{"text": "t"}]}]', 'write "title": ""'),
        (b'[\n{"question": "\xff"}]', "line 2: not UTF-8"),
    ],
)
def test_a_fault_is_named_with_the_line_where_its_object_begins(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(ReadError) as caught:
        list(read_examples(path))
    assert f"{path}" in str(caught.value)
    assert message in str(caught.value)


def test_a_missing_file_and_a_broken_archive_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.json"):
        read_examples(tmp_path / "absent.json")
    broken = tmp_path / "train.json.gz"
    broken.write_bytes(gzip.compress(json.dumps(RECORDS).encode())[:-20])
    with pytest.raises(ReadError, match="gzip archive is broken"):
        list(read_examples(broken))


def test_an_evaluation_file_brings_its_questions_and_their_passages(tmp_path):
    found = read_evaluation(write(tmp_path, json.dumps(RECORDS)))
    assert [question.id for question in found.evaluation] == ["0", "1", "2"]
    assert found.evaluation[0] == Question("0", "who keeps [the] keys", ("Ada", "Ada {L.}"), ("1", "2"))
    assert [p.id for p in found.passages][:4] == ["1", "2", "3", "44"]
    assert len({p.id for p in found.passages}) == len(found.passages) == 6
    assert found.train == ()


def test_passages_of_their_own_file_take_the_place_of_those(tmp_path):
    passages = tmp_path / "passages.jsonl"
    passages.write_text('{"id": "1", "title": "T", "text": "t"}\n')
    assert [p.id for p in read_evaluation(write(tmp_path, json.dumps(RECORDS)), passages).passages] == ["1"]
    questions = tmp_path / "dev.jsonl"
    questions.write_text('{"id": "a", "question": "q", "answers": [], "positive_ids": ["1"]}\n')
    assert read_evaluation(questions, passages).evaluation[0].positive_ids == ("1",)
    with pytest.raises(ValueError, match=r"config\.data\.passages_path"):
        read_evaluation(questions)
    assert read_evaluation("") == Collection((), (), ())
