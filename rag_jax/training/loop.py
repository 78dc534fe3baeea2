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

from rag_jax.config import Config, to_json
from rag_jax.experiment import Parts, load_parts, make_retriever
from rag_jax.rag.retrieve import make_batch
from rag_jax.rag.shapes import packed, source_width
from rag_jax.training.checkpoint import Checkpointer
from rag_jax.training.examples import Examples
from rag_jax.training.metrics import MetricsWriter, Progress
from rag_jax.training.optimizer import Rule, learning_rates, make_optimizer, make_rules, merge, partition
from rag_jax.training.step import TrainState, init_state, make_train_step


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
      The trained parameters, {'question_encoder', 'generator'}; without the first in closed book and with BM25.

    Raises:
      ConfigurationMismatch: the directory holds another configuration's checkpoints; nothing was written.
      NonFiniteLoss: with the number of the step.
    """
    with Checkpointer(workdir, to_json(config), keep=config.train.keep_checkpoints) as checkpointer:
        parts = parts or load_parts(config)
        return _train(config, pathlib.Path(workdir), parts, checkpointer)


def _train(config: Config, workdir: pathlib.Path, parts: Parts, checkpointer: Checkpointer) -> dict[str, Any]:
    o, t = config.optimizer, config.train
    rules, optimizer = _rules_and_optimizer(config)
    trainable, frozen = partition(parts.params, rules)
    state = jax.jit(lambda tree: init_state(tree, optimizer))(trainable)
    if checkpointer.latest_step() is not None:
        state = checkpointer.restore(jax.eval_shape(lambda: state))
    first = int(state.step)
    if first >= t.steps:
        return merge(jax.device_get(state.trainable), frozen)

    examples = Examples.tokenize(parts.collection.train, parts.tokenizers)
    retriever = make_retriever(config, parts, workdir, config.k)
    step_fn = make_train_step(
        parts.arch,
        optimizer,
        variant=config.variant,
        label_smoothing=o.label_smoothing,
        dropout=config.model.dropout > 0,
        seed=config.seed,
    )
    frozen = jax.device_put(frozen)
    pad_id = parts.arch.generator.pad_id
    with contextlib.ExitStack() as stack:
        metrics = stack.enter_context(MetricsWriter(workdir))
        progress = stack.enter_context(Progress(t.steps, t.batch_size, start=first))
        pending: tuple[int, Mapping[str, Any]] | None = None
        tower, most = parts.arch.question_encoder, config.data.max_source_tokens
        asked, encoded = _questions(examples, first, config), None
        query_params = state.trainable.get("question_encoder", frozen.get("question_encoder"))
        for number in range(first, t.steps):
            begin = time.monotonic()
            try:
                batch, _ = make_batch(retriever, tower, query_params, *asked, encoded)
            except ValueError:
                if pending is not None:  # question vectors that are not finite: the last step's loss says why
                    _report(pending, t.log_every, t.steps, metrics, progress, rules)
                raise
            waited = time.monotonic() - begin
            width = source_width(batch, pad_id, most, retriever.resident)
            batch = packed(batch, pad_id, width)
            state, report = step_fn(state, frozen, batch, width, retriever.resident)
            # The next questions are encoded behind this step, with the encoder that it leaves: the device has work
            # while the host reads, writes and saves.
            asked = _questions(examples, number + 1, config)
            query_params = state.trainable.get("question_encoder", frozen.get("question_encoder"))
            encoded = retriever.encode_ahead(tower, query_params, asked[0])
            # The last step's numbers are read only now, while this one runs.
            if pending is not None:
                _report(pending, t.log_every, t.steps, metrics, progress, rules)
            pending = number + 1, {**report, "retrieval_wait_seconds": waited}
            if (number + 1) % t.checkpoint_every == 0 or number + 1 == t.steps:
                _report(pending, t.log_every, t.steps, metrics, progress, rules)
                pending = None
                checkpointer.save(number + 1, state)
    return merge(jax.device_get(state.trainable), jax.device_get(frozen))


def _questions(examples: Examples, step: int, config: Config) -> tuple[Any, ...]:
    """A step's questions as `make_batch` takes them: for the encoder, the generator, as texts; targets and weights."""
    rows, weight = examples.batch(step, config.train.batch_size, config.seed)
    texts = [examples.texts[row] for row in rows]
    return examples.question[rows], examples.source_question[rows], texts, examples.target[rows], weight


def _rules_and_optimizer(config: Config) -> tuple[tuple[Rule, ...], optax.GradientTransformation]:
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
    rules, optimizer = _rules_and_optimizer(config)
    trainable, frozen = partition(parts.params, rules)
    with Checkpointer(workdir, to_json(config), keep=config.train.keep_checkpoints, record=False) as checkpointer:
        state: TrainState = checkpointer.restore(jax.eval_shape(lambda: init_state(trainable, optimizer)))
    return merge(jax.device_get(state.trainable), frozen)
