"""DEVICE. Attention by online softmax (Milakov & Gimelshein 2018): keys in several places count as if in one row.

Each piece is weighted against its own greatest score, as in FlashAttention; only what is made of all pieces is divided
by the sum of the weights. So no piece waits for another, and a product's result is divided, not its larger operand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Partial(NamedTuple):
    """Attention over some of the keys, not yet divided.

    Attributes:
      peak: float32 [R,G,T,1], the greatest score of each query; of one that may look nowhere the least float.
      total: float32 [R,G,T,1], the sum of the weights exp(score - peak).
      mixed: [R,G,T,w], the sum of the values with these weights.
    """

    peak: Any
    total: Any
    mixed: Any


def partial_attention(
    query: Float[Array, "R G T w"],
    key: Float[Array, "R G S w"] | Float[Array, "R G w S"],
    value: Float[Array, "R G S w"],
    mask: Bool[Array, "#R #G #T S"],
    drop: Callable[[Array], Array] = lambda weights: weights,
    key_axes: str = "rgsw",
) -> Partial:
    """Attention over one piece.

    Args:
      query: scaled, of the compute dtype as the others.
      key, value: what is looked at.
      mask: true where a query may look.
      drop: dropout on the weights, [R,G,T,S].
      key_axes: 'rgsw' or 'rgws', how the keys lie.
    """
    score, least = jnp.einsum(f"rgtw,{key_axes}->rgts", query, key).astype(jnp.float32), jnp.finfo(jnp.float32).min
    # Beside the least float any score vanishes. A CPU's compiler takes a sum into the pass of the product, which a
    # selection takes apart; with as many queries as keys that gains nothing.
    few = query.shape[2] < value.shape[2]
    score = score + jnp.where(mask, 0, least) if few else jnp.where(mask, score, least)
    peak = jax.lax.stop_gradient(score.max(-1, keepdims=True))  # the quotient does not depend on it
    weights = jnp.exp(score - peak)
    mixed = jnp.einsum("rgts,rgsw->rgtw", drop(weights.astype(value.dtype)), value)
    return Partial(peak, weights.sum(-1, keepdims=True), mixed)


def empty_partial(query: Float[Array, "R G T w"]) -> Partial:
    """Attention over no keys at all: `combine` with it changes nothing."""
    zero = jnp.zeros((*query.shape[:3], 1), jnp.float32)
    return Partial(zero + jnp.finfo(jnp.float32).min, zero, jnp.zeros(query.shape, jnp.float32))


def combine(one: Partial, other: Partial) -> Partial:
    """Attention over the keys of both."""
    peak = jnp.maximum(one.peak, other.peak)
    mine, theirs = jnp.exp(one.peak - peak), jnp.exp(other.peak - peak)
    return Partial(peak, mine * one.total + theirs * other.total, mine * one.mixed + theirs * other.mixed)


def normalise(partials: list[Partial]) -> Float[Array, "R G T w"]:
    """The mean of all values, weighted by the softmax of all scores; uniform where a query may look nowhere."""
    whole = functools.reduce(combine, partials)
    return whole.mixed / whole.total
