"""HOST. From nothing to a retriever and a reader: what `configs/world_pretrain.py` runs.

The paper starts from a trained DPR and a trained BART. Here both are made from the training countries alone: the
tokenizer from their passages, the towers as `rag_jax.training.dpr` trains them, the generator by reading counterfactual
passages that grow longer in stages. A tokenizer and towers that are there already are not made again; the reader is.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int
from transformers import PreTrainedTokenizerFast

from rag_jax.config import Config, finalise, update
from rag_jax.models.bart import Bart, BartConfig
from rag_jax.rag.source import SPECIALS
from rag_jax.text.tokens import Tokenizers, train_tokenizer, trim
from rag_jax.text.world_facts import EDITIONS, SECTIONS, Counterfactuals, split_of, world_passages, world_questions
from rag_jax.training.optimizer import make_optimizer, make_rules
from rag_jax.training.reader import reader_exact, reader_loss
from rag_jax.types import Passage

EDITION = "2020"
QUESTION_WIDTH, TARGET_WIDTH = 24, 16  # tokens; the reader's longer examples are left out
TOWER_PASSAGE = 112  # tokens of a passage in the towers' training; longer ones are cut
Log = Callable[[dict[str, Any]], None]


@dataclasses.dataclass(frozen=True)
class ReaderStage:
    """One stage of the reader's curriculum.

    Attributes:
      steps: number of batches.
      batch_size: examples in each.
      facts: the least and the most facts that a passage states.
      widths: source tokens, ascending. A batch holds examples of one width; one that fits none is left out.
    """

    steps: int
    batch_size: int
    facts: tuple[int, int]
    widths: tuple[int, ...]


def towers_config(config: Config) -> Config:
    """The towers' part of a pretraining as an experiment of recipe 'dpr'."""
    p = config.pretrain
    values = {
        "seed": config.seed,
        "data.edition": config.data.edition,
        "data.max_question_tokens": config.data.max_question_tokens,
        "data.max_passage_tokens": TOWER_PASSAGE,
        "data.max_source_tokens": config.data.max_source_tokens,
        "dpr.hard_negatives": 0,
        "model.init_from": "",
        "model.dropout": 0.0,
        "optimizer.learning_rate": p.tower_learning_rate,
        "optimizer.schedule": "cosine",
        "optimizer.warmup_steps": min(100, p.tower_steps),
        "optimizer.weight_decay": 0.01,
        "optimizer.clip_norm": 1.0,
        "optimizer.b2": 0.98,
        "train.batch_size": p.tower_groups * len(SECTIONS),
        "train.steps": p.tower_steps,
        "train.log_every": 100,
    }
    return finalise(update(Config(recipe="dpr"), values))


def reader_stages(config: Config) -> tuple[ReaderStage, ...]:
    """The reader's part of a pretraining."""
    p = config.pretrain
    stages = (
        (p.one_fact_steps, (1, 1), (48,)),
        (p.three_fact_steps, (1, 3), (64, 96)),
        (p.whole_steps, (3, 5), (96, 128)),
    )
    return tuple(ReaderStage(steps, p.reader_batch_size, facts, widths) for steps, facts, widths in stages)


def make_tokenizer(vocab_size: int, seed: int, made_up: int = 20_000) -> PreTrainedTokenizerFast:
    """The tokenizer, from the training countries' passages of both editions and `made_up` counterfactual ones.

    Invented names keep it from spending its pieces on the names of the training countries.
    """
    texts = [
        f"{p.passage.title} {p.passage.text}"
        for edition in EDITIONS
        for p in world_passages(edition)
        if split_of(p.country) == "train"
    ]
    source, rng = Counterfactuals(EDITION), np.random.default_rng(seed)
    examples = (source.sample(rng) for _ in range(made_up))
    texts += [f"{e.question} {e.title} {e.text}" for e in examples]
    return train_tokenizer(texts, vocab_size)


def reader_batches(
    tokenizers: Tokenizers, seed: int, stage: ReaderStage
) -> Iterator[tuple[int, Int[np.ndarray, "B Q"], Int[np.ndarray, "B P"], Int[np.ndarray, "B T"]]]:
    """Counterfactual questions, passages and answers for one stage, each batch with its source width."""
    rng, source = np.random.default_rng(seed), Counterfactuals(EDITION)
    pad, end_pad = tokenizers.source.pad_token_id, tokenizers.target.pad_token_id
    pools: dict[int, list[Any]] = {width: [] for width in stage.widths}
    while True:
        examples = [source.sample(rng, stage.facts) for _ in range(stage.batch_size)]
        question = widen(tokenizers.source_questions([e.question for e in examples]), stage.widths[-1], pad)
        passage = tokenizers.source_passages([Passage("", e.title, e.text) for e in examples])
        passage = widen(passage, tokenizers.max_passage, pad)
        target = widen(tokenizers.targets([e.answer for e in examples]), tokenizers.max_target, end_pad)
        asked, read = ((rows != pad).sum(-1) for rows in (question, passage))
        said = (target != end_pad).sum(-1)
        for row in range(len(examples)):
            width = next((w for w in stage.widths if asked[row] + read[row] + SPECIALS <= w), None)
            if width is not None and asked[row] <= QUESTION_WIDTH and said[row] <= TARGET_WIDTH:
                pools[width].append((question[row], passage[row], target[row]))
        for width, pool in pools.items():
            if len(pool) >= stage.batch_size:
                rows, pools[width] = pool[: stage.batch_size], pool[stage.batch_size :]
                columns = (np.stack(column) for column in zip(*rows, strict=True))
                shapes = ((QUESTION_WIDTH, pad), (width - SPECIALS, pad), (TARGET_WIDTH, end_pad))
                asks, reads, says = (widen(c, *shape) for c, shape in zip(columns, shapes, strict=True))
                yield width, asks, reads, says


