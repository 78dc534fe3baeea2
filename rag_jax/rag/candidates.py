"""DEVICE. Candidates of thorough and fast decoding: what the searches that found them know of them.

Axis names: C candidates a question, K passages with N hypotheses each, C = K x N in that order; T tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.rag import marginal


class Candidates(NamedTuple):
    """The hypotheses of all passages' searches, each a candidate for the answer.

    Attributes:
      tokens: int32 [B,C,T], the end token included, padding after it.
      there: bool [B,C], false for what is no answer, of a passage that does not exist or of a beam without one, and for
        what repeats an earlier candidate.
      logp: float32 [B,K,C,T], log p of each token under each passage, as far as that passage's search has computed it;
        0 elsewhere.
      scored: bool [B,K,C,T], where it has. It has nothing to say, and so all, of padding and where p(z|x) = 0.
      slots: int32 [B,K,C,T], where that search keeps the keys and values of the token before; -1: nowhere.
    """

    tokens: Any
    there: Any
    logp: Any
    scored: Any
    slots: Any


def candidates(
    tokens: Int[Array, "B K N T"],
    under: Float[Array, "B K N T"],
    ancestors: Int[Array, "B K N T"],
    prior: Float[Array, "B K"],
    pad_id: int,
) -> Candidates:
    """The candidates of a batch.

    A search knows a token of another passage's candidate as well, where both agree up to and with that token.

    Args:
      tokens: every passage's hypotheses.
      under: log p of each token under the passage that it comes from.
      ancestors: see `rag_jax.rag.beam.Hypotheses`.
      prior: log p(z|x); -inf for a passage that does not exist.
      pad_id: padding of `tokens`.
    """
    batch, passages, count, length = tokens.shape
    flat = tokens.reshape(batch, passages * count, length)
    found = (prior[..., None] > -jnp.inf) & (tokens[..., 0] != pad_id)  # [B,K,N]
    real = (flat != pad_id) & found.reshape(batch, -1, 1)

    alike = flat[:, :, None, None] == tokens[:, None]  # [B,C,K,N,T]
    same = jnp.cumprod(alike, axis=-1).astype(bool) & found[:, None, ..., None]
    same_start = jnp.broadcast_to(found[:, None, ..., None], same[..., :1].shape)
    same_before = jnp.concatenate([same_start, same[..., :-1]], axis=-1)
    kept_at = jnp.arange(length) * count + ancestors
    logp, scored = _of_the_first(same, under)
    slots, kept = _of_the_first(same_before, kept_at)
    nothing = ~real[:, None] | (prior == -jnp.inf)[..., None, None]
    return Candidates(
        flat,
        _first_of_equals(flat, found.reshape(batch, -1)),
        jnp.where(nothing, 0.0, logp),
        scored | nothing,
        jnp.where(kept, slots, -1),
    )


def _of_the_first(
    holds: Bool[Array, "B C K N T"], values: Float[Array, "B K N T"] | Int[Array, "B K N T"]
) -> tuple[Array, Bool[Array, "B K C T"]]:
    """The value of the first hypothesis that holds, [B,K,C,T], and where there is one."""
    first = holds & (jnp.cumsum(holds, axis=3) == 1)
    picked = jnp.where(first, values[:, None], 0).sum(3)
    return picked.swapaxes(1, 2), holds.any(3).swapaxes(1, 2)


def lower_bounds(
    found: Candidates, prior: Float[Array, "B K"], logp: Float[Array, "B K C T"], scored: Bool[Array, "B K C T"]
) -> Float[Array, "B C"]:
    """log p(y|x) from the passages under which a candidate's every token is scored; -inf where `there` is false.

    Of what the searches know (`logp`, `scored` of `Candidates`) that is fast decoding's score: the passages whose beam
    holds the candidate.
    """
    under = jnp.where(scored.all(-1), logp.sum(-1), -jnp.inf)  # [B,K,C]
    return jnp.where(found.there, marginal.logsumexp((prior[..., None] + under).swapaxes(1, 2)), -jnp.inf)


def _first_of_equals(tokens: Int[Array, "B C T"], found: Bool[Array, "B C"]) -> Bool[Array, "B C"]:
    """Which candidates were found and repeat none that stands before them."""
    same = (tokens[:, :, None] == tokens[:, None]).all(-1) & found[:, None]
    earlier = jnp.tril(jnp.ones(same.shape[1:], bool), -1)
    return found & ~(same & earlier).any(-1)
