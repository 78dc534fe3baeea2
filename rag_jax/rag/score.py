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

LOGITS_BYTES = 1 << 30  # on one device; its gradient takes as much again


def passage_scores(
    query: Float[Array, "B D"], vectors: Float[Array, "B K D"], trained: bool = False
) -> Float[Array, "B K"]:
    """q(x).d(z) in float32.

    Args:
      query: q(x).
      vectors: d(z).
      trained: whether gradients go to the passage encoder too; else the vectors are constants.
    """
    vectors = vectors.astype(jnp.float32)
    vectors = vectors if trained else jax.lax.stop_gradient(vectors)
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
    together: bool = False,
    label_smoothing: float = 0.0,
    dropout_key: Array | None = None,
    devices: int = 1,
) -> Float[Array, "B #K T"]:
    """log p(y_t | x, z, y_<t) of every answer token under every passage.

    Args:
      params: the generator's parameters.
      config: its sizes.
      source: joined question and passage, see `rag_jax.rag.source`.
      source_mask: true on real tokens.
      targets: the answer's ids, its end token included, padded at the end.
      slots: how sources are packed, see `rag_jax.models.packing`; None: a row each.
      together: one decoder looks at all passages of its question (Fusion-in-Decoder), and K is 1 in the result. Then a
        passage that does not exist must have no real token.
      label_smoothing: see `gold_logprobs`.
      dropout_key: turns dropout on.
      devices: how many cut the batch by rows; with the shapes it decides in how many parts of the time axis the logits
        are made (`time_chunks`), each again in the backward pass.
    """
    model = Bart(config)
    batch, passages, width = source.shape
    decoders, length = 1 if together else passages, targets.shape[1]
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    inputs = jnp.repeat(shift_right(targets, config.decoder_start_id), decoders, axis=0)
    states = model.apply(
        {"params": params},
        source.reshape(-1, width),
        source_mask.reshape(-1, width),
        inputs,
        dropout_key is None,
        slots,
        rngs=rngs,
        method=model.states,
    )
    gold = jnp.repeat(targets, decoders, axis=0)
    settings: dict[str, Any] = {"label_smoothing": label_smoothing, "devices": devices}
    return state_logprobs(params, config, states, gold, **settings).reshape(batch, decoders, length)


def state_logprobs(
    params: Any,
    config: BartConfig,
    states: Float[Array, "R T D"],
    targets: Int[Array, "R T"],
    *,
    label_smoothing: float = 0.0,
    devices: int = 1,
) -> Float[Array, "R T"]:
    """log p of the target tokens from the decoder's states. Arguments as for `answer_token_logprobs`."""
    rows, length = targets.shape
    chunks = time_chunks(rows // devices, length, config.table_rows)
    model = Bart(config)

    def of(states: Float[Array, "R _ D"], targets: Int[Array, "R _"]) -> Float[Array, "R _"]:
        logits = model.apply({"params": params}, states, method=model.logits)
        return gold_logprobs(logits, targets, label_smoothing, config.vocab_size)

    if chunks == 1:
        return of(states, targets)
    parts = [jnp.moveaxis(x.reshape(rows, chunks, -1, *x.shape[2:]), 1, 0) for x in (states, targets)]
    logp = jax.lax.map(lambda part: jax.checkpoint(of)(*part), parts)
    return jnp.moveaxis(logp, 0, 1).reshape(rows, length)


def time_chunks(rows: int, length: int, vocabulary: int) -> int:
    """Into how many equal parts to cut the time axis, so that one part's float32 logits fit into LOGITS_BYTES.

    1 as long as all fit: a part's logits are made again in the backward pass, and each part adds to the whole gradient
    of the embedding table.

    Args:
      rows: (question, passage) pairs R of one device.
      length: T.
      vocabulary: V, padding included.
    """
    whole = rows * length * vocabulary * 4
    return next((n for n in range(1, length) if length % n == 0 and whole <= n * LOGITS_BYTES), length)
