"""Training and evaluation of whole runs, small: resuming, freezing, faults, and what a user gets to read."""

import dataclasses
import itertools
import json
import math
import re
import shutil

import numpy as np
import pytest

from rag_jax import config as rag_config
from rag_jax.config import SweepRun
from rag_jax.evaluation.run import evaluate, evaluate_runs
from rag_jax.experiment import answer_questions, load_parts, make_retriever
from rag_jax.rag.answer import answer
from rag_jax.rag.retrieve import Retriever
from rag_jax.sharding import Layout
from rag_jax.training import loop
from rag_jax.training.checkpoint import ConfigurationMismatch
from rag_jax.training.loop import train, trained_params
from rag_jax.training.metrics import read_metrics
from rag_jax.training.recipes import run_recipe
from rag_jax.training.steps import NonFiniteLoss
from rag_jax.training.stopping import STOPPED, StopRequest
from rag_jax.training.sweep import is_finished
from tests.small_runs import equal, small, write_files

PASSAGES = 24


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"), PASSAGES)


def deafened(parts):
    """The same parts, but the question encoder gives one vector whatever it is asked."""
    norm = parts.params["question_encoder"]["layers"]["output_norm"]
    norm["scale"] = np.zeros_like(norm["scale"])
    return parts


@pytest.fixture(scope="module")
def whole(files, tmp_path_factory):
    """A finished run with dropout, so that its keys count too."""
    workdir = tmp_path_factory.mktemp("whole")
    config = small(files, model__dropout=0.1)
    return config, workdir, train(config, workdir)


def test_interrupted_run_ends_at_the_same_parameters_and_metrics(files, whole, tmp_path):
    config, workdir, params = whole
    train(small(files, model__dropout=0.1, train__steps=2), tmp_path)
    assert not equal(params, trained_params(config, tmp_path, load_parts(config)))
    resumed = train(config, tmp_path)
    assert equal(params, resumed)
    losses = [[line["loss"] for line in read_metrics(d / "metrics.jsonl")] for d in (workdir, tmp_path)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 4


def test_a_run_that_was_asked_to_stop_says_where_and_goes_on_from_there(files, whole, tmp_path, monkeypatch, capsys):
    config, workdir, params = whole
    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "after", lambda stop, step: step == 3)
        assert run_recipe(config, tmp_path) == STOPPED
    assert "stopped after step 3 of 4" in capsys.readouterr().err
    assert (tmp_path / "checkpoints" / "3").is_dir()
    assert run_recipe(config, tmp_path) == 0
    assert equal(params, trained_params(config, tmp_path, load_parts(config)))
    assert (tmp_path / "metrics.jsonl").read_bytes() == (workdir / "metrics.jsonl").read_bytes()
    starts = json.loads((tmp_path / "record.json").read_text())
    assert [start["step"] for start in starts] == [0, 3]
    assert starts[0]["index"]["count"] == PASSAGES


@pytest.mark.slow
def test_the_steps_that_a_user_names_are_traced(files, tmp_path, capsys):
    assert run_recipe(small(files, train__steps=3), tmp_path, profile="2-3") == 0
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))
    assert run_recipe(small(files, train__steps=3), tmp_path, profile="0-3") == 1
    assert "--profile=0-3: steps from 1 on" in capsys.readouterr().err


@pytest.mark.slow
def test_lagging_retrieval_searches_with_the_encoder_of_the_step_before(files, whole, tmp_path, monkeypatch):
    encoders = []
    encode_ahead = Retriever.encode_ahead

    def note(self, config, params, questions):
        encoders.append(np.asarray(params["tokens"]["embedding"]).copy())
        return encode_ahead(self, config, params, questions)

    monkeypatch.setattr(Retriever, "encode_ahead", note)
    train(small(files, train__steps=3, train__checkpoint_every=3), tmp_path / "fresh")
    fresh, encoders[:] = encoders[:], []
    train(small(files, train__steps=3, train__checkpoint_every=3, train__retrieval_lag=1), tmp_path / "lagging")
    # Before step 1 and 2 the lagging run encodes what the fresh one encodes after it, with the encoder of before.
    assert equal(encoders[0], load_parts(small(files)).params["question_encoder"]["tokens"]["embedding"])
    assert equal(encoders[1], fresh[0])


