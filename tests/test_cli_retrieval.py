import json

import pytest
from typer.testing import CliRunner

from rag_jax.cli import app
from rag_jax.commands.towers import embed_questions
from rag_jax.index import open_index
from tests.test_cli_index import LINES, lines

QUESTIONS = [
    {"id": "q1", "question": "which fox jumps?", "answers": ["dog"], "positive_ids": ["a1"]},
    {"id": "q2", "question": "where does a cat sleep?", "answers": ["a stable"], "positive_ids": ["a2"]},
    {"id": "q3", "question": "what falls on the hills of Peru?", "answers": ["Rain", "snow"]},
    {"id": "q4", "question": "zebra", "answers": ["stripes"]},
]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def index(tmp_path):
    run("index", "build", lines(tmp_path / "passages.jsonl", LINES), tmp_path / "i", "--backend", "bm25")
    return tmp_path / "i"


def test_recall_of_an_index_is_measured_without_a_generator(tmp_path, index):
    asked = lines(tmp_path / "questions.jsonl", QUESTIONS)
    result = run("retrieval", index, asked, "--ks", "20,1", "--out", tmp_path / "out")
    figures = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert figures == {
        "backend": "bm25",
        "passages": 3,
        "questions": 4,
        "recall_over_k": [{"k": 1, "answer": 0.5, "gold": 1.0}, {"k": 20, "answer": 0.5, "gold": 1.0}],
    }
    assert "0.500" in result.stdout
    report = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "Retrieval: questions.jsonl" in report
    assert '["q4","zebra",["stripes"]]' in report


def test_answers_that_are_regexes_are_searched_for_as_such(tmp_path, index):
    asked = lines(tmp_path / "q.jsonl", [{"id": "1", "question": "which fox", "answers": ["br[aeiou]wn"]}])
    for flags, recall in (["--regex"], 1.0), ([], 0.0):
        run("retrieval", index, asked, "--ks", "1", "--out", tmp_path / "out", *flags)
        assert json.loads((tmp_path / "out" / "metrics.json").read_text())["recall_over_k"][0]["answer"] == recall


def test_an_index_of_vectors_is_searched_with_its_own_weights(tmp_path):
    index, asked = tmp_path / "v", lines(tmp_path / "q.jsonl", QUESTIONS)
    run("index", "build", lines(tmp_path / "passages.jsonl", LINES), index, "--backend", "exact")
    run("retrieval", index, asked, "--ks", "3", "--out", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["recall_over_k"][0]["gold"] == 1.0
    assert embed_questions("world", [q["question"] for q in QUESTIONS]).shape == (4, open_index(index).vectors.shape[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/i", "{}/nothing.jsonl"], "no such file"),
        (["{}", "{}/q.jsonl"], "no index there"),
        (["{}/i", "{}/q.jsonl", "--ks", "1,x"], "--ks: 'x' is no number of passages"),
        (["{}/i", "{}/q.jsonl", "--ks", "0"], "whole numbers from 1"),
        (["{}/i", "{}/q.jsonl"], "nothing to measure"),
    ],
)
def test_bad_input_is_one_clear_error(tmp_path, index, arguments, message):
    lines(tmp_path / "q.jsonl", [{"id": "1", "question": "which fox", "answers": []}])
    result = run("retrieval", *(part.format(tmp_path) for part in arguments), "--out", tmp_path / "out", code=1)
    assert message in result.stderr
    assert not (tmp_path / "out").exists()
