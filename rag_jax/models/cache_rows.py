"""DEVICE. Some rows of arrays whose first axis is cut over devices: each device takes and writes rows of its own part.

Axis names: R rows in Parts of equal size, S of them chosen, n in each part; L slots of a cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from rag_jax.models.softmax import Partial, combine, empty_partial, partial_attention

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


def partial_attention_to_blocks(query: Float[Array, "S G N w"], blocks: Blocks, repeat: int) -> Partial:
    """Attention over the blocks, one after the other.

    Args:
      query: scaled; N = `repeat` x T.
      blocks: what is looked at.
      repeat: how often the mask's queries are repeated.
    """

    def look(block: Array, so_far: Partial) -> Partial:
        cut = lambda x, axis: jax.lax.dynamic_slice_in_dim(x, block * BLOCK, BLOCK, axis)  # noqa: E731
        key, value = (take_rows(cut(cache, 2), blocks.rows) for cache in (blocks.key, blocks.value))
        mask = jnp.tile(cut(blocks.mask, 3), (1, 1, repeat, 1))
        return combine(so_far, partial_attention(query, key, value, mask))

    return jax.lax.fori_loop(0, blocks.written, look, empty_partial(query))


def take_rows(x: Shaped[Array, "R *axes"], rows: Int[Array, "Parts n"]) -> Shaped[Array, "S *axes"]:
    """The chosen rows, part by part; `rows` are counted in each part."""
    apart = x.reshape(len(rows), -1, *x.shape[1:])
    return jax.vmap(lambda part, at: part[at])(apart, rows).reshape(-1, *x.shape[1:])


def write_rows(
    x: Shaped[Array, "R *axes"], new: Shaped[Array, "S *axes"], rows: Int[Array, "Parts n"]
) -> Shaped[Array, "R *axes"]:
    """The array with the chosen rows, all different, replaced."""
    apart = x.reshape(len(rows), -1, *x.shape[1:])
    cut = new.reshape(*rows.shape, *x.shape[1:]).astype(x.dtype)
    write = lambda part, values, at: part.at[at].set(values, unique_indices=True)  # noqa: E731
    return jax.vmap(write)(apart, cut, rows).reshape(x.shape)


def write_slots(
    cache: Shaped[Array, "R G L w"], new: Shaped[Array, "S G W w"], rows: Int[Array, "Parts n"], start: Int[Array, "S"]
) -> Shaped[Array, "R G L w"]:
    """The cache with W slots of each chosen row replaced, from `start` on: windows, written in place inside a loop."""
    apart = cache.reshape(len(rows), -1, *cache.shape[1:])
    cut = new.reshape(*rows.shape, *new.shape[1:]).astype(cache.dtype)
    where = jnp.stack([rows, start.reshape(rows.shape)], axis=-1)
    axes = jax.lax.ScatterDimensionNumbers((1, 2, 3), (0,), (0, 2))
    write = lambda part, at, values: jax.lax.scatter(part, at, values, axes, unique_indices=True)  # noqa: E731
    return jax.vmap(write)(apart, where, cut).reshape(cache.shape)
