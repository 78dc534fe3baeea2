"""HOST. Training a retriever alone, as DPR is trained (Karpukhin et al. 2020): what `configs/dpr.py` runs."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax

from rag_jax.config import Config, to_json
from rag_jax.experiment import Parts, load_parts, make_layout, sizes
from rag_jax.index import ExactSearcher, embed
from rag_jax.rag.model import Architecture, save_weights
from rag_jax.rag.retrieve import embed_passages, encode
from rag_jax.sharding import first_alone
from rag_jax.text.datasets import Collection
from rag_jax.text.tokens import Tokenizers
from rag_jax.training.checkpoint import Checkpointer
from rag_jax.training.contrastive import TowerBatch, make_tower_step
from rag_jax.training.metrics import MetricsWriter
from rag_jax.training.optimizer import merge, partition
from rag_jax.training.record import write_record
from rag_jax.training.speed import Speed
from rag_jax.training.step import TrainState
from rag_jax.training.steps import check_batch, rules_and_optimizer, run_steps, saved_or_new_state
from rag_jax.training.tower_batches import DprExamples, WorldGroups

RECALL_AT = (1, 5)


def train_towers(
    config: Config, workdir: str | os.PathLike[str], parts: Parts | None = None, traced: range | None = None
) -> dict[str, Any]:
    """Trains both towers and leaves `config.json`, `metrics.jsonl`, `checkpoints/` and `weights/` in `workdir`.

    The last line of the metrics holds the recall of gold passages on the evaluation questions, where there are any. A
    directory that holds this configuration's checkpoints is gone on with; a finished run is not trained again.

    Args:
      config: final, of recipe 'dpr'.
      workdir: the run's own directory.
      parts: what to start from, when it is loaded already.
      traced: see `run_steps`.

    Returns:
      The trained parameters, {'question_encoder', 'passage_encoder'}.

    Raises:
      ConfigurationMismatch: the directory holds another configuration's checkpoints; nothing was written.
      InUse: another process trains in the directory.
      NonFiniteLoss: with the number of the step.
      Stopped: the process was asked to stop; the state is saved.
    """
    layout, workdir = make_layout(config), pathlib.Path(workdir)
    check_batch(config, layout)
    with Checkpointer(workdir, to_json(config), keep=config.train.keep_checkpoints) as checkpointer:
        parts = parts or load_parts(config)
        rules, optimizer = rules_and_optimizer(config)
        trainable, frozen = partition(parts.params, rules)
        state = saved_or_new_state(checkpointer, trainable, optimizer, layout)
        unfinished = int(state.step) < config.train.steps
        if unfinished:
            write_record(workdir, int(state.step), None)
            batches = _batches(config, parts.tokenizers)
            dropout = config.model.dropout > 0
            step_fn = make_tower_step(parts.arch, optimizer, dropout=dropout, seed=config.seed, layout=layout)
            on_devices, mine = layout.place(frozen), layout.my_rows(config.train.batch_size)

            def advance(number: int, state: TrainState, speed: Speed) -> tuple[TrainState, dict[str, Any]]:
                batch = jax.tree.map(lambda column: column[mine], batches(number))
                state, report = step_fn(state, on_devices, layout.rows(batch))
                speed.compiled(number + 1, batch)
                return state, report

            state = run_steps(config, workdir, checkpointer, rules, state, advance, traced)
        params = merge(layout.to_host(state.trainable), frozen)
    if unfinished or not (workdir / "weights" / "model.json").is_file():
        first_alone(lambda: _finish(config, workdir, parts, params))
    return params


def _batches(config: Config, tokenizers: Tokenizers) -> Callable[[int], TowerBatch]:
    """Step -> its batch, of all processes."""
    d, size = config.data, config.train.batch_size
    if d.dataset == "world_facts":
        return WorldGroups(tokenizers, size, config.seed, d.edition).batch
    examples = DprExamples.read(d.questions_path, tokenizers, config.dpr.kept_negatives)
    return lambda step: examples.batch(step, size, config.seed, config.dpr.hard_negatives)


def _finish(config: Config, workdir: pathlib.Path, parts: Parts, params: dict[str, Any]) -> None:
    """Measures, writes the weights and says both."""
    figures = gold_recall(params, parts.arch, parts.tokenizers, parts.collection)
    if figures:
        with MetricsWriter(workdir) as metrics:
            metrics.write(config.train.steps, figures)
        print("  ".join(f"{name} {round(value, 3)}" for name, value in figures.items()))
    arch, _ = sizes(config, own_dropout=False)  # a rate of 0 would stay 0 in whatever is trained from these weights
    save_weights(workdir / "weights", params, arch, parts.tokenizers)
    print(f"{workdir / 'weights'}: both towers")


def gold_recall(
    params: dict[str, Any],
    arch: Architecture,
    tokenizers: Tokenizers,
    collection: Collection,
    ks: Sequence[int] = RECALL_AT,
) -> dict[str, float | int]:
    """How often a gold passage is among the k best of a collection, exact search.

    Args:
      params: {'question_encoder', 'passage_encoder'}.
      arch: their sizes.
      tokenizers: of both.
      collection: its evaluation questions with gold passages are asked; all its passages are embedded, in memory.
      ks: what to cut at.

    Returns:
      {'gold_recall_at_<k>': share of the questions, 'gold_questions', 'gold_passages': how many of each}; empty where
      there is no such question.
    """
    questions = [question for question in collection.evaluation if question.positive_ids]
    if not questions:
        return {}
    passages = list(collection.passages)
    vectors = embed_passages(arch.passage_encoder, params["passage_encoder"], tokenizers, passages)
    tower = arch.question_encoder
    rows = tokenizers.questions([question.text for question in questions])
    ask = functools.partial(encode, tower, params["question_encoder"])
    queries = embed(ask, rows, pad_id=tower.pad_id, batch_size=256)
    found = ExactSearcher(vectors).search(queries, max(ks))
    right = [
        [row >= 0 and passages[row].id in question.positive_ids for row in rows]
        for rows, question in zip(found.tolist(), questions, strict=True)
    ]
    figures = {f"gold_recall_at_{k}": sum(any(hits[:k]) for hits in right) / len(right) for k in ks}
    return figures | {"gold_questions": len(questions), "gold_passages": len(passages)}
