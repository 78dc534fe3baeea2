"""DEVICE. The losses of Hugging Face's RAG, term by term, for comparing with it and for going on from its training.

They depart from the paper, and from `rag_jax.rag.loss`, in ways that this module keeps on purpose:

- The labels are the decoder's inputs; the targets are the labels shifted left, with padding at the end.
- RAG-Sequence adds log p(z|x) at target position 1 only: an answer of one target loses it, and so does one whose second
  target is padding.
- Label smoothing of RAG-Sequence sums log p over the vocabulary after the prior was added to every entry: it holds
  V log p(z|x), which pulls retrieval towards one passage whatever the answer is. RAG-Token smooths the mixture.
- `exclude_bos_score` leaves out the first target, if it is <s> in every row of the batch; of the smoothing term never.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.models.bart import Bart, BartConfig
from rag_jax.rag.score import gold_logprobs


def shift_left(labels: Int[Array, "B T"], pad_id: int) -> Int[Array, "B T"]:
    """The targets of labels that are the decoder's inputs."""
    return jnp.concatenate([labels[:, 1:], jnp.full_like(labels[:, :1], pad_id)], axis=1)


def _blend(
    nll: Float[Array, "B"], smooth: Float[Array, "B"], label_smoothing: float, vocab_size: int, reduce: bool
) -> Float[Array, "..."]:
    loss = (1.0 - label_smoothing) * nll + label_smoothing / vocab_size * smooth
    return loss.sum() if reduce else loss


def sequence_loss(
    logits: Float[Array, "B K T V"],
    scores: Float[Array, "B K"],
    labels: Int[Array, "B T"],
    *,
    pad_id: int,
    bos_id: int | None = None,
    label_smoothing: float = 0.0,
    exclude_bos_score: bool = False,
    reduce: bool = False,
) -> Float[Array, "..."]:
    """RagSequenceForGeneration's loss.

    Args:
      logits: of the decoder that has read `labels`; real vocabulary entries only.
      scores: q.d of every passage.
      labels: the decoder's inputs.
      pad_id: padding in `labels`.
      bos_id: <s>, for `exclude_bos_score`.
      label_smoothing: eps.
      exclude_bos_score: see the module.
      reduce: the sum over the batch instead of one loss a question.
    """
    targets = shift_left(labels, pad_id)
    real = (targets != pad_id)[:, None, :]
    logits = logits.astype(jnp.float32)
    vocab_size = logits.shape[-1]
    prior = jax.nn.log_softmax(scores.astype(jnp.float32), axis=-1)[:, :, None]
    prior = jnp.where(jnp.arange(labels.shape[1]) == 1, prior, 0.0)
    gold = gold_logprobs(logits, jnp.broadcast_to(targets[:, None, :], logits.shape[:-1])) + prior
    total = logits.sum(-1) - vocab_size * jax.nn.logsumexp(logits, axis=-1) + vocab_size * prior
    counted = real
    if exclude_bos_score and bos_id is not None:
        skip = (jnp.arange(labels.shape[1]) == 0) & (targets[:, 0] == bos_id).all()
        counted = real & ~skip
    nll = -jax.nn.logsumexp(jnp.where(counted, gold, 0.0).sum(-1), axis=-1)
    smooth = -jax.nn.logsumexp(jnp.where(real, total, 0.0).sum(-1), axis=-1)
    return _blend(nll, smooth, label_smoothing, vocab_size, reduce)


def token_loss(
    logits: Float[Array, "B K T V"],
    scores: Float[Array, "B K"],
    labels: Int[Array, "B T"],
    *,
    pad_id: int,
    label_smoothing: float = 0.0,
    reduce: bool = False,
) -> Float[Array, "..."]:
    """RagTokenForGeneration's loss: no special first target. Arguments as `sequence_loss`."""
    targets = shift_left(labels, pad_id)
    real = targets != pad_id
    prior = jax.nn.log_softmax(scores.astype(jnp.float32), axis=-1)[:, :, None]
    if label_smoothing == 0.0:  # the mixture over the whole vocabulary is needed for smoothing only
        gold = gold_logprobs(logits.astype(jnp.float32), jnp.broadcast_to(targets[:, None, :], logits.shape[:-1]))
        nll = -jnp.where(real, jax.nn.logsumexp(gold + prior, axis=1), 0.0).sum(-1)
        return nll.sum() if reduce else nll
    mixture = jax.nn.logsumexp(jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1) + prior[..., None], axis=1)
    gold = jnp.where(jnp.arange(logits.shape[-1]) == targets[..., None], mixture, 0.0).sum(-1)
    nll, smooth = (-jnp.where(real, value, 0.0).sum(-1) for value in (gold, mixture.sum(-1)))
    return _blend(nll, smooth, label_smoothing, logits.shape[-1], reduce)


def rag_loss(
    params: Any,
    config: BartConfig,
    source: Int[Array, "B K S"],
    source_mask: Bool[Array, "B K S"],
    scores: Float[Array, "B K"],
    labels: Int[Array, "B T"],
    *,
    variant: str,
    label_smoothing: float = 0.0,
    exclude_bos_score: bool = False,
    reduce: bool = False,
    dropout_key: Array | None = None,
) -> tuple[Float[Array, "..."], Float[Array, "B K T V"]]:
    """The loss of a generator as Hugging Face's RAG computes it, and the logits.

    Args:
      params: the generator's parameters.
      config: its sizes.
      source: the joined texts, see `rag_jax.rag.source`.
      source_mask: true on real tokens.
      scores: q.d; gradients reach the question encoder through them.
      labels: the decoder's inputs, padded with `config.pad_id`.
      variant: 'sequence' or 'token'.
      label_smoothing, exclude_bos_score, reduce: see `sequence_loss`.
      dropout_key: turns dropout on.

    Returns:
      One loss a question, or their sum; and the float32 logits of the real vocabulary.

    Raises:
      ValueError: an unknown variant.
    """
    if variant not in ("sequence", "token"):
        raise ValueError(f"variant={variant!r}: choose sequence or token")
    batch, passages, width = source.shape
    logits = Bart(config).apply(
        {"params": params},
        source.reshape(-1, width),
        source_mask.reshape(-1, width),
        jnp.repeat(labels, passages, axis=0),
        dropout_key is None,
        rngs=None if dropout_key is None else {"dropout": dropout_key},
    )
    logits = logits[..., : config.vocab_size].reshape(batch, passages, labels.shape[1], config.vocab_size)
    same: dict[str, Any] = {"pad_id": config.pad_id, "label_smoothing": label_smoothing, "reduce": reduce}
    if variant == "token":
        return token_loss(logits, scores, labels, **same), logits
    bos: dict[str, Any] = {"bos_id": config.bos_id, "exclude_bos_score": exclude_bos_score}
    return sequence_loss(logits, scores, labels, **same, **bos), logits
