"""DEVICE. Rows of an array that lies cut over a mesh, fetched by number inside a jitted step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, PartitionSpec
from jaxtyping import Array, Int32, Shaped


def fetch(
    table: Any,
    rows: Int32[Array, "B K"],
    mesh: Mesh | AbstractMesh | None = None,
    axis: str = "data",
    read: Callable[[Any], Shaped[Array, "B K *row"]] = lambda parts: parts,
) -> Shaped[Array, "B K *row"]:
    """Rows of an array, or of several that are cut alike, such as an int8 vector with its scale.

    Over a mesh every device looks all of them up in its own part, puts zeros in the place of the others', and one sum
    over the devices puts them together. Only what was asked for travels. Where the devices divide B, each keeps the
    sum for its own questions alone, which is how a step's batch lies.

    Args:
      table: [R, ...], or a pytree of such.
      rows: below R; negative where there is none.
      mesh: None for one device.
      axis: the mesh's axis that cuts R.
      read: from the looked-up rows [B, K, ...] to one array, on the device that holds them.

    Returns:
      The rows, zero where there is none.
    """
    if mesh is None:
        return _read_own(table, rows, 0, read)
    whole, cut = PartitionSpec(), PartitionSpec(axis)
    scatter = len(rows) % mesh.shape[axis] == 0

    def one_shard(part: Any, rows: Any) -> Any:
        first = jax.lax.axis_index(axis) * len(jax.tree.leaves(part)[0])
        own = _read_own(part, rows, first, read)
        if scatter:
            return jax.lax.psum_scatter(own, axis, scatter_dimension=0, tiled=True)
        return jax.lax.psum(own, axis)

    # Rows enter whole, and after a sum every device holds the same, which the check of varying axes cannot see.
    specs: dict[str, Any] = {"in_specs": (cut, whole), "out_specs": cut if scatter else whole}
    return jax.shard_map(one_shard, mesh=mesh, check_vma=False, **specs)(table, rows)


def _read_own(part: Any, rows: Any, first: Any, read: Callable[[Any], Any]) -> Any:
    """The rows that lie in this part, which begins at row `first`; zeros in the place of the others."""
    places = rows - first
    own = (rows >= 0) & (places >= 0) & (places < len(jax.tree.leaves(part)[0]))
    # The others look up row 0, and are put to zero.
    found = read(jax.tree.map(lambda array: array[jnp.where(own, places, 0)], part))
    return jnp.where(own.reshape(own.shape + (1,) * (found.ndim - 2)), found, jnp.zeros((), found.dtype))
