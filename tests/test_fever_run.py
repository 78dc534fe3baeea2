"""FEVER end to end with the tiny model: claims in FeverSymmetric's format over their own evidence; `rag-jax export`."""

import json

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from rag_jax import config as rag_config
from rag_jax.cli import app
from rag_jax.evaluation.run import evaluate
from rag_jax.experiment import load_parts
from rag_jax.training.loop import train, trained_params

pytestmark = pytest.mark.slow
CLAIMS = [
    (f"{country} has a coast .", f"{country} {verb} a coast .", label)
    for country, verb, label in [
        ("Peru", "has", "SUPPORTS"),
        ("Chad", "lacks", "REFUTES"),
        ("Chile", "has", "SUPPORTS"),
        ("Laos", "lacks", "REFUTES"),
        ("Kenya", "may have", "NOT ENOUGH INFO"),
    ]
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run of two steps, as (configuration, directory)."""
    directory = tmp_path_factory.mktemp("fever")
    rows = [{"id": str(n), "claim": c, "evidence": e, "label": label} for n, (c, e, label) in enumerate(CLAIMS)]
    (directory / "claims.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {
        "k": 2,
        "data.dataset": "fever_symmetric",
        "data.questions_path": str(directory / "claims.jsonl"),
        "data.eval_questions_path": str(directory / "claims.jsonl"),
        "data.labels": ("something", "Nothing"),
        "data.max_passage_tokens": 32,
        "data.max_source_tokens": 64,
        "index.backend": "exact",
        "model.dropout": 0.0,
        "optimizer.warmup_steps": 0,
        "optimizer.learning_rate": 1e-3,
        "train.batch_size": 4,
        "train.steps": 2,
        "eval.batch_size": 4,
        "eval.metrics": ("accuracy",),
    }
    config = rag_config.finalise(rag_config.update(rag_config.Config(), values))
    train(config, directory / "run")
    return config, directory / "run"


def test_two_way_fever_runs_end_to_end_and_answers_with_labels(run):
    done = evaluate(*run, trained_params)
    assert [question.id for question in done.questions] == ["0", "1", "2", "3"]  # without the claim of a third class
    assert {answer.text for answer in done.answers} <= {"something", "Nothing"}
    for given in done.answers:
        (other,) = given.alternatives
        assert {given.text, other.text} == {"something", "Nothing"}
        assert given.logprob >= other.logprob
        assert sum(source.posterior for source in given.sources) == pytest.approx(1, abs=1e-5)
    assert len(done.parts.collection.passages) == 5
    right = sum(given.text == q.answers[0] for given, q in zip(done.answers, done.questions, strict=True))
    assert done.figures["accuracy"] == right / 4
    assert done.figures["majority_class"] == 0.5
    assert "gold_recall_at_1" in done.figures
    assert not {"recall_at_1", "right_without_support"} & set(done.figures)  # labels are looked for in no passage
    assert all("gold" in row and "answer" not in row for row in done.figures["recall_over_k"])


def test_labels_that_are_no_token_of_the_generator_are_named_before_anything_is_read(run):
    config = rag_config.update(rag_config.from_json(rag_config.to_json(run[0])), {"data.labels": ("supports", "of")})
    with pytest.raises(ValueError, match=r"config\.data\.labels: 'supports' is \d tokens"):
        load_parts(rag_config.finalise(config))


def test_an_exported_run_is_what_another_starts_from(run, tmp_path):
    config, directory = run
    result = CliRunner().invoke(app, ["export", str(directory), str(tmp_path / "weights")])
    assert result.exit_code == 0, result.output
    assert "generator, passage_encoder, question_encoder, RAG-Sequence" in result.stdout
    changed = rag_config.update(
        rag_config.from_json(rag_config.to_json(config)), {"model.init_from": str(tmp_path / "weights")}
    )
    parts = load_parts(rag_config.finalise(changed))
    trained = trained_params(config, directory, load_parts(config))
    jax.tree.map(np.testing.assert_array_equal, parts.params, trained)
    original = load_parts(config)
    jax.tree.map(np.testing.assert_array_equal, parts.passage_encoder, original.passage_encoder)
    assert any(jax.tree.leaves(jax.tree.map(lambda a, b: not np.array_equal(a, b), parts.params, original.params)))


def test_exporting_no_run_is_one_message(tmp_path):
    result = CliRunner().invoke(app, ["export", str(tmp_path), str(tmp_path / "weights")])
    assert result.exit_code == 1
    assert "config.json" in result.stderr
