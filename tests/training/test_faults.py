"""Disks, directories and processes that fail under a run: the message, the exit code, and what is on disk after."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from rag_jax.config import to_json
from rag_jax.evaluation import command, run
from rag_jax.experiment import load_parts
from rag_jax.training.loop import train, trained_params
from rag_jax.training.metrics import read_metrics
from rag_jax.training.recipes import RECIPES, run_recipe
from rag_jax.types import Answer
from tests.small_runs import equal, small, write_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
PASSAGES = 8
# No file may grow past a megabyte, as if the disk ended there.
NO_ROOM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
from rag_jax.config import finalise, from_json
from rag_jax.training.recipes import run_recipe
sys.exit(run_recipe(finalise(from_json(sys.argv[1])), sys.argv[2]))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"), PASSAGES)


def test_a_directory_that_takes_no_files_is_one_message(files, capsys):
    assert run_recipe(small(files), "/proc/run") == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "/proc/run" in said
    assert "Traceback" not in said


def test_a_library_that_is_not_installed_is_one_message(files, tmp_path, monkeypatch, capsys):
    def missing(*args, **more):
        raise ImportError("backend scann takes ScaNN; install it: pip install scann")

    monkeypatch.setitem(RECIPES, "rag", missing)
    monkeypatch.setattr(command, "evaluate_runs", missing)
    assert run_recipe(small(files), tmp_path) == command.evaluate_command(tmp_path, trained_params) == 1
    assert capsys.readouterr().err == "error: backend scann takes ScaNN; install it: pip install scann\n" * 2


@pytest.mark.parametrize(("change", "instead"), [("k=10", "eval.k=10"), ("retriever=bm25", "eval.retriever=bm25")])
def test_what_only_training_reads_is_not_set_for_an_evaluation(tmp_path, capsys, change, instead):
    assert command.evaluate_command(tmp_path, trained_params, [change]) == 1
    assert capsys.readouterr().err.endswith(f"trained with; to answer otherwise give --set={instead}\n")


def test_questions_that_cannot_be_scored_are_told_before_they_are_answered(files, tmp_path):
    asked = [json.loads(line) for line in (files / "questions.jsonl").read_text().splitlines()][:2]
    asked[1]["answers"] = []
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    config = small(files, data__eval_questions_path=str(tmp_path / "asked.jsonl"))
    with pytest.raises(
        ValueError, match=f"1 of 2 evaluation questions have no reference .* is {asked[1]['id']!r}: add"
    ):
        run.evaluate(config, tmp_path, lambda *_: pytest.fail("parameters were read"))


def test_what_was_answered_is_there_if_it_cannot_be_scored(files, tmp_path, monkeypatch):
    def broken(*args, **more):
        raise ImportError("rouge_l takes rouge-score")

    (tmp_path / "config.json").write_text(to_json(small(files, retriever="none")))
    monkeypatch.setattr(run, "answer_questions", lambda *given: [Answer("one", -1.0, (), ())] * len(given[-1]))
    monkeypatch.setattr(run, "figures_of", broken)
    with pytest.raises(ImportError):
        run.evaluate_runs(tmp_path, lambda config, directory, parts: parts.params)
    rows = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [(row["prediction"], row["scores"]) for row in rows] == [("one", {})] * 4


@pytest.mark.slow
def test_an_index_that_vanished_is_made_again_and_the_run_ends_as_it_would_have(files, tmp_path):
    config = small(files, train__steps=3, train__checkpoint_every=2)
    whole = train(config, tmp_path / "whole")
    train(small(files, train__steps=2), tmp_path / "broken")
    shutil.rmtree(tmp_path / "broken" / "index")
    assert equal(train(config, tmp_path / "broken"), whole)


@pytest.mark.slow
def test_a_full_disk_leaves_the_last_checkpoint_and_the_run_goes_on(files, tmp_path):
    config = small(files, train__steps=3, train__checkpoint_every=1)
    whole = train(config, tmp_path / "whole")
    train(small(files, train__steps=1, train__checkpoint_every=1), tmp_path / "run")
    text = (tmp_path / "whole" / "config.json").read_text()
    done = subprocess.run(
        [sys.executable, "-c", NO_ROOM, text, str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr[-3000:]
    (message,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "a checkpoint could not be written" in message
    assert "the checkpoint of step 1 is whole" in message
    assert run_recipe(config, tmp_path / "run") == 0
    assert equal(trained_params(config, tmp_path / "run", load_parts(config)), whole)
    assert [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [1, 2, 3]
