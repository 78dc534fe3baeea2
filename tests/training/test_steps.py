"""The loop itself, on a model of one number: what is refused, what is measured, and what a resumed run repeats."""

import json
import math

import jax
import jax.numpy as jnp
import pytest

from rag_jax.config import Config, finalise, to_json, update
from rag_jax.training.checkpoint import Checkpointer
from rag_jax.training.metrics import read_metrics
from rag_jax.training.step import TrainState
from rag_jax.training.steps import NonFiniteLoss, run_steps
from rag_jax.training.stopping import Stopped, StopRequest

FIGURES = {2: 0.25, 4: 0.75, 6: 0.75, 8: 0.5}  # of validation, by step


def experiment(**values):
    values = {name.replace("__", "."): value for name, value in values.items()}
    fixed = {"train.steps": 8, "train.checkpoint_every": 2, "train.log_every": 1, "optimizer.warmup_steps": 0}
    fixed |= {"train.keep_checkpoints": 1, "train.validation_questions": 1, "train.keep_best": 2}
    return finalise(update(Config(), fixed | values))


def run(workdir, config, numbers=None, measure=None):
    """Trains as recipes do; `numbers` are reports that take the place of a step's own."""

    def advance(number, state, speed):
        report = {"loss": 1 / (number + 1), "gradient_norm": 1.0} | (numbers or {}).get(number + 1, {})
        return TrainState(state.step + 1, state.trainable + 1, None), report

    t = config.train
    with Checkpointer(workdir, to_json(config), keep=t.keep_checkpoints, keep_best=t.keep_best) as checkpointer:
        state = TrainState(jnp.int32(0), jnp.float32(0), None)
        if checkpointer.latest_step() is not None:
            state = checkpointer.restore(jax.eval_shape(lambda: state))
        return run_steps(config, workdir, checkpointer, (), state, advance, measure=measure)


def measured(state):
    """The figures of a step, told from its parameters."""
    return {"em": FIGURES[int(state.trainable)], "f1": 1.0}


def kept(workdir):
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())


@pytest.mark.parametrize("name", ["loss", "gradient norm"])
@pytest.mark.parametrize("step", [3, 4])  # found by the next step, and before a checkpoint
def test_a_number_that_is_not_finite_ends_the_run_before_its_step_is_saved(tmp_path, name, step):
    broken = {step: {name.replace(" ", "_"): math.nan}}
    config = experiment(train__validation_questions=0, train__keep_best=0)
    with pytest.raises(NonFiniteLoss, match=f"step {step}: the {name} is nan; .* goes on from the last checkpoint"):
        run(tmp_path, config, broken)
    assert kept(tmp_path) == [2]
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == list(range(1, step))
    assert int(run(tmp_path, config).step) == 8
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == list(range(1, 9))


def test_the_checkpoints_with_the_best_first_figure_stay_and_can_be_restored(tmp_path):
    config = experiment()
    run(tmp_path, config, measure=measured)
    lines = [line for line in read_metrics(tmp_path / "metrics.jsonl") if "loss" not in line]
    assert lines == [{"step": step, "validation/em": em, "validation/f1": 1.0} for step, em in FIGURES.items()]
    assert kept(tmp_path) == [4, 6, 8]
    with Checkpointer(tmp_path, to_json(config), record=False) as reader:
        assert reader.best_step() == 6  # of equal ones the newest
        shape = jax.eval_shape(lambda: TrainState(jnp.int32(0), jnp.float32(0), None))
        assert [int(reader.restore(shape, best=best).step) for best in (True, False)] == [6, 8]


def test_a_run_that_was_stopped_and_killed_has_the_lines_and_checkpoints_of_one_that_was_not(tmp_path, monkeypatch):
    config, whole, broken = experiment(), tmp_path / "whole", tmp_path / "broken"
    run(whole, config, measure=measured)

    def killed(state):
        raise KeyboardInterrupt

    for step in (3, 4):  # between two checkpoints, where nothing is measured, and at one
        with monkeypatch.context() as patch:
            patch.setattr(StopRequest, "after", lambda stop, now, step=step: now == step)
            with pytest.raises(Stopped):
                run(broken, config, measure=measured)
    with pytest.raises(KeyboardInterrupt):  # its step has a line already, and no checkpoint
        run(broken, config, measure=killed)
    assert json.loads((broken / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 6
    assert kept(broken)[-1] == 4
    run(broken, config, measure=measured)
    assert (broken / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert kept(broken) == kept(whole)


def test_a_run_that_measured_nothing_has_no_best_checkpoint(tmp_path):
    config = experiment(train__validation_questions=0, train__keep_best=0)
    run(tmp_path, config)
    shape = jax.eval_shape(lambda: TrainState(jnp.int32(0), jnp.float32(0), None))
    with (
        Checkpointer(tmp_path, to_json(config), record=False) as reader,
        pytest.raises(FileNotFoundError, match="no checkpoint with a figure of validation"),
    ):
        reader.restore(shape, best=True)