def test_training_changes_both_models_and_lowers_the_loss(files, whole):
    config, workdir, params = whole
    start = load_parts(config).params
    for part in ("question_encoder", "generator"):
        assert not equal(start[part], params[part])
    lines = read_metrics(workdir / "metrics.jsonl")
    assert all(math.isfinite(line["loss"]) and 0 <= line["prior_entropy"] <= math.log(2) + 1e-6 for line in lines)
    speed = read_metrics(workdir / "speed.jsonl")
    assert [line["step"] for line in speed] == [line["step"] for line in lines]
    assert all(line["retrieval_milliseconds"] > 0 and line["questions_per_second"] > 0 for line in speed)
    assert all(0 <= line["padding_share"] < 1 and line["compiles"] > 0 and line["memory_gib"] > 0 for line in speed)
    assert all(1 / 4 <= line["distinct_passages"] <= 1 and "warning" not in line for line in lines)


def test_a_finished_run_is_not_trained_again(whole):
    config, workdir, params = whole
    before = (workdir / "metrics.jsonl").read_bytes()
    assert equal(train(config, workdir), params)
    assert (workdir / "metrics.jsonl").read_bytes() == before


def test_frozen_question_encoder_keeps_every_bit(files, tmp_path):
    config = small(files, freeze=("question_encoder",), train__steps=2)
    start = load_parts(config).params
    params = train(config, tmp_path)
    assert equal(start["question_encoder"], params["question_encoder"])
    assert not equal(start["generator"], params["generator"])


@pytest.mark.parametrize(
    "where",
    [
        {},
        pytest.param({"index__backend": "device", "index__in_step": True}, marks=pytest.mark.slow),
    ],
)
def test_a_question_encoder_that_finds_the_same_for_every_question_is_told_once(files, tmp_path, capsys, where):
    config = small(
        files, freeze=("question_encoder",), train__steps=12, train__log_every=4, train__checkpoint_every=12, **where
    )
    train(config, tmp_path, deafened(load_parts(config)))
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [(line["step"], "warning" in line) for line in lines] == [(4, 0), (8, 0), (10, 1), (12, 0)]
    assert all(line["distinct_passages"] == pytest.approx(1 / 4) for line in lines)  # 2 of 8
    assert lines[2]["warning"].startswith("retrieval collapse: in the 10 steps to step 10 only 25.0% of the passages")
    assert capsys.readouterr().out.count("retrieval collapse: ") == 1


def test_run_directory_of_another_configuration_is_refused_and_untouched(files, whole, capsys):
    _, workdir, _ = whole
    before = {p: p.read_bytes() for p in workdir.rglob("*") if p.is_file()}
    with pytest.raises(ConfigurationMismatch, match=r"variant.*sequence.*token"):
        train(small(files, model__dropout=0.1, variant="token"), workdir)
    assert run_recipe(small(files, model__dropout=0.1, variant="token"), workdir) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert {p: p.read_bytes() for p in workdir.rglob("*") if p.is_file()} == before


