"""HOST. Meshes of devices, and arrays that lie over them; on one host or on several, one process each.

A mesh has the axis `data`, which cuts batches by rows, and on demand the axis `model`, which cuts parameters of single
layers. Every process holds some rows of a batch: `my_rows` says which, `global_rows` makes one array of all processes'
rows, and `local_rows` and `to_host` lead back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Shaped

DATA, MODEL = "data", "model"


@overload
def make_mesh(model: int = ..., devices: Sequence[jax.Device] | None = ...) -> Mesh: ...


@overload
def make_mesh(model: int = ..., devices: Sequence[jax.Device] | int | None = ...) -> Mesh | AbstractMesh: ...


def make_mesh(model: int = 1, devices: Sequence[jax.Device] | int | None = None) -> Mesh | AbstractMesh:
    """The mesh ('data',) over all devices of all processes, or ('data', 'model').

    Args:
      model: size of the axis `model`; 1 leaves it out.
      devices: those to use; None = all. A number: so many that are nowhere, an abstract mesh to lower programs for.

    Raises:
      ValueError: `model` does not divide the devices of every process, so that one process could not hold whole rows.
    """
    if isinstance(devices, int):
        each = count = devices
    else:
        devices = jax.devices() if devices is None else list(devices)
        count = len(devices)
        each = count // len({device.process_index for device in devices})
    if each % model:
        raise ValueError(f"config.sharding.model: {model} does not divide the {each} devices of a host")
    shape = {DATA: count // model} | ({MODEL: model} if model > 1 else {})
    # Explicit axes, the default, would want a sharding named at every lookup in an embedding.
    types = (AxisType.Auto,) * len(shape)
    if isinstance(devices, int):
        return AbstractMesh(tuple(shape.values()), tuple(shape), types)
    return jax.make_mesh(tuple(shape.values()), tuple(shape), axis_types=types, devices=devices)


def whole(mesh: Mesh | AbstractMesh) -> NamedSharding:
    """A copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def by_rows(mesh: Mesh | AbstractMesh) -> NamedSharding:
    """The first axis cut over `data`."""
    return NamedSharding(mesh, PartitionSpec(DATA))


def my_rows(count: int, mesh: Mesh) -> Int[np.ndarray, "N"]:
    """The rows of an array of `count` rows that lie on this process's devices, ascending.

    Raises:
      ValueError: `count` is no multiple of the axis `data`.
    """
    if count % mesh.shape[DATA]:
        raise ValueError(f"{count} rows cannot be cut evenly over {mesh.shape[DATA]} devices")
    slices = {rows.indices(count)[:2] for rows in rows_of_devices(by_rows(mesh), count).values()}
    return np.concatenate([np.arange(*bounds) for bounds in sorted(slices)])


def rows_of_devices(sharding: NamedSharding, count: int) -> dict[jax.Device, slice]:
    """Which of `count` rows lie on each of this process's devices."""
    places = sharding.addressable_devices_indices_map((count,))
    return {device: index[0] for device, index in places.items() if index is not None}


def global_rows(tree: Any, mesh: Mesh) -> Any:
    """Arrays cut by rows over all processes, from each process's own rows.

    Args:
      tree: numpy arrays, of each the rows that `my_rows` says.
      mesh: where to.
    """
    rows = by_rows(mesh)
    return jax.tree.map(lambda array: jax.make_array_from_process_local_data(rows, np.asarray(array)), tree)


def local_rows(array: Shaped[Array, "B ..."]) -> Shaped[np.ndarray, "N ..."]:
    """The inverse of `global_rows` for one array: this process's rows, in the order of `my_rows`."""
    if array.is_fully_addressable:
        return np.asarray(array)
    parts = {shard.index[0].start or 0: shard.data for shard in array.addressable_shards}
    return np.concatenate([np.asarray(parts[start]) for start in sorted(parts)])


def place(tree: Any, shardings: Any) -> Any:
    """Host arrays that every process holds whole, as arrays over the devices; each device is sent its part alone.

    Arrays that lie there already stay.
    """

    def one(array: Any, sharding: NamedSharding) -> jax.Array:
        if isinstance(array, jax.Array) and array.sharding == sharding:
            return array
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])

    return jax.tree.map(one, tree, shardings)


def to_host(tree: Any, mesh: Mesh) -> Any:
    """Whole arrays as numpy, on every process. With several processes all must call it."""
    if jax.process_count() > 1:
        tree = jax.jit(lambda arrays: arrays, out_shardings=whole(mesh))(tree)
    return jax.device_get(tree)


def largest(value: int, mesh: Mesh) -> int:
    """The largest of the processes' values, on all of them; so it is a barrier too. All must call it."""
    if jax.process_count() == 1:
        return int(value)
    rows = np.full(len(my_rows(mesh.shape[DATA], mesh)), value, np.int32)
    return int(jax.jit(jnp.max, out_shardings=whole(mesh))(global_rows(rows, mesh)))
