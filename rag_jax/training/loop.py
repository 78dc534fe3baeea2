"""HOST. Training a RAG: retrieve with the question encoder as it is now, and step.

Where the passage encoder is trained too (`config.index.refresh_every`), steps score what they found with that encoder
as it is now, and search vectors that it made up to so many steps ago. These belong to the state: which encoder made
them is saved with it, and the index, a derived file, is made again where it is another's.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from rag_jax.config import Config, to_json
from rag_jax.experiment import Parts, load_parts, make_layout, make_retriever, run_index
from rag_jax.rag.retrieve import ClosedBook, Retriever, make_batch
from rag_jax.rag.shapes import padding_share, shaped
from rag_jax.sharding import Layout, is_first
from rag_jax.training.checkpoint import Checkpointer
from rag_jax.training.collapse import CollapseMonitor
from rag_jax.training.examples import Examples
from rag_jax.training.optimizer import merge, partition
from rag_jax.training.record import write_record
from rag_jax.training.speed import Speed
from rag_jax.training.step import TrainState, init_state, make_train_step
from rag_jax.training.steps import check_batch, rules_and_optimizer, run_steps, saved_or_new_state
from rag_jax.types import Question

Validate = Callable[[Config, Parts, dict[str, Any], Retriever | ClosedBook], Mapping[str, float]]
"""(final configuration, parts, parameters on the host, the run's retriever) -> figures of the validation questions by
name, the higher the better; the first one tells the best checkpoints."""


def train(
    config: Config,
    workdir: str | os.PathLike[str],
    parts: Parts | None = None,
    traced: range | None = None,
    validate: Validate | None = None,
) -> dict[str, Any]:
    """Trains one configuration and leaves `config.json`, `metrics.jsonl`, `checkpoints/` and the index in `workdir`.

    A directory that holds this configuration's checkpoints is gone on with; a finished run is not trained again.

    Args:
      config: final, see `rag_jax.config.finalise`.
      workdir: the run's own directory.
      parts: what to start from, when it is loaded already.
      traced: see `run_steps`.
      validate: measures what `config.train.validation_questions` asks for; training does not know evaluation.

    Returns:
      The trained parameters: 'generator', 'question_encoder' where passages are found by vectors, 'passage_encoder' if
      the index is refreshed, 'null_document' if there is one.

    Raises:
      ConfigurationMismatch: the directory holds another configuration's checkpoints; nothing was written.
      InUse: another process trains in the directory.
      NonFiniteLoss: with the number of the step.
      ValueError: there is nothing to validate on, or nobody who does.
      Stopped: the process was asked to stop; the state is saved.
    """
    layout = make_layout(config)
    check_batch(config, layout)
    t = config.train
    with Checkpointer(workdir, to_json(config), keep=t.keep_checkpoints, keep_best=t.keep_best) as checkpointer:
        parts = parts or load_parts(config)
        return _train(config, pathlib.Path(workdir), parts, checkpointer, layout, traced, validate)


def _train(
    config: Config,
    workdir: pathlib.Path,
    parts: Parts,
    checkpointer: Checkpointer,
    layout: Layout,
    traced: range | None,
    validate: Validate | None,
) -> dict[str, Any]:
    o, t, every = config.optimizer, config.train, config.index.refresh_every
    rules, optimizer = rules_and_optimizer(config)
    trainable, frozen = partition(parts.params, rules)
    index_encoder = parts.params["passage_encoder"] if every else None
    state = saved_or_new_state(checkpointer, trainable, optimizer, layout, index_encoder)
    first = int(state.step)
    if first and is_first():
        print(f"{workdir}: goes on after step {first} of {t.steps}", flush=True)
    if first >= t.steps:
        return merge(layout.to_host(state.trainable), frozen)
    checked = _checked(validate, parts.collection.validation) if t.validation_questions else None

    each = config.data.train_answers == "each"
    train = parts.collection.train
    examples = Examples.tokenize(train, parts.tokenizers, each, config.data.labels)
    on_devices = layout.place(frozen)
    if every:  # the index is a derived file: one that a later step left there is made again for this state
        state = _taken_over(state, on_devices) if first % every == 0 else state
        parts = dataclasses.replace(parts, passage_encoder=layout.to_host(state.index_encoder))
    known = (*train, *parts.collection.validation) if t.validation_questions else train
    retriever = make_retriever(config, parts, workdir, config.k, layout, encoded_in_step=every > 0, questions=known)
    write_record(workdir, first, getattr(retriever, "index", None))  # closed book has none
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
    retrieves = config.retriever != "none"
    collapse = CollapseMonitor(t.batch_size, retriever.k, len(parts.collection.passages))
    mine, pad_id = layout.my_rows(t.batch_size), parts.arch.generator.pad_id
    tower, most = parts.arch.question_encoder, config.data.max_source_tokens
    asked, encoded, found = _questions(examples, first, config, mine), None, None

    def query_params(state: TrainState) -> Any:
        return state.trainable.get("question_encoder", on_devices.get("question_encoder"))

    def advance(number: int, state: TrainState, speed: Speed) -> tuple[TrainState, dict[str, Any]]:
        nonlocal asked, encoded, found
        if every and number % every == 0 and number > first and isinstance(retriever, Retriever):
            state = _taken_over(state, on_devices)
            now = dataclasses.replace(parts, passage_encoder=layout.to_host(state.index_encoder))
            retriever.take_index(run_index(config, now, workdir))
        with speed.waiting("retrieval"):
            batch, rows = found or make_batch(retriever, tower, query_params(state), *asked, encoded)
        # A resumed run has nothing found before its first step, so after a checkpoint nothing is.
        lags = bool(t.retrieval_lag) and not (t.checkpoint_every and (number + 1) % t.checkpoint_every == 0)
        asked, found = _questions(examples, number + 1, config, mine), None
        if lags:
            encoded = retriever.encode_ahead(tower, query_params(state), asked[0])
        batch, width = shaped(batch, pad_id, most, layout, t.accumulate, retriever.resident)
        speed.padding(padding_share(batch, pad_id, width))
        rows = layout.rows(rows.astype(np.int32)) if rows is not None and retrieves else None
        state, report = step_fn(state, on_devices, layout.rows(batch), width, retriever.resident, rows)
        speed.compiled(number + 1, batch)
        if lags:
            with speed.waiting("search"):
                found = make_batch(retriever, tower, query_params(state), *asked, encoded)
        else:
            # The next questions are encoded behind this step, with the encoder that it leaves: the device has work
            # while the host reads, writes and saves.
            encoded = retriever.encode_ahead(tower, query_params(state), asked[0])
        generation = {"index_generation": number // every} if every else {}
        return state, {**report, **generation}

    measures = None
    if checked is not None:
        measures = lambda state: checked(config, parts, merge(layout.to_host(state.trainable), frozen), retriever)  # noqa: E731
    state = run_steps(config, workdir, checkpointer, rules, state, advance, traced, collapse.warning, measures)
    return merge(layout.to_host(state.trainable), frozen)


def _checked(validate: Validate | None, questions: Sequence[Question]) -> Validate:
    """`validate`; refuses at once what would fail at the first checkpoint."""
    name = "config.train.validation_questions"
    if validate is None:
        raise ValueError(f"{name}: train() is given no `validate`; rag_jax.evaluation.validation has one")
    if not questions:
        raise ValueError(f"{name}: there are none; give config.data.validation_questions_path, or set it to 0")
    for question in questions:
        if not question.answers:
            raise ValueError(f"validation question {question.id!r} has no reference answers")
    return validate


def _taken_over(state: TrainState, frozen: Any) -> TrainState:
    """The state whose index shall be made by the passage encoder as it is now."""
    encoder = merge(state.trainable, frozen)["passage_encoder"]
    copied = jax.tree.map(jnp.copy, encoder)
    return dataclasses.replace(state, index_encoder=copied)  # a step gives the other's buffers up


def _questions(
    examples: Examples, step: int, config: Config, mine: Int[np.ndarray, "B"]
) -> tuple[Any, Any, Any, Any, Any]:
    """A step's questions as `make_batch` takes them: for the encoder, the generator, as texts; targets and weights.

    `mine` are the rows of the batch that are this process's.
    """
    rows, weight = (column[mine] for column in examples.batch(step, config.train.batch_size, config.seed))
    texts = [examples.texts[row] for row in rows]
    return examples.question[rows], examples.source_question[rows], texts, examples.target[rows], weight


def trained_params(config: Config, workdir: str | os.PathLike[str], parts: Parts) -> dict[str, Any]:
    """The parameters of a run's newest checkpoint, or of its best; the run's config.json stays as it was trained with.

    Args:
      config: final; `eval.checkpoint` says which.
      workdir: the run's directory.
      parts: what training began with.

    Raises:
      ConfigurationMismatch: the directory holds another configuration's checkpoints.
      FileNotFoundError: the run has no checkpoint, or none with a figure in validation.
    """
    rules, optimizer = rules_and_optimizer(config)
    trainable, frozen = partition(parts.params, rules)
    index_encoder = parts.params["passage_encoder"] if config.index.refresh_every else None
    layout = make_layout(config)
    with Checkpointer(workdir, to_json(config), keep=config.train.keep_checkpoints, record=False) as checkpointer:
        wanted = layout.abstract(jax.eval_shape(lambda: init_state(trainable, optimizer, index_encoder)))
        state: TrainState = checkpointer.restore(wanted, best=config.eval.checkpoint == "best")
    return merge(layout.to_host(state.trainable), frozen)
