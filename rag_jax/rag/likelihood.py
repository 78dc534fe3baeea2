"""DEVICE. What an answer that is given has for a probability, under both of the paper's models (section 2.1)."""

from __future__ import annotations

import functools
from typing import Any

import flax.struct
import jax

from rag_jax.rag import marginal
from rag_jax.rag.loss import batch_prior, batch_source
from rag_jax.rag.model import Architecture
from rag_jax.rag.score import answer_token_logprobs
from rag_jax.sharding import ONE_DEVICE, Layout
from rag_jax.types import Batch


@flax.struct.dataclass
class Likelihood:
    """All float32.

    Attributes:
      prior: [B,K], log p(z|x); -inf where there is no passage.
      sequence: [B], RAG-Sequence's log p(y|x).
      token: [B], RAG-Token's.
      posterior: [B,K], p(z|x,y) of RAG-Sequence.
      token_posterior: [B,K,T], p(z|x,y_<=t) of RAG-Token; 0 behind the end token.
    """

    prior: Any
    sequence: Any
    token: Any
    posterior: Any
    token_posterior: Any


@functools.partial(jax.jit, static_argnames=("arch", "width", "layout"))
def answer_likelihood(
    params: Any, arch: Architecture, batch: Batch, *, width: int, layout: Layout = ONE_DEVICE
) -> Likelihood:
    """log p(y|x) of a batch's targets and where they come from; both models read the same log p(y_t|x,z,y_<t).

    Args:
      params: {'question_encoder', 'generator'}; the generator alone where the batch holds scores, and in closed book.
      arch: sizes.
      batch: with targets, int32 [B,T].
      width: source tokens S, static.
      layout: over which the batch is cut.
    """
    with layout.rows_stay():
        params = layout.ready(params)
        prior = batch_prior(params, arch, batch)
        source, mask = batch_source(arch, batch, width)
        generator = params["generator"], arch.generator
        given = (
            prior,
            answer_token_logprobs(*generator, source, mask, batch.target, slots=batch.slots, devices=layout.parts),
            batch.target != arch.generator.pad_id,
        )
        return Likelihood(
            prior,
            marginal.sequence_loglik(*given),
            marginal.token_loglik(*given),
            marginal.sequence_posterior(*given),
            marginal.token_posterior(*given),
        )
