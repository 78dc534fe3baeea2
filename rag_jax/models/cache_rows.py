"""DEVICE. Some rows of arrays whose first axis is cut over devices: each device takes and writes rows of its own part.

Axis names: R rows in Parts of equal size, S of them chosen, n in each part; L slots of a cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

BLOCK = 128  # slots


class Blocks(NamedTuple):
    """Chosen rows of a cache that has far more slots than are written: looked at by blocks, as far as they are.

    Attributes:
      key, value: [R,G,L,w]; L is a multiple of BLOCK.
      rows: int32 [Parts,n], which are looked at, counted in their part.
      mask: bool [S,1,T,L], true where a query may look.
      written: int32, blocks to look at.
    """

    key: Any
    value: Any
    rows: Any
    mask: Any
    written: Any


def attend_blocks(
    query: Float[Array, "S G N w"], blocks: Blocks, repeat: int
) -> tuple[Float[Array, "S G N w"], Float[Array, "S G N 1"]]:
    """The mean of the values, weighted by the softmax of the scores, and the scores' log-sum-exp in float32.

    Args:
      query: scaled; N = `repeat` x T.
      blocks: what is looked at. A query that may look nowhere has a log-sum-exp far below all others.
      repeat: how often the mask's queries are repeated.
    """
    least = jnp.finfo(jnp.float32).min

    def look(block: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        peak, total, mixed = state
        cut = lambda x, axis: jax.lax.dynamic_slice_in_dim(x, block * BLOCK, BLOCK, axis)  # noqa: E731
        key, value = (take_rows(cut(cache, 2), blocks.rows) for cache in (blocks.key, blocks.value))
        mask = jnp.tile(cut(blocks.mask, 3), (1, 1, repeat, 1))
        score = jnp.where(mask, jnp.einsum("rgtw,rgsw->rgts", query, key).astype(jnp.float32), least)
        higher = jnp.maximum(peak, score.max(-1, keepdims=True))
        weights, kept = jnp.exp(score - higher), jnp.exp(peak - higher)
        mix = jnp.einsum("rgts,rgsw->rgtw", weights.astype(value.dtype), value)
        return higher, total * kept + weights.sum(-1, keepdims=True), mixed * kept + mix

    nothing = jnp.zeros((*query.shape[:3], 1), jnp.float32)
    start = nothing + least, nothing, jnp.zeros(query.shape, jnp.float32)
    peak, total, mixed = jax.lax.fori_loop(0, blocks.written, look, start)
    some = jnp.maximum(total, 1e-30)
    return (mixed / some).astype(query.dtype), peak + jnp.log(some)


def take_rows(x: Shaped[Array, "R *axes"], rows: Int[Array, "Parts n"]) -> Shaped[Array, "S *axes"]:
    """The chosen rows, part by part; `rows` are counted in each part."""
    apart = x.reshape(len(rows), -1, *x.shape[1:])
    return jax.vmap(lambda part, at: part[at])(apart, rows).reshape(-1, *x.shape[1:])


def write_rows(x: Shaped[Array, "R *axes"], new: Shaped[Array, "S *axes"], rows: Int[Array, "Parts n"]) -> Array:
    """The array with the chosen rows, all different, replaced."""
    apart = x.reshape(len(rows), -1, *x.shape[1:])
    cut = new.reshape(*rows.shape, *x.shape[1:]).astype(x.dtype)
    write = lambda part, values, at: part.at[at].set(values, unique_indices=True)  # noqa: E731
    return jax.vmap(write)(apart, cut, rows).reshape(x.shape)


def write_slots(
    cache: Shaped[Array, "R G L w"], new: Shaped[Array, "S G W w"], rows: Int[Array, "Parts n"], start: Int[Array, "S"]
) -> Array:
    """The cache with W slots of each chosen row replaced, from `start` on: windows, written in place inside a loop."""
    apart = cache.reshape(len(rows), -1, *cache.shape[1:])
    cut = new.reshape(*rows.shape, *new.shape[1:]).astype(cache.dtype)
    where = jnp.stack([rows, start.reshape(rows.shape)], axis=-1)
    axes = jax.lax.ScatterDimensionNumbers((1, 2, 3), (0,), (0, 2))
    write = lambda part, at, values: jax.lax.scatter(part, at, values, axes, unique_indices=True)  # noqa: E731
    return jax.vmap(write)(apart, where, cut).reshape(cache.shape)
