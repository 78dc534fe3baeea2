"""DEVICE. Pretraining of the generator as a reader: copying the answer out of one given passage."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.models.bart import Bart, BartConfig, shift_right
from rag_jax.rag.score import answer_token_logprobs
from rag_jax.rag.source import join_source


def reader_loss(
    params: Any,
    config: BartConfig,
    question: Int[Array, "B Q"],
    passage: Int[Array, "B P"],
    target: Int[Array, "B T"],
    width: int,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Mean negative log-likelihood a target token, with one passage a question: RAG with K = 1.

    Returns:
      The loss, and {'loss'}.
    """
    source, source_mask = _source(config, question, passage, width)
    logp = answer_token_logprobs(params, config, source, source_mask, target)[:, 0]
    real = target != config.pad_id
    loss = -jnp.where(real, logp, 0.0).sum() / real.sum()
    return loss, {"loss": loss}


def reader_exact(
    params: Any,
    config: BartConfig,
    question: Int[Array, "B Q"],
    passage: Int[Array, "B P"],
    target: Int[Array, "B T"],
    width: int,
) -> Bool[Array, "B"]:
    """Whether greedy decoding would give the target: every token is the likeliest after those before it."""
    source, source_mask = _source(config, question, passage, width)
    inputs = shift_right(target, config.decoder_start_id)
    logits = Bart(config).apply({"params": params}, source[:, 0], source_mask[:, 0], inputs)
    return ((logits.argmax(-1) == target) | (target == config.pad_id)).all(-1)


def _source(
    config: BartConfig, question: Int[Array, "B Q"], passage: Int[Array, "B P"], width: int
) -> tuple[Int[Array, "B 1 S"], Bool[Array, "B 1 S"]]:
    ids = {"bos_id": config.bos_id, "eos_id": config.eos_id, "pad_id": config.pad_id}
    return join_source(question, passage[:, None], width, **ids)