def widen(rows: Int[np.ndarray, "N L"], width: int, pad_id: int) -> Int[np.ndarray, "N M"]:
    """Rows cut or padded to `width` columns."""
    rows = rows[:, :width]
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=pad_id)


def train_reader(
    config: BartConfig,
    tokenizers: Tokenizers,
    *,
    stages: tuple[ReaderStage, ...],
    learning_rate: float,
    seed: int,
    log: Log,
    save: Callable[[int, Any], None] = lambda stage, params: None,
) -> Any:
    """The generator through all stages, one optimiser and one learning-rate schedule over them together.

    Args:
      config: the generator's sizes.
      tokenizers: its tokenizer with limits.
      stages: the curriculum.
      learning_rate: its peak.
      seed: of weights and examples.
      log: takes one record at a time.
      save: called with the stage's number and the parameters, every 500 steps and at its end.
    """
    config = dataclasses.replace(config, dropout=0.0)
    ids, real = jnp.ones((1, 8), jnp.int32), jnp.ones((1, 8), bool)
    params = Bart(config).init(jax.random.key(seed), ids, real, ids)["params"]
    optimizer = reader_optimizer(stages, learning_rate)
    step = make_reader_step(config, optimizer)
    state, begin = optimizer.init(params), time.monotonic()
    for index, stage in enumerate(stages):
        kept = []
        batches = reader_batches(tokenizers, seed + index, stage)
        for number, (width, question, passage, target) in zip(range(1, stage.steps + 1), batches, strict=False):
            params, state, report = step(params, state, question, passage, target, width)
            kept.append(report)
            if number % 100 == 0 or number == stage.steps:
                seconds = round(time.monotonic() - begin)
                log({"part": "reader", "stage": index, "step": number, **means(kept), "seconds": seconds})
                kept = []
            if number % 500 == 0 or number == stage.steps:
                figures = reader_accuracy(params, config, tokenizers)
                log({"part": "reader", "stage": index, "step": number, "split": "validation", **figures})
                save(index, params)
    return params


def reader_optimizer(stages: tuple[ReaderStage, ...], learning_rate: float) -> optax.GradientTransformation:
    """The reader's, with one schedule of its learning rate over all stages. Arguments as for `train_reader`."""
    total = sum(stage.steps for stage in stages)
    rules = make_rules(learning_rate=learning_rate, steps=total, schedule="cosine", warmup_steps=min(200, total))
    return make_optimizer(rules, clip_norm=1.0, weight_decay=0.01, b2=0.98)


def make_reader_step(config: BartConfig, optimizer: optax.GradientTransformation) -> Callable[..., Any]:
    """A jitted `step(params, state, question, passage, target, width) -> (params, state, report)`.

    The buffers of the first two are donated.
    """

    @functools.partial(jax.jit, static_argnames="width", donate_argnums=(0, 1))
    def step(params: Any, state: Any, question: Array, passage: Array, target: Array, width: int) -> Any:
        loss = functools.partial(reader_loss, config=config, width=width)
        gradient, report = jax.grad(loss, has_aux=True)(params, question=question, passage=passage, target=target)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, report

    return step


def reader_accuracy(
    params: Any, config: BartConfig, tokenizers: Tokenizers, split: str = "validation"
) -> dict[str, float]:
    """Share of a split's real questions that greedy decoding answers to the letter, given their gold passage."""
    texts = {p.passage.id: p.passage for p in world_passages(EDITION)}
    items = world_questions(EDITION, split)
    question = trim(tokenizers.source_questions([i.question.text for i in items]), tokenizers.source.pad_token_id, 8)
    passage = tokenizers.source_passages([texts[i.question.positive_ids[0]] for i in items])
    target = trim(tokenizers.targets([i.question.answers[0] for i in items]), tokenizers.target.pad_token_id, 8)
    width = question.shape[1] + passage.shape[1] + SPECIALS
    exact = jax.jit(functools.partial(reader_exact, config=config, width=width))
    right = np.concatenate(
        [
            exact(params, question=question[i : i + 128], passage=passage[i : i + 128], target=target[i : i + 128])
            for i in range(0, len(items), 128)
        ]
    )
    by_relation: dict[str, list[bool]] = {}
    for item, ok in zip(items, right, strict=True):
        by_relation.setdefault(item.relation, []).append(bool(ok))
    return {"exact": float(right.mean())} | {f"exact/{r}": float(np.mean(v)) for r, v in sorted(by_relation.items())}


def means(records: list[dict[str, Array]]) -> dict[str, float]:
    """The mean of every figure over some steps."""
    return {name: round(float(np.mean([r[name] for r in records])), 4) for name in records[0]}
