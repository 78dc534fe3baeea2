"""Runs of recipe 'dpr', small: resuming, what a run leaves, and what RAG takes of it."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest

from configs import dpr
from rag_jax import config as rag_config
from rag_jax.evaluation.run import evaluate_runs
from rag_jax.experiment import load_parts
from rag_jax.models.hf_convert import read_bundle, write_bundle
from rag_jax.models.weights import SHIPPED
from rag_jax.text.datasets import Collection
from rag_jax.text.world_facts import world_passages, world_questions
from rag_jax.training import dpr as training_dpr
from rag_jax.training.dpr import gold_recall, train_towers
from rag_jax.training.loop import trained_params
from rag_jax.training.metrics import read_metrics
from rag_jax.training.recipes import run_recipe
from tests.small_runs import small, write_files

PASSAGES = 16


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Questions with their passages and two of the others as hard negatives, in DPR's json."""
    directory = tmp_path_factory.mktemp("files")
    passages = {item.passage.id: item.passage for item in world_passages("2020")[:PASSAGES]}
    ids = list(passages)

    def context(id):
        return {"title": passages[id].title, "text": passages[id].text, "passage_id": id}

    asked = [item.question for item in world_questions("2020") if item.question.positive_ids[0] in passages]
    records = [
        {
            "question": question.text,
            "answers": list(question.answers),
            "positive_ctxs": [context(question.positive_ids[0])],
            "hard_negative_ctxs": [context(id) for id in ids if id != question.positive_ids[0]][number % 9 :][:2],
        }
        for number, question in enumerate(asked)
    ]
    (directory / "train.json").write_text(json.dumps(records))
    return directory


def towers(files, **values):
    """A final configuration of a few steps from random towers."""
    defaults = {
        "data.questions_path": str(files / "train.json"),
        "data.eval_questions_path": str(files / "train.json"),
        "data.max_question_tokens": 24,
        "data.max_passage_tokens": 40,
        "model.question_encoder": "tiny",
        "model.passage_encoder": "tiny",
        "model.dtype": "float32",
        "optimizer.learning_rate": 1e-3,
        "optimizer.schedule": "constant",
        "optimizer.warmup_steps": 0,
        "train.batch_size": 8,
        "train.steps": 4,
        "train.log_every": 1,
        "train.checkpoint_every": 2,
    }
    values = {name.replace("__", "."): value for name, value in values.items()}
    return rag_config.finalise(rag_config.update(dpr.get_config(), defaults | values))


def equal(one, other):
    return jax.tree.all(jax.tree.map(lambda a, b: bool((np.asarray(a) == np.asarray(b)).all()), one, other))


@pytest.fixture(scope="module")
def whole(files, tmp_path_factory):
    """A finished run, with dropout."""
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, train_towers(towers(files), workdir)


@pytest.mark.slow
def test_interrupted_run_ends_at_the_same_towers_losses_and_recall(files, whole, tmp_path, monkeypatch):
    workdir, params = whole
    make = training_dpr._batches

    def killed(config, tokenizers):
        batches = make(config, tokenizers)
        return lambda step: pytest.fail("killed") if step == 3 else batches(step)

    monkeypatch.setattr(training_dpr, "_batches", killed)
    with pytest.raises(pytest.fail.Exception, match="killed"):
        train_towers(towers(files), tmp_path)
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "checkpoints").glob("[0-9]*")] == ["2"]
    resumed = train_towers(towers(files), tmp_path)
    assert equal(params, resumed)
    lines = [read_metrics(place / "metrics.jsonl") for place in (workdir, tmp_path)]
    losses = [[line["loss"] for line in found if "loss" in line] for found in lines]
    assert len(losses[0]) == 4
    assert losses[0] == losses[1]
    assert {"gold_recall_at_1", "gold_recall_at_5"} <= set(lines[0][-1])
    assert lines[0][-1] == lines[1][-1]


def test_both_towers_learn(files, whole):
    start = load_parts(towers(files)).params
    assert set(start) == set(whole[1]) == {"question_encoder", "passage_encoder"}
    for name, tower in whole[1].items():
        assert not equal(start[name], tower)
    assert not equal(whole[1]["question_encoder"], whole[1]["passage_encoder"])


def test_a_finished_run_is_neither_trained_nor_measured_again(files, whole):
    workdir, params = whole
    before = (workdir / "metrics.jsonl").read_bytes()
    assert equal(train_towers(towers(files), workdir), params)
    assert (workdir / "metrics.jsonl").read_bytes() == before


def test_a_run_that_ended_before_its_weights_were_written_writes_them(files, whole, capsys):
    workdir, _ = whole
    (workdir / "weights" / "model.json").unlink()
    assert run_recipe(towers(files), workdir) == 0
    assert "gold_recall_at_5" in capsys.readouterr().out
    assert (workdir / "weights" / "model.json").is_file()


def test_a_rag_starts_from_the_towers_and_a_generator(files, whole, tmp_path):
    workdir, params = whole
    write_bundle(tmp_path / "rag", read_bundle(workdir / "weights", generator=SHIPPED / "world"))
    config = small(write_files(tmp_path, PASSAGES), model__init_from=str(tmp_path / "rag"), model__dropout=0.1)
    parts = load_parts(config)
    assert equal(parts.params["question_encoder"], params["question_encoder"])
    assert equal(parts.passage_encoder, params["passage_encoder"])
    assert parts.arch.question_encoder.dropout == 0.1, "the dropout of the towers' own training is no part of them"


def test_a_run_without_answers_is_not_evaluated_as_one_with(whole):
    with pytest.raises(ValueError, match="a run of recipe dpr answers no questions"):
        evaluate_runs(whole[0], trained_params)


def test_recall_counts_any_gold_passage_and_leaves_questions_without_one_out(files):
    parts = load_parts(towers(files))
    questions, passages = parts.collection.evaluation, parts.collection.passages
    alone = [dataclasses.replace(question, positive_ids=()) for question in questions]
    measured = functools.partial(gold_recall, parts.params, parts.arch, parts.tokenizers)
    assert measured(Collection(passages, (), alone)) == {}
    every = tuple(passage.id for passage in passages)
    some = [dataclasses.replace(questions[0], positive_ids=every), *alone[1:], questions[1]]
    some[-1] = dataclasses.replace(some[-1], positive_ids=("elsewhere",))
    found = measured(Collection(passages, (), some))
    assert found == {"gold_recall_at_1": 0.5, "gold_recall_at_5": 0.5, "gold_questions": 2, "gold_passages": len(every)}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data__dataset": "nq"}, "recipe dpr reads files or world_facts"),
        ({"train__accumulate": 2}, "in parts a batch would have fewer negatives"),
        ({"data__dataset": "world_facts"}, "the batches of World Facts hold them already"),
        ({"index__refresh_every": 3}, "recipe dpr trains without an index"),
    ],
)
def test_settings_that_recipe_dpr_cannot_follow_are_refused(files, values, message):
    with pytest.raises(rag_config.ConfigError, match=message):
        towers(files, **values)


def test_what_is_missing_at_full_size_is_named():
    with pytest.raises(ValueError, match=r"model\.init_from.*data\.questions_path"):
        load_parts(rag_config.finalise(dpr.get_config()))


def test_the_papers_experiment_has_forty_epochs_of_its_questions():
    assert rag_config.finalise(dpr.get_config()).train.steps == 40 * 460
