"""HOST. Puts an index's vectors on the devices, for a jitted step or for searches from the host."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Int32, Shaped

from rag_jax.index import device
from rag_jax.index.device import DeviceIndex
from rag_jax.index.exact import QUERY_BUCKETS
from rag_jax.index.protocol import check_queries, check_vectors
from rag_jax.sharding.mesh import rows_of_devices

DTYPES = ("float32", "bfloat16", "int8")
SLICE_ROWS = 1 << 16  # rows that are sent to a device at a time
_WHOLE = PartitionSpec()


@dataclasses.dataclass(frozen=True)
class DeviceSettings:
    """How vectors lie on the device and how they are searched.

    Attributes:
      dtype: float32, bfloat16 (half the memory) or int8 with a scale for each row (a quarter).
      recall_target: None for exact search; between 0 and 1 for `jax.lax.approx_max_k`, which a TPU does in one pass.
      over_retrieve: how many times k candidates are scored again, see `DeviceIndex`; 1: none.
      remainders: int8 rows keep what rounding left of them as a second int8: as much memory as bfloat16.
    """

    dtype: str = "float32"
    recall_target: float | None = None
    over_retrieve: int = 1
    remainders: bool = False

    def check(self) -> None:
        """Refuses settings out of range.

        Raises:
          ValueError: one is, or two contradict each other.
        """
        if self.dtype not in DTYPES:
            raise ValueError(f"vectors on a device are {', '.join(DTYPES)}, not {self.dtype!r}")
        if self.recall_target is not None and not 0 < self.recall_target < 1:
            raise ValueError(f"recall_target must lie between 0 and 1, or be None (exact), not {self.recall_target}")
        if self.over_retrieve < 1:
            raise ValueError(f"over_retrieve must be 1 or more, not {self.over_retrieve}")
        if self.remainders and self.dtype != "int8":
            raise ValueError(f"remainders are those of int8; {self.dtype} leaves none")


def device_index(
    vectors: Float[np.ndarray, "N D"],
    settings: DeviceSettings | None = None,
    mesh: Mesh | None = None,
    axis: str = "data",
    checked: bool = False,
) -> DeviceIndex:
    """The vectors on the default device, or cut by rows over one axis of a mesh.

    Each device is sent its own rows in slices, converted on the way: the host never holds a second copy of them all.

    Args:
      vectors: [N, D]; may be memory-mapped.
      settings: float32 and exact when None.
      mesh: None for one device.
      axis: the axis of the mesh that cuts the rows; other axes hold copies.
      checked: the vectors are known to be finite; of 21 million another look costs minutes.

    Raises:
      ValueError: settings or vectors that cannot be used, or an axis that the mesh does not have.
    """
    settings = settings or DeviceSettings()
    settings.check()
    if not checked:
        check_vectors(vectors)
    count = len(vectors)
    values, scales, left = _on_devices(lambda first, rows: _block(vectors, first, rows, settings), count, mesh, axis)
    number = jnp.int32(count) if mesh is None else jax.device_put(np.int32(count), NamedSharding(mesh, _WHOLE))
    return DeviceIndex(
        values, scales, number, settings.recall_target, mesh, axis, left, over_retrieve=settings.over_retrieve
    )


def abstract_index(
    count: int,
    dim: int,
    settings: DeviceSettings | None = None,
    mesh: Mesh | AbstractMesh | None = None,
    axis: str = "data",
) -> DeviceIndex:
    """The shapes of `device_index` for N = `count` vectors, to compile for a mesh that may not be there.

    Raises:
      ValueError: settings that cannot be used.
    """
    settings = settings or DeviceSettings()
    settings.check()
    int8 = settings.dtype == "int8"
    return DeviceIndex(
        abstract_rows(count, (dim,), settings.dtype, mesh, axis),
        abstract_rows(count, (), "float32", mesh, axis) if int8 else None,
        jax.ShapeDtypeStruct((), jnp.int32, sharding=None if mesh is None else NamedSharding(mesh, _WHOLE)),
        settings.recall_target,
        mesh,
        axis,
        abstract_rows(count, (dim,), "int8", mesh, axis) if settings.remainders else None,
        over_retrieve=settings.over_retrieve,
    )


def abstract_rows(
    count: int, row: tuple[int, ...], dtype: str, mesh: Mesh | AbstractMesh | None = None, axis: str = "data"
) -> jax.ShapeDtypeStruct:
    """The shape of `device_rows` for a table [count, *row]."""
    if mesh is None:
        return jax.ShapeDtypeStruct((count, *row), dtype)
    total = -(-count // mesh.shape[axis]) * mesh.shape[axis]
    return jax.ShapeDtypeStruct((total, *row), dtype, sharding=NamedSharding(mesh, PartitionSpec(axis)))


def device_rows(
    table: Shaped[np.ndarray, "N P"], mesh: Mesh | None = None, axis: str = "data", columns: int | None = None
) -> jax.Array:
    """Any rows on the device, or cut over the mesh as `device_index` cuts vectors, filled up with zeros.

    Args:
      table: [N, P]; may be memory-mapped.
      mesh, axis: see `device_index`.
      columns: at least P, the result's; None: P.

    Raises:
      ValueError: the mesh has no such axis.
    """

    def block(first: int, rows: int) -> tuple[jax.Array]:
        parts = []
        for start in range(first, first + rows, SLICE_ROWS):
            part = np.zeros((min(SLICE_ROWS, first + rows - start), columns or table.shape[1]), table.dtype)
            real = table[start : start + len(part)]
            part[: len(real), : table.shape[1]] = real
            parts.append(jnp.asarray(part))
        return (jnp.concatenate(parts),)

    return _on_devices(block, len(table), mesh, axis)[0]


def _on_devices(block: Callable[[int, int], tuple[Any, ...]], count: int, mesh: Mesh | None, axis: str) -> list[Any]:
    """Arrays of `count` rows, filled up to a multiple of the shards; None where the blocks have none.

    Args:
      block: (first row, number of rows) -> those rows of each array, on the default device.
    """
    if mesh is None:
        return list(block(0, count))
    if axis not in mesh.shape:
        raise ValueError(f"the mesh has no axis {axis!r}; choose from {', '.join(mesh.axis_names)}")
    per_shard = -(-count // mesh.shape[axis])
    total = mesh.shape[axis] * per_shard
    cut = NamedSharding(mesh, PartitionSpec(axis))
    placed = []
    for place, rows in rows_of_devices(cut, total).items():
        with jax.default_device(place):
            placed.append(jax.device_put(block(rows.start or 0, per_shard), place))
    return [
        None if parts[0] is None else jax.make_array_from_single_device_arrays(
            (total, *parts[0].shape[1:]), cut, list(parts)
        )
        for parts in zip(*placed, strict=True)
    ]  # fmt: skip


def _block(vectors: Float[np.ndarray, "N D"], first: int, size: int, settings: DeviceSettings) -> tuple[Any, ...]:
    """`size` rows from `first` on the default device: values, scales, remainders; zeros from row N on."""
    parts: list[tuple[Any, Any, Any]] = []
    for start in range(first, first + size, SLICE_ROWS):
        rows = np.zeros((min(SLICE_ROWS, first + size - start), vectors.shape[1]), np.float32)
        real = vectors[start : start + len(rows)]
        rows[: len(real)] = real
        if settings.dtype == "int8":
            values, scales = device.quantize(jnp.asarray(rows))
            left = device.remainder(jnp.asarray(rows), values, scales) if settings.remainders else None
            parts.append((values, scales, left))
        else:
            parts.append((jnp.asarray(rows, settings.dtype), None, None))
    return tuple(None if kind[0] is None else jnp.concatenate(kind) for kind in zip(*parts, strict=True))


class DeviceSearcher:
    """The device index as a `Searcher` for the host. Inside a jitted step use its `index` with `device.search`.

    Args:
      vectors: [N, D].
      settings: see `DeviceSettings`.
      mesh, axis: see `device_index`.
    """

    def __init__(
        self,
        vectors: Float[np.ndarray, "N D"],
        settings: DeviceSettings | None = None,
        mesh: Mesh | None = None,
        axis: str = "data",
    ):
        self.settings = settings or DeviceSettings()
        self.settings.check()
        check_vectors(vectors)
        self.count, self.dim = vectors.shape
        self._place = functools.partial(device_index, vectors, self.settings, mesh, axis, checked=True)
        self._search = jax.jit(device.search, static_argnames="k")

    @functools.cached_property
    def index(self) -> DeviceIndex:
        """The vectors on the device; they go there when they are first needed."""
        return self._place()

    def release(self) -> None:
        """Gives the device's memory back, until the next search needs it."""
        self.__dict__.pop("index", None)

    def search(self, queries: Float[np.ndarray, "B D"], k: int) -> Int32[np.ndarray, "B k"]:
        """See `Searcher.search`. Batches are filled up to a few sizes, so that few programs are compiled."""
        queries = check_queries(queries, k, self.dim)
        found = [np.zeros((0, k), np.int32)]
        for start in range(0, len(queries), QUERY_BUCKETS[-1]):
            some = queries[start : start + QUERY_BUCKETS[-1]]
            size = next(size for size in QUERY_BUCKETS if size >= len(some))
            filled = np.zeros((size, self.dim), np.float32)
            filled[: len(some)] = some
            found.append(np.asarray(self._search(self.index, filled, k=k)[0])[: len(some)])
        return np.concatenate(found)
