"""HOST. Puts an index's vectors on the devices, for a jitted step or for searches from the host."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Int32

from rag_jax.index import device
from rag_jax.index.device import DeviceIndex
from rag_jax.index.exact import QUERY_BUCKETS
from rag_jax.index.protocol import check_queries, check_vectors

DTYPES = ("float32", "bfloat16", "int8")
SLICE_ROWS = 1 << 16  # rows that are sent to a device at a time


@dataclasses.dataclass(frozen=True)
class DeviceSettings:
    """How vectors lie on the device and how they are searched.

    Attributes:
      dtype: float32, bfloat16 (half the memory) or int8 with a scale for each row (a quarter).
      recall_target: None for exact search; between 0 and 1 for `jax.lax.approx_max_k`, which a TPU does in one pass.
    """

    dtype: str = "float32"
    recall_target: float | None = None

    def check(self) -> None:
        """Refuses settings out of range with a ValueError."""
        if self.dtype not in DTYPES:
            raise ValueError(f"vectors on a device are {', '.join(DTYPES)}, not {self.dtype!r}")
        if self.recall_target is not None and not 0 < self.recall_target < 1:
            raise ValueError(f"recall_target must lie between 0 and 1, or be None (exact), not {self.recall_target}")


def device_index(
    vectors: Float[np.ndarray, "N D"],
    settings: DeviceSettings | None = None,
    mesh: Mesh | None = None,
    axis: str = "data",
) -> DeviceIndex:
    """The vectors on the default device, or cut by rows over one axis of a mesh.

    Each device is sent its own rows in slices, converted on the way: the host never holds a second copy of them all.

    Args:
      vectors: [N, D]; may be memory-mapped.
      settings: float32 and exact when None.
      mesh: None for one device.
      axis: the axis of the mesh that cuts the rows; other axes hold copies.

    Raises:
      ValueError: settings or vectors that cannot be used, or an axis that the mesh does not have.
    """
    settings = settings or DeviceSettings()
    settings.check()
    check_vectors(vectors)
    count, dim = vectors.shape
    shards = 1
    if mesh is not None:
        if axis not in mesh.shape:
            raise ValueError(f"the mesh has no axis {axis!r}; choose from {', '.join(mesh.axis_names)}")
        shards = mesh.shape[axis]
    per_shard = -(-count // shards)

    def rows_from(first: int) -> tuple[jax.Array, jax.Array | None]:
        return _block(vectors, first, per_shard, settings.dtype)

    if mesh is None:
        block, scales = rows_from(0)
        return DeviceIndex(block, scales, jnp.int32(count), settings.recall_target)
    cut, whole = NamedSharding(mesh, PartitionSpec(axis)), NamedSharding(mesh, PartitionSpec())
    blocks, scale_blocks = [], []
    for place, (rows, *_) in cut.addressable_devices_indices_map((shards * per_shard, dim)).items():
        with jax.default_device(place):
            block, scales = rows_from(rows.start or 0)
        blocks.append(jax.device_put(block, place))
        scale_blocks.append(None if scales is None else jax.device_put(scales, place))
    assemble = jax.make_array_from_single_device_arrays
    return DeviceIndex(
        assemble((shards * per_shard, dim), cut, blocks),
        None if settings.dtype != "int8" else assemble((shards * per_shard,), cut, scale_blocks),
        jax.device_put(jnp.int32(count), whole),
        settings.recall_target,
        mesh,
        axis,
    )


def _block(vectors: Float[np.ndarray, "N D"], first: int, size: int, dtype: str) -> tuple[jax.Array, jax.Array | None]:
    """`size` rows from `first` on the default device in the dtype asked for; zeros from row N on."""
    parts, scales = [], []
    for start in range(first, first + size, SLICE_ROWS):
        rows = np.zeros((min(SLICE_ROWS, first + size - start), vectors.shape[1]), np.float32)
        real = vectors[start : start + len(rows)]
        rows[: len(real)] = real
        if dtype == "int8":
            values, scale = device.quantize(jnp.asarray(rows))
            scales.append(scale)
        else:
            values = jnp.asarray(rows, dtype)
        parts.append(values)
    return jnp.concatenate(parts), jnp.concatenate(scales) if scales else None


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
        self.index = device_index(vectors, self.settings, mesh, axis)
        self.count, self.dim = vectors.shape
        self._search = jax.jit(device.search, static_argnames="k")

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
