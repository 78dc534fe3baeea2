"""Whole runs that answer validation questions as they train, and keep the checkpoints that answer best."""

import dataclasses

import pytest

from rag_jax.config import ConfigError
from rag_jax.evaluation.run import evaluate
from rag_jax.evaluation.validation import validation_figures
from rag_jax.experiment import load_parts
from rag_jax.text.datasets import load_collection
from rag_jax.text.world_facts import world_questions
from rag_jax.training.loop import train, trained_params
from rag_jax.training.metrics import read_metrics
from rag_jax.training.recipes import run_recipe
from tests.small_runs import equal, small, write_files

PASSAGES = 24


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"), PASSAGES)


def validated(files, **values):
    """A run over those files that answers some of its questions at steps 2 and 4, with more passages than it trains."""
    paths = {"data__validation_questions_path": str(files / "questions.jsonl")}
    fixed = {"train__validation_questions": 4, "train__keep_best": 1, "eval__k": 3}
    return small(files, **paths | fixed | values)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"variant": "token", "index__backend": "device", "index__in_step": True},
        {"index__refresh_every": 3},
        {"retriever": "gold"},
        {"retriever": "none"},
    ],
    ids=lambda more: ",".join(map(str, more.values())),
)
def test_validation_has_the_figures_that_evaluation_has_of_the_same_questions(files, tmp_path, more):
    config = validated(files, **more)
    train(config, tmp_path, validate=validation_figures)
    found = {line["step"]: line for line in read_metrics(tmp_path / "metrics.jsonl") if "validation/em" in line}
    assert list(found) == [2, 4]
    if config.index.refresh_every:
        return  # evaluation searches an index that is one step newer
    for which, step in (("newest", 4), ("best", 2 + 2 * (found[4]["validation/em"] >= found[2]["validation/em"]))):
        asked = dataclasses.replace(config, eval=dataclasses.replace(config.eval, checkpoint=which))
        figures = evaluate(asked, tmp_path, trained_params).figures
        assert [figures[name] for name in ("em", "f1")] == [found[step][f"validation/{name}"] for name in ("em", "f1")]


@pytest.mark.slow
def test_answering_in_between_changes_no_bit_of_training(files, tmp_path):
    config = validated(files, model__dropout=0.1)
    plain = small(files, model__dropout=0.1, eval__k=3)
    params = train(config, tmp_path / "validated", validate=validation_figures)
    assert equal(params, train(plain, tmp_path / "plain"))
    lines = read_metrics(tmp_path / "validated" / "metrics.jsonl")
    assert [line for line in lines if "loss" in line] == read_metrics(tmp_path / "plain" / "metrics.jsonl")


def test_world_facts_validates_on_countries_that_are_neither_trained_nor_tested_on():
    collection = load_collection("world_facts")
    assert collection.validation == tuple(item.question for item in world_questions("2020", "validation"))
    ids = [{question.id for question in part} for part in (collection.train, collection.validation)]
    assert ids[1]
    assert not ids[1] & (ids[0] | {question.id for question in collection.evaluation})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train__validation_questions": 0}, r"train\.keep_best: the best are told by config\.train\.validation_quest"),
        ({"train__keep_best": 0, "eval__checkpoint": "best"}, r"eval\.checkpoint: the best one is kept with config"),
        ({"recipe": "dpr"}, r"train\.validation_questions: recipe dpr answers none"),
    ],
)
def test_settings_of_validation_that_contradict_are_refused(files, values, message):
    with pytest.raises(ConfigError, match=message):
        validated(files, **values)


def test_a_run_without_anything_to_validate_on_or_by_is_refused_before_its_first_step(files, tmp_path, capsys):
    without = validated(files, data__validation_questions_path="")
    assert run_recipe(without, tmp_path, validate=validation_figures) == 1
    assert "there are none; give config.data.validation_questions_path" in capsys.readouterr().err
    config = validated(files)
    with pytest.raises(ValueError, match="given no `validate`"):
        train(config, tmp_path, load_parts(config))
    assert not (tmp_path / "metrics.jsonl").exists()
