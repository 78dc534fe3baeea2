"""DEVICE. Scores of passages and of answers: what the marginal is made of.

`passage_scores` is the retriever's q.d of the paper's section 2.2; `answer_token_logprobs` is the generator's
log p(y_t | x, z, y_<t) of section 2.3 for every passage at once: passages are rows of one batch.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.models.bart import Bart, BartConfig, shift_right


def passage_scores(query: Float[Array, "B D"], vectors: Float[Array, "B K D"]) -> Float[Array, "B K"]:
    """q(x).d(z) in float32. The passage vectors are constants: gradients go to the question encoder alone."""
    vectors = jax.lax.stop_gradient(vectors).astype(jnp.float32)
    return jnp.einsum("bd,bkd->bk", query.astype(jnp.float32), vectors, precision=jax.lax.Precision.HIGHEST)


def gold_logprobs(
    logits: Float[Array, "*rows V"], targets: Int[Array, "*rows"], label_smoothing: float = 0.0, vocab_size: int = 0
) -> Float[Array, "*rows"]:
    """log p of the target token, from logits, without ever forming the log-softmax over V.

    Args:
      logits: float32, padded vocabulary entries at the float minimum.
      targets: token ids.
      label_smoothing: eps in (1-eps) log p(target) + eps * mean over the vocabulary of log p. It stays inside one
        document: the prior is untouched.
      vocab_size: number of real entries, needed when smoothing.
    """
    total = jax.nn.logsumexp(logits, axis=-1)
    ids = jnp.arange(logits.shape[-1])
    # A comparison and a sum fuse into the reduction; indexing would scatter in the backward pass.
    gold = jnp.where(ids == targets[..., None], logits, 0.0).sum(-1) - total
    if label_smoothing == 0.0:
        return gold
    mean = jnp.where(ids < vocab_size, logits, 0.0).sum(-1) / vocab_size - total
    return (1.0 - label_smoothing) * gold + label_smoothing * mean


def answer_token_logprobs(
    params: Any,
    config: BartConfig,
    source: Int[Array, "B K S"],
    source_mask: Bool[Array, "B K S"],
    targets: Int[Array, "B T"],
    *,
    slots: Int[Array, "G P W"] | None = None,
    label_smoothing: float = 0.0,
    dropout_key: Array | None = None,
) -> Float[Array, "B K T"]:
    """log p(y_t | x, z, y_<t) of every answer token under every passage.

    Args:
      params: the generator's parameters.
      config: its sizes.
      source: joined question and passage, see `rag_jax.rag.source`.
      source_mask: true on real tokens.
      targets: the answer's ids, its end token included, padded at the end.
      slots: how sources are packed, see `rag_jax.models.packing`; None: a row each.
      label_smoothing: see `gold_logprobs`.
      dropout_key: turns dropout on.
    """
    model = Bart(config)
    batch, passages, width = source.shape
    rows = batch * passages
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    inputs = jnp.repeat(shift_right(targets, config.decoder_start_id), passages, axis=0)
    logits = model.apply(
        {"params": params},
        source.reshape(rows, width),
        source_mask.reshape(rows, width),
        inputs,
        dropout_key is None,
        slots,
        rngs=rngs,
    )
    gold = gold_logprobs(logits, jnp.repeat(targets, passages, axis=0), label_smoothing, config.vocab_size)
    return gold.reshape(batch, passages, -1)
