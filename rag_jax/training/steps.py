"""HOST. The loop that every recipe trains with: step, log, save; start again where the last run stopped."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import optax

from rag_jax.config import Config
from rag_jax.sharding import Layout
from rag_jax.training.checkpoint import Checkpointer
from rag_jax.training.metrics import MetricsWriter, Progress
from rag_jax.training.optimizer import Rule, learning_rates, make_optimizer, make_rules
from rag_jax.training.speed import Speed, Trace
from rag_jax.training.step import TrainState, create_state, init_state
from rag_jax.training.stopping import Stopped, StopRequest

Advance = Callable[[int, TrainState, Speed], tuple[TrainState, dict[str, Any]]]
"""(updates made so far, state, where waiting is noted) -> the state after one more, and that step's numbers, which may
still be computed and are the same whenever the step is done again."""

Watch = Callable[[int, Mapping[str, Any]], str]
"""(step, its numbers) -> a warning for the user, or ''."""

Measure = Callable[[TrainState], Mapping[str, float]]
"""The state after a step -> its figures in validation by name, the higher the better; the first one tells the best."""


class NonFiniteLoss(RuntimeError):
    """The loss or its gradient became NaN or infinite; training stopped before the damage was saved."""


def check_batch(config: Config, layout: Layout) -> None:
    """Refuses a batch that the devices of a layout cannot share evenly.

    Raises:
      ValueError: such a batch, with the number that its size must be a multiple of.
    """
    size, accumulate = config.train.batch_size, config.train.accumulate
    if size % (accumulate * layout.parts):
        raise ValueError(
            f"config.train.batch_size: {size} questions cannot be cut evenly over {layout.parts} devices"
            + f" in {accumulate} parts (config.train.accumulate)" * (accumulate > 1)
            + f"; give a multiple of {accumulate * layout.parts}"
        )


def rules_and_optimizer(config: Config) -> tuple[tuple[Rule, ...], optax.GradientTransformation]:
    """Who is trained at which rate, and by what."""
    o = config.optimizer
    rules = make_rules(
        learning_rate=o.learning_rate,
        retriever_learning_rate=o.retriever_learning_rate,
        steps=config.train.steps,
        schedule=o.schedule,
        warmup_steps=o.warmup_steps,
        freeze=config.freeze,
    )
    return rules, make_optimizer(rules, clip_norm=o.clip_norm, weight_decay=o.weight_decay, b1=o.b1, b2=o.b2)


def saved_or_new_state(
    checkpointer: Checkpointer,
    trainable: Any,
    optimizer: optax.GradientTransformation,
    layout: Layout,
    index_encoder: Any = None,
) -> TrainState:
    """The state of the newest checkpoint, or the one before the first step, on the devices.

    Args:
      checkpointer: of the run.
      trainable: what a new run starts from, on the host.
      optimizer: over it.
      layout: where the state shall lie.
      index_encoder: see `TrainState`.
    """
    if checkpointer.latest_step() is None:
        return create_state(trainable, optimizer, layout, index_encoder)
    wanted = jax.eval_shape(lambda: init_state(trainable, optimizer, index_encoder))
    return checkpointer.restore(layout.abstract(wanted))


def run_steps(
    config: Config,
    workdir: str | os.PathLike[str],
    checkpointer: Checkpointer,
    rules: tuple[Rule, ...],
    state: TrainState,
    advance: Advance,
    traced: range | None = None,
    watch: Watch = lambda step, report: "",
    measure: Measure | None = None,
) -> TrainState:
    """Trains from the state's step to `config.train.steps`, and gives back the last state.

    Args:
      config: final; its groups `train` and `optimizer` are looked at.
      workdir: where metrics.jsonl and speed.jsonl are written.
      checkpointer: of the run.
      rules: of the optimiser, for the learning rates in the log.
      state: from `saved_or_new_state`; its buffers may be given up.
      advance: one step. Its report holds 'loss' and 'gradient_norm', and any other numbers for the log.
      traced: steps whose work JAX's profiler writes to `workdir`/profile, numbered as in the log.
      watch: is shown every step's numbers.
      measure: is called before every checkpoint that is due; None: no figures. Not before one that is made because the
        run is asked to stop: it would not be there if nobody had asked.

    Raises:
      NonFiniteLoss: with the number of the step.
      Stopped: the process was asked to stop; the state is saved.
    """
    t, first = config.train, int(state.step)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(_Log(config, workdir, rules, first, watch))
        stop = stack.enter_context(StopRequest(checkpointer.stops_after))
        trace = stack.enter_context(Trace(workdir, traced))
        for number in range(first, t.steps):
            trace.before(number + 1)
            try:
                state, report = advance(number, state, log.speed)
            except ValueError:
                log.flush()  # vectors that are not finite: the last step's loss says why
                raise
            # The last step's numbers are read only now, while this one runs.
            log.flush()
            log.take(number + 1, report)
            last, stopped = number + 1 == t.steps, stop.after(number + 1)
            due = last or (number + 1) % t.checkpoint_every == 0
            if due or stopped:
                log.flush()
                figures = log.measured(number + 1, measure, state) if due and measure else {}
                checkpointer.save(number + 1, state, next(iter(figures.values()), None))
            if stopped and not last:
                checkpointer.wait()
                raise Stopped(f"stopped after step {number + 1} of {t.steps}, as asked; the same command goes on")
    return state


class _Log:
    """Where a run's numbers go: metrics.jsonl, speed.jsonl and the line of progress."""

    def __init__(
        self, config: Config, workdir: str | os.PathLike[str], rules: tuple[Rule, ...], first: int, watch: Watch
    ):
        t = config.train
        self._every, self._steps, self._rules, self._watch = t.log_every, t.steps, rules, watch
        self._pending: tuple[int, Mapping[str, Any]] | None = None
        with contextlib.ExitStack() as stack:
            self._metrics = stack.enter_context(MetricsWriter(workdir, first))
            self.speed = stack.enter_context(Speed(workdir, t.batch_size, first))
            self._progress = stack.enter_context(Progress(t.steps, t.batch_size, start=first))
            self._open = stack.pop_all()

    def take(self, step: int, report: Mapping[str, Any]) -> None:
        """A step's numbers, which may still be computed."""
        self._pending = step, report
        self.speed.end_step()

    def flush(self) -> None:
        """Reads the numbers that were taken last, refuses such as are not finite, and writes what is due.

        A warning has a line with its step's numbers, due or not.

        Raises:
          NonFiniteLoss: the loss of that step is infinite or NaN.
        """
        if self._pending is None:
            return
        (step, report), self._pending = self._pending, None
        with self.speed.waiting("device"):
            numbers = {name: float(np.asarray(report[name])) for name in ("loss", "gradient_norm")}
        for name, number in numbers.items():  # a loss may be finite although its gradient is not
            if not math.isfinite(number):
                raise NonFiniteLoss(
                    f"step {step}: the {name.replace('_', ' ')} is {number}; nothing of this step was saved. Lower "
                    "config.optimizer.learning_rate, or look at the batch of this step; the same command goes on from "
                    "the last checkpoint"
                )
        warning = self._watch(step, report)
        if warning:
            self._progress.say(warning)
        if step % self._every == 0 or step == self._steps or warning:
            self._progress.update(step, numbers["loss"])
            rates = {f"learning_rate/{name}": rate for name, rate in learning_rates(self._rules, step - 1).items()}
            self._metrics.write(step, {**report, **rates, **({"warning": warning} if warning else {})})
            self.speed.write(step)

    def measured(self, step: int, measure: Measure, state: TrainState) -> Mapping[str, float]:
        """The figures of a state in validation, which get a line of their own."""
        with self.speed.aside("validation"):
            figures = measure(state)
        self._progress.say(f"step {step}  validation  " + "  ".join(f"{n} {x:.3f}" for n, x in figures.items()))
        self._metrics.write(step, {f"validation/{name}": figure for name, figure in figures.items()})
        return figures

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
