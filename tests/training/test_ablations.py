"""Whole runs of the ablations, small: retrievers in training and at test, the null document, Fusion-in-Decoder."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from rag_jax import config as rag_config
from rag_jax.evaluation.run import evaluate, evaluate_runs
from rag_jax.experiment import load_parts, make_retriever
from rag_jax.rag.retrieve import ClosedBook
from rag_jax.training.loop import train, trained_params
from rag_jax.types import NO_DOCUMENT
from tests.small_runs import small, write_files


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"), 8)


SHORT = {"k": 1, "data__max_passage_tokens": 40, "data__max_source_tokens": 64, "data__max_target_tokens": 4}
FEW = {"train__batch_size": 2, "train__steps": 1, "eval__batch_size": 2, "eval__max_questions": 2}


def final(files, **more):
    return small(files, **SHORT | FEW | more)


def moved(before, after):
    return any(jax.tree.leaves(jax.tree.map(lambda a, b: not np.array_equal(a, b), before, after)))


@pytest.fixture(scope="module")
def random_run(files, tmp_path_factory):
    """Trained with passages at random and a null document."""
    workdir = tmp_path_factory.mktemp("random")
    config = final(files, retriever="random", null_document="bias")
    return config, workdir, train(config, workdir)


def test_without_an_encoder_the_generator_and_the_null_document_are_trained(random_run):
    config, workdir, params = random_run
    before = load_parts(config)
    assert before.passage_encoder is None
    assert set(params) == {"generator", "null_document"}
    assert all(moved(before.params[name], params[name]) for name in params)
    assert not (workdir / "index").exists()
    restored = trained_params(config, workdir, before)
    np.testing.assert_array_equal(restored["null_document"]["bias"], params["null_document"]["bias"])


@pytest.mark.parametrize("asked", ["random", "gold", "bm25", "none"])
def test_a_run_can_be_asked_with_another_retriever(files, random_run, asked):
    config = final(files, retriever="random", null_document="bias", eval__retriever=asked)
    done = evaluate(config, random_run[1], trained_params)
    assert done.config.retriever == asked
    for question, answer in zip(done.questions, done.answers, strict=True):
        passages = [source.passage for source in answer.sources]
        if asked == "none":
            assert passages == []
            continue
        assert NO_DOCUMENT in passages
        assert len(passages) == 2
        for total in ("prior", "posterior"):
            assert sum(getattr(source, total) for source in answer.sources) == pytest.approx(1, abs=1e-5)
        if asked == "gold":
            assert {passage.id for passage in passages} == {question.positive_ids[0], ""}
    if asked == "gold":
        assert done.figures["gold_recall_at_1"] == 1


@pytest.mark.slow
def test_a_tower_that_was_not_trained_answers_as_it_was_before(files, random_run):
    config = final(files, retriever="random", null_document="bias", eval__retriever="dpr")
    done = evaluate(config, random_run[1], trained_params)
    start = load_parts(rag_config.as_evaluated(config)).params["question_encoder"]
    assert not moved(start, done.params["question_encoder"])
    assert not moved(random_run[2]["generator"], done.params["generator"])
    assert (random_run[1] / "index").is_dir()


@pytest.mark.slow
def test_a_run_of_fusion_in_decoder_trains_the_generator_and_shows_priors(files, tmp_path):
    config = final(files, variant="fid", k=2, optimizer__retriever_learning_rate=1e-3)
    assert config.freeze == ("question_encoder",)
    start = load_parts(config).params
    params = train(config, tmp_path / "run")
    assert not moved(start["question_encoder"], params["question_encoder"])
    assert moved(start["generator"], params["generator"])
    figures = evaluate_runs(tmp_path, trained_params)["run"]
    assert figures["questions"] == 2
    for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines():
        passages = json.loads(line)["passages"]
        assert sum(passage["prior"] for passage in passages) == pytest.approx(1, abs=1e-5)
        assert [passage["posterior"] for passage in passages] == [None, None]


def test_the_oracle_names_a_question_that_it_does_not_know_before_it_trains(files, tmp_path):
    config = final(files, retriever="gold")
    parts = load_parts(config)
    questions = (dataclasses.replace(parts.collection.train[3], positive_ids=("gone",)), *parts.collection.train[:2])
    parts = dataclasses.replace(parts, collection=dataclasses.replace(parts.collection, train=questions))
    with pytest.raises(ValueError, match=f"question '{questions[0].id}' has no gold passage"):
        train(config, tmp_path, parts)


def test_words_and_vectors_have_an_index_each(files, tmp_path):
    given = {"retriever": "dpr", "eval__retriever": "bm25", "index__directory": str(tmp_path / "vectors")}
    for name, config in {"": final(files, **given | {"index__directory": ""}), "given": final(files, **given)}.items():
        for asked in (config, rag_config.as_evaluated(config)):
            make_retriever(asked, load_parts(asked), tmp_path / name, 2)
    made = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/manifest.json")}
    assert made == {"index", "index-bm25", "vectors", "vectors-bm25"}


def test_closed_book_stays_closed_book(files, tmp_path):
    config = final(files, retriever="none")
    assert isinstance(make_retriever(config, load_parts(config), tmp_path, 1), ClosedBook)