def test_a_batch_that_the_devices_do_not_divide_is_refused_before_anything_is_written(files, tmp_path, monkeypatch):
    class Four(Layout):
        parts = 4

    config = small(files, train__batch_size=12, train__accumulate=2)
    monkeypatch.setattr(loop, "make_layout", lambda config: Four())
    with pytest.raises(ValueError, match=r"config.train.batch_size: 12 .* over 4 devices in 2 parts .* multiple of 8"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_non_finite_loss_stops_with_the_number_of_the_step(files, tmp_path):
    config = small(files, model__dropout=0.1)
    parts = load_parts(config)
    kernel = parts.params["generator"]["decoder_layers"]["feed_forward"]["wide"]["bias"]
    parts.params["generator"]["decoder_layers"]["feed_forward"]["wide"]["bias"] = np.full_like(kernel, np.nan)
    with pytest.raises(NonFiniteLoss, match="step 1: the loss is nan"):
        train(config, tmp_path, parts)
    assert not list((tmp_path / "checkpoints").glob("[0-9]*"))


def test_one_batch_with_a_nan_ends_the_run_at_its_last_checkpoint_and_the_same_command_goes_on(
    files, whole, tmp_path, monkeypatch, capsys
):
    config, workdir, params = whole
    make, numbers = loop.make_batch, itertools.count(1)

    def poisoned(*arguments):
        batch, rows = make(*arguments)
        if next(numbers) == 3:
            batch.vectors[1, 0, 0] = np.nan
        return batch, rows

    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_batch", poisoned)
        assert run_recipe(config, tmp_path) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: step 3: the loss is nan; nothing of this step was saved.")
    assert "Traceback" not in said
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["2"]
    whole_lines = (workdir / "metrics.jsonl").read_bytes()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"".join(whole_lines.splitlines(keepends=True)[:2])
    assert run_recipe(config, tmp_path) == 0
    assert equal(params, trained_params(config, tmp_path, load_parts(config)))
    assert (tmp_path / "metrics.jsonl").read_bytes() == whole_lines


def test_k_beyond_the_corpus_is_masked_and_shows_no_ghost(files, whole):
    _, workdir, params = whole
    config = small(files, k=PASSAGES + 3)
    parts = load_parts(config)
    retriever = make_retriever(config, parts, workdir, config.k)
    for variant in ("sequence", "token"):
        question = ["capital of Albania"]
        found = answer(params, parts.arch, parts.tokenizers, retriever, question, variant=variant, batch_size=1)
        sources = next(iter(found)).sources
        assert len({source.passage.id for source in sources}) == len(sources) == PASSAGES
        assert sum(s.prior for s in sources) == pytest.approx(1, abs=1e-5)
        assert sum(s.posterior for s in sources) == pytest.approx(1, abs=1e-5)


def test_closed_book_and_rag_are_evaluated_in_one_table(files, whole, tmp_path):
    shutil.copytree(whole[1], tmp_path / "sequence")
    train(small(files, train__steps=1, retriever="none"), tmp_path / "closed_book")
    results = evaluate_runs(tmp_path, trained_params)
    assert json.loads((tmp_path / "metrics.json").read_text()) == results
    assert set(results["closed_book"]) == {"em", "f1", "questions"}
    of_retrieval = {"recall_at_1", "recall_at_2", "gold_recall_at_1", "right_without_support", "posterior_entropy"}
    assert {"em", "r_precision", "page_recall_at_2"} | of_retrieval <= set(results["sequence"])
    lines = [json.loads(x) for x in (tmp_path / "sequence" / "predictions.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    assert all(len(line["passages"]) == 2 for line in lines)
    assert results["sequence"]["f1"] == pytest.approx(sum(line["scores"]["f1"] for line in lines) / 4)
    alone = json.loads((tmp_path / "closed_book" / "metrics.json").read_text())
    assert alone == {"closed_book": results["closed_book"]}
    report = (tmp_path / "report.html").read_text("utf-8")
    assert "Retrieval beside generation" in report
    assert lines[0]["question"] in report


@pytest.mark.slow
def test_other_k_and_decodings_are_answered_as_if_they_were_asked_for_alone(files, whole):
    config, workdir, _ = whole
    figures = evaluate(config, workdir, trained_params, ks=(1, 2), decodings=("thorough", "fast")).figures
    rows = figures["em_over_k"]
    assert [(row["k"], row["decoding"]) for row in rows] == [(k, d) for k in (1, 2) for d in ("thorough", "fast")]
    other = small(files, model__dropout=0.1, eval__k=1, eval__decoding="fast")
    alone = evaluate(other, workdir, trained_params).figures
    for row, expected in (rows[1], alone), (rows[2], figures):
        assert {name: expected[name] for name in row if name not in ("k", "decoding")} == {
            name: value for name, value in row.items() if name not in ("k", "decoding")
        }
    assert [row["answer"] for row in figures["recall_over_k"]] == [rows[0]["recall_at_1"], rows[2]["recall_at_2"]]
    assert "em_over_k" not in alone


def test_a_sweep_knows_a_finished_run_by_its_checkpoints(files, whole):
    config, workdir, _ = whole
    assert is_finished(SweepRun("", config, workdir))
    assert not is_finished(SweepRun("", small(files, model__dropout=0.1, train__steps=9), workdir))
    assert not is_finished(SweepRun("", small(files, model__dropout=0.1, variant="token"), workdir))
    assert not is_finished(SweepRun("", config, workdir / "nothing"))


def test_single_answers_equal_batched_ones(files, whole):
    config, workdir, params = whole
    parts = load_parts(config)
    retriever = make_retriever(config, parts, workdir, 2)
    questions = [q.text for q in parts.collection.evaluation[:5]]
    ask = lambda size: list(  # noqa: E731
        answer(params, parts.arch, parts.tokenizers, retriever, questions, variant="token", batch_size=size)
    )
    for one, many in zip(ask(1), ask(4), strict=True):
        assert one.text == many.text
        assert one.logprob == pytest.approx(many.logprob, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data__passages_path": "broken.jsonl"}, r"broken\.jsonl, line 2: "),
        ({"data__questions_path": "empty.jsonl"}, r"empty\.jsonl"),
        ({"data__passages_path": "absent.tsv"}, r"absent\.tsv"),
        ({"model__init_from": "nowhere"}, "nowhere: no weights there"),
        ({"model__generator": "bart-huge"}, "no model is named 'bart-huge'"),
        ({"freeze": ("encoder",)}, "'encoder' matches no parameter"),
    ],
)
def test_bad_input_is_one_error_with_its_place(files, tmp_path, capsys, change, message):
    (tmp_path / "broken.jsonl").write_text('{"id": "1", "title": "a", "text": "b"}\n{"id": "2", "title"\n')
    (tmp_path / "empty.jsonl").write_text("")
    change = {n: str(tmp_path / v) if n.endswith("path") else v for n, v in change.items()}
    assert run_recipe(small(files, **change), tmp_path / "run") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "Traceback" not in error
    assert re.search(message, error), error
    assert not list((tmp_path / "run").glob("checkpoints/[0-9]*"))


def test_evaluation_without_a_checkpoint_says_so(files, tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        evaluate(small(files), tmp_path, trained_params)
    with pytest.raises(FileNotFoundError, match="no run there"):
        evaluate_runs(tmp_path / "nothing", trained_params)


def test_parts_are_not_shared_between_loads(files):
    config = small(files)
    first, second = load_parts(config), load_parts(config)
    assert first.params is not second.params
    assert dataclasses.replace(first, params=second.params).arch == first.arch


def test_evaluation_with_changed_settings_leaves_the_runs_record_alone(files, whole):
    _, workdir, params = whole
    before = (workdir / "config.json").read_bytes()
    changed = small(files, model__dropout=0.1, eval__max_questions=1)
    assert equal(trained_params(changed, workdir, load_parts(changed)), params)
    assert (workdir / "config.json").read_bytes() == before


@pytest.mark.slow
def test_a_run_that_retrieves_inside_its_step_is_the_same_run(files, tmp_path):
    lines, answers = [], []
    for name, more in (("exact", {}), ("device", {"index__in_step": True, "index__recall_target": 0.99})):
        config = small(files, index__backend=name, train__steps=3, **more)
        parts = load_parts(config)
        params = train(config, tmp_path / name, parts)
        lines.append(read_metrics(tmp_path / name / "metrics.jsonl"))
        retriever = make_retriever(config, parts, tmp_path / name, config.k)
        answers.append(answer_questions(config, parts, params, retriever, parts.collection.evaluation[:4]))
    for of_step in ("loss", "distinct_passages", "prior_entropy"):
        np.testing.assert_allclose(*([line[of_step] for line in run] for run in lines), rtol=0, atol=1e-5)
    for host, device in zip(*answers, strict=True):
        assert (device.text, device.logprob) == (host.text, pytest.approx(host.logprob, abs=1e-4))
        assert [s.passage.id for s in device.sources] == [s.passage.id for s in host.sources]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"index__in_step": True}, "takes config.index.backend=device"),
        ({"index__in_step": True, "index__backend": "device", "data__hf_compat_input": True}, "only the host can"),
        ({"index__backend": "device", "index__remainders": True}, "dtype=int8"),
    ],
)
def test_settings_that_contradict_retrieval_inside_the_step_are_refused(files, values, message):
    with pytest.raises(rag_config.ConfigError, match=message):
        small(files, **values)
