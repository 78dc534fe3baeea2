"""DEVICE. Contrastive training of both towers with in-batch negatives (Karpukhin et al. 2020, section 3.2)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.models.bert import Bert, BertConfig


def in_batch_loss(
    questions: Float[Array, "B D"], passages: Float[Array, "N D"], positive: Int[Array, "B"]
) -> tuple[Float[Array, ""], Bool[Array, "B"]]:
    """Negative log-likelihood of each question's own passage among all passages of the batch.

    Args:
      questions: question vectors.
      passages: passage vectors, positives and hard negatives together.
      positive: each question's row in `passages`.

    Returns:
      The mean loss, and for every question whether its own passage scored highest.
    """
    scores = jnp.einsum("bd,nd->bn", questions, passages)
    logp = jax.nn.log_softmax(scores, axis=-1)
    gold = jnp.take_along_axis(logp, positive[:, None], axis=-1)[:, 0]
    return -gold.mean(), scores.argmax(-1) == positive


def tower_loss(
    params: Any,
    config: BertConfig,
    question_tokens: Int[Array, "B Q"],
    passage_tokens: Int[Array, "N P"],
    positive: Int[Array, "B"],
    dropout_key: Array | None = None,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """`in_batch_loss` from token ids. `params` holds 'question_encoder' and 'passage_encoder'."""
    model = Bert(config)
    keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)

    def encode(tower: str, tokens: Array, key: Array | None) -> Array:
        rngs = None if key is None else {"dropout": key}
        return model.apply({"params": params[tower]}, tokens, deterministic=key is None, rngs=rngs)

    questions = encode("question_encoder", question_tokens, keys[0])
    passages = encode("passage_encoder", passage_tokens, keys[1])
    loss, right = in_batch_loss(questions, passages, positive)
    return loss, {"loss": loss, "accuracy": right.mean()}
