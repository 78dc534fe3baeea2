"""DEVICE. Some rows of arrays whose first axis is cut over devices: each device takes and writes rows of its own part.

Axis names: R rows in D parts of R/D, S of them chosen, S/D in each part.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped


def take_rows(x: Shaped[Array, "R *axes"], rows: Int[Array, "D n"]) -> Shaped[Array, "S *axes"]:
    """The chosen rows, part by part; `rows` are counted in each part."""
    apart = x.reshape(len(rows), -1, *x.shape[1:])
    return jax.vmap(lambda part, at: part[at])(apart, rows).reshape(-1, *x.shape[1:])


def write_rows(x: Shaped[Array, "R *axes"], new: Shaped[Array, "S *axes"], rows: Int[Array, "D n"]) -> Array:
    """The array with the chosen rows, all different, replaced."""
    apart = x.reshape(len(rows), -1, *x.shape[1:])
    cut = new.reshape(*rows.shape, *x.shape[1:]).astype(x.dtype)
    write = lambda part, values, at: part.at[at].set(values, unique_indices=True)  # noqa: E731
    return jax.vmap(write)(apart, cut, rows).reshape(x.shape)


def write_slots(
    cache: Shaped[Array, "R G L w"], new: Shaped[Array, "S G W w"], rows: Int[Array, "D n"], start: Int[Array, "S"]
) -> Array:
    """The cache with W slots of each chosen row replaced, from `start` on: windows, written in place inside a loop."""
    apart = cache.reshape(len(rows), -1, *cache.shape[1:])
    cut = new.reshape(*rows.shape, *new.shape[1:]).astype(cache.dtype)
    where = jnp.stack([rows, start.reshape(rows.shape)], axis=-1)
    axes = jax.lax.ScatterDimensionNumbers((1, 2, 3), (0,), (0, 2))
    write = lambda part, at, values: jax.lax.scatter(part, at, values, axes, unique_indices=True)  # noqa: E731
    return jax.vmap(write)(apart, where, cut).reshape(cache.shape)
