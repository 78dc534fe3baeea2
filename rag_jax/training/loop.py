"""HOST. Training: retrieve with the encoder as it is now, step, log, save; start again where the last run stopped."""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import Int

from rag_jax.config import Config, to_json
from rag_jax.experiment import Parts, load_parts, make_layout, make_retriever
from rag_jax.rag.retrieve import make_batch
from rag_jax.rag.shapes import to_devices
from rag_jax.sharding import Layout
from rag_jax.training.checkpoint import Checkpointer
from rag_jax.training.examples import Examples
from rag_jax.training.metrics import MetricsWriter, Progress
from rag_jax.training.optimizer import Rule, learning_rates, make_optimizer, make_rules, merge, partition
from rag_jax.training.step import TrainState, create_state, init_state, make_train_step


class NonFiniteLoss(RuntimeError):
    """The loss became NaN or infinite; training stopped before the damage was saved."""


def train(config: Config, workdir: str | os.PathLike[str], parts: Parts | None = None) -> dict[str, Any]:
    """Trains one configuration and leaves `config.json`, `metrics.jsonl`, `checkpoints/` and the index in `workdir`.

    A directory that holds this configuration's checkpoints is gone on with; a finished run is not trained again.

    Args:
      config: final, see `rag_jax.config.finalise`.
      workdir: the run's own directory.
      parts: what to start from, when it is loaded already.

    Returns:
      The trained parameters: 'generator', 'question_encoder' where passages are found by vectors, and 'null_document'.

    Raises:
      ConfigurationMismatch: the directory holds another configuration's checkpoints; nothing was written.
      NonFiniteLoss: with the number of the step.
    """
    layout = make_layout(config)
    check_batch(config, layout)
    with Checkpointer(workdir, to_json(config), keep=config.train.keep_checkpoints) as checkpointer:
        parts = parts or load_parts(config)
        return _train(config, pathlib.Path(workdir), parts, checkpointer, layout)


def check_batch(config: Config, layout: Layout) -> None:
    """Refuses a batch that the devices of a layout cannot share evenly, with a ValueError."""
    size, accumulate = config.train.batch_size, config.train.accumulate
    if size % (accumulate * layout.parts):
        raise ValueError(
            f"config.train.batch_size: {size} questions cannot be cut evenly over {layout.parts} devices"
            + f" in {accumulate} parts (config.train.accumulate)" * (accumulate > 1)
            + f"; give a multiple of {accumulate * layout.parts}"
        )


