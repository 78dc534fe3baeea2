"""HOST. The batches of train steps and of decoding at their longest, as shapes that say where they lie."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from rag_jax.config import has_towers
from rag_jax.fit.plan import Plan
from rag_jax.rag.shapes import widest_source
from rag_jax.rag.source import SPECIALS
from rag_jax.sharding import DATA, Layout
from rag_jax.training.contrastive import TowerBatch
from rag_jax.training.pretrain import QUESTION_WIDTH, TARGET_WIDTH, reader_stages
from rag_jax.types import Batch


def source_width(plan: Plan) -> int:
    """S: room for the longest question and passage, at most `config.data.max_source_tokens`; towers read them apart."""
    d = plan.config.data
    if plan.trains == "towers":
        return max(d.max_question_tokens, d.max_passage_tokens)
    if plan.trains == "reader":
        return max(width for stage in reader_stages(plan.config) for width in stage.widths)
    if d.hf_compat_input:
        return d.max_source_tokens
    return widest_source(d.max_question_tokens, passage_columns(plan), d.max_source_tokens)


def passage_columns(plan: Plan) -> int:
    """P; in closed book there is one empty passage of padding."""
    d = plan.config.data
    if d.hf_compat_input:
        return d.max_source_tokens
    return 1 if plan.config.retriever == "none" else d.max_passage_tokens


def passages_of_a_question(plan: Plan) -> int:
    """K of a RAG's step, the null document included; M of the towers', the question's own and its hard negatives."""
    if plan.trains == "towers":
        return 1 + plan.config.dpr.hard_negatives
    return plan.places(plan.config.k) if plan.trains == "rag" else 1


def batch_shapes(plan: Plan, layout: Layout, questions: int, k: int, training: bool) -> Batch:
    """A batch as a RAG's step or its decoder is given it; sources are not packed."""
    c, d = plan.config, plan.config.data
    like = _Rows(layout, questions)
    asked = like(d.max_question_tokens), like(0 if d.hf_compat_input else d.max_question_tokens)
    batch = Batch(*asked, null_document=c.null_document != "none")
    if not c.index.in_step:
        places, by_vectors = plan.places(k), has_towers(c)
        batch = dataclasses.replace(
            batch,
            passages=like(places, passage_columns(plan)),
            vectors=like(places, plan.arch.passage_encoder.width if by_vectors else 0, dtype=jnp.float32),
            valid=like(places, dtype=bool),
            scores=None if by_vectors else like(places, dtype=jnp.float32),
        )
        if training and c.index.refresh_every:
            batch = dataclasses.replace(batch, encoder_passages=like(places, d.max_passage_tokens))
    if training:
        batch = dataclasses.replace(batch, target=like(d.max_target_tokens), weight=like(dtype=jnp.float32))
    return batch


def tower_batch(plan: Plan) -> TowerBatch:
    """A batch of the towers' step."""
    d, each, like = plan.config.data, passages_of_a_question(plan), _Rows(plan.layout, plan.questions)
    return TowerBatch(like(d.max_question_tokens), like(each, d.max_passage_tokens), like(each, dtype=bool))


def reader_batch(plan: Plan) -> dict[str, Any]:
    """The question, the passage and the target of the reader's step in its last stage."""
    like = _Rows(plan.layout, plan.questions)
    passage = source_width(plan) - SPECIALS
    return {"question": like(QUESTION_WIDTH), "passage": like(passage), "target": like(TARGET_WIDTH)}


class _Rows:
    """Shapes of so many rows, cut over a layout's mesh."""

    def __init__(self, layout: Layout, count: int):
        self._sharding, self._count = layout.sharding(PartitionSpec(DATA)), count

    def __call__(self, *shape: int, dtype: Any = jnp.int32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self._count, *shape), dtype, sharding=self._sharding)