def _train(
    config: Config, workdir: pathlib.Path, parts: Parts, checkpointer: Checkpointer, layout: Layout
) -> dict[str, Any]:
    o, t = config.optimizer, config.train
    rules, optimizer = rules_and_optimizer(config)
    trainable, frozen = partition(parts.params, rules)
    if checkpointer.latest_step() is None:
        state = create_state(trainable, optimizer, layout)
    else:
        state = checkpointer.restore(layout.abstract(jax.eval_shape(lambda: init_state(trainable, optimizer))))
    first = int(state.step)
    if first >= t.steps:
        return merge(layout.to_host(state.trainable), frozen)

    examples = Examples.tokenize(parts.collection.train, parts.tokenizers)
    retriever = make_retriever(config, parts, workdir, config.k, layout, parts.collection.train)
    step_fn = make_train_step(
        parts.arch,
        optimizer,
        variant=config.variant,
        label_smoothing=o.label_smoothing,
        dropout=config.model.dropout > 0,
        seed=config.seed,
        accumulate=t.accumulate,
        layout=layout,
    )
    on_devices = layout.place(frozen)
    mine, pad_id = layout.my_rows(t.batch_size), parts.arch.generator.pad_id
    with contextlib.ExitStack() as stack:
        metrics = stack.enter_context(MetricsWriter(workdir))
        progress = stack.enter_context(Progress(t.steps, t.batch_size, start=first))
        pending: tuple[int, Mapping[str, Any]] | None = None
        tower, most = parts.arch.question_encoder, config.data.max_source_tokens
        asked, encoded = _questions(examples, first, config, mine), None
        query_params = state.trainable.get("question_encoder", on_devices.get("question_encoder"))
        for number in range(first, t.steps):
            begin = time.monotonic()
            try:
                batch, _ = make_batch(retriever, tower, query_params, *asked, encoded)
            except ValueError:
                if pending is not None:  # question vectors that are not finite: the last step's loss says why
                    _report(pending, t.log_every, t.steps, metrics, progress, rules)
                raise
            waited = time.monotonic() - begin
            batch, width = to_devices(batch, pad_id, most, layout, t.accumulate, retriever.resident)
            state, report = step_fn(state, on_devices, batch, width, retriever.resident)
            # The next questions are encoded behind this step, with the encoder that it leaves: the device has work
            # while the host reads, writes and saves.
            asked = _questions(examples, number + 1, config, mine)
            query_params = state.trainable.get("question_encoder", on_devices.get("question_encoder"))
            encoded = retriever.encode_ahead(tower, query_params, asked[0])
            # The last step's numbers are read only now, while this one runs.
            if pending is not None:
                _report(pending, t.log_every, t.steps, metrics, progress, rules)
            pending = number + 1, {**report, "retrieval_wait_seconds": waited}
            if (number + 1) % t.checkpoint_every == 0 or number + 1 == t.steps:
                _report(pending, t.log_every, t.steps, metrics, progress, rules)
                pending = None
                checkpointer.save(number + 1, state)
    return merge(layout.to_host(state.trainable), frozen)


def _questions(examples: Examples, step: int, config: Config, mine: Int[np.ndarray, "B"]) -> tuple[Any, ...]:
    """A step's questions as `make_batch` takes them: for the encoder, the generator, as texts; targets and weights.

    `mine` are the rows of the batch that are this process's.
    """
    rows, weight = (column[mine] for column in examples.batch(step, config.train.batch_size, config.seed))
    texts = [examples.texts[row] for row in rows]
    return examples.question[rows], examples.source_question[rows], texts, examples.target[rows], weight


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


def _report(
    pending: tuple[int, Mapping[str, Any]],
    every: int,
    steps: int,
    metrics: MetricsWriter,
    progress: Progress,
    rules: Any,
) -> None:
    """Reads one step's numbers, refuses a loss that is not finite, and writes those that are due."""
    step, report = pending
    loss = float(np.asarray(report["loss"]))
    if not math.isfinite(loss):
        raise NonFiniteLoss(
            f"step {step}: the loss is {loss}; nothing of this step was saved. Lower config.optimizer.learning_rate, "
            "or look at the batch of this step; the last checkpoint is whole"
        )
    if step % every == 0 or step == steps:
        progress.update(step, loss)
        rates = {f"learning_rate/{pattern}": rate for pattern, rate in learning_rates(rules, step - 1).items()}
        metrics.write(step, {**report, **rates, "questions_per_second": progress.questions_per_second})


def trained_params(config: Config, workdir: str | os.PathLike[str], parts: Parts) -> dict[str, Any]:
    """The parameters of a run's newest checkpoint; the run's config.json stays as it was trained with.

    Raises:
      ConfigurationMismatch: the directory holds another configuration's checkpoints.
      FileNotFoundError: the run has no checkpoint.
    """
    rules, optimizer = rules_and_optimizer(config)
    trainable, frozen = partition(parts.params, rules)
    layout = make_layout(config)
    with Checkpointer(workdir, to_json(config), keep=config.train.keep_checkpoints, record=False) as checkpointer:
        wanted = layout.abstract(jax.eval_shape(lambda: init_state(trainable, optimizer)))
        state: TrainState = checkpointer.restore(wanted)
    return merge(layout.to_host(state.trainable), frozen)
