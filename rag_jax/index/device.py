"""DEVICE. Maximum inner product search over vectors that stay on the devices, usable inside a jitted step.

`search` is a pure function over the pytree `DeviceIndex`. Over a mesh each device scores its own rows for all
questions, and only the k best of each travel.

int8 rows may keep a second int8, what rounding left over. The search reads the first alone, half of bfloat16's bytes;
the few passages that it found are scored and fetched with both, which is finer than bfloat16.
"""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, PartitionSpec
from jaxtyping import Array, Float, Float32, Int8, Int32

from rag_jax.index.approximate import max_k_as_on_tpu
from rag_jax.index.fetch import fetch

NO_PASSAGE = -1
INT8_LARGEST = 127.0
REMAINDER_STEPS = 2 * INT8_LARGEST  # what rounding leaves is at most half a step: the second int8 divides a step so
ROW_STEP = 128  # blocks begin at multiples of it, where a TPU need not shift rows
BLOCK_ROWS = 1 << 16  # scored at a time in exact search: [B, 21 million] scores would be larger than the vectors


@flax.struct.dataclass
class DeviceIndex:
    """Vectors of N passages on one device, or cut by rows over one axis of a mesh.

    Attributes:
      vectors: [R, D] float32, bfloat16 or int8; R is N filled up to a multiple of the shards, and rows from N on are
        never found.
      scales: float32 [R], what an int8 row is multiplied with; None for floating vectors.
      count: int32 [], N. An array, so that an index with more rows in the same R needs no new program.
      recall_target: None for exact search; else the expected recall of `jax.lax.approx_max_k`, which is exact on a CPU.
      mesh: None for one device.
      axis: the mesh's axis that cuts the rows.
      remainders: int8 [R, D], what rounding left of int8 rows; None: not kept.
      over_retrieve: each device takes this many times k candidates, scores them again in float32 from the vectors as
        exactly as they are kept, and passes the k best on; 1: as they were found.
      as_on_tpu: with a recall target, lose on any device what a TPU loses (`approximate.max_k_as_on_tpu`).
    """

    vectors: Any
    scales: Any
    count: Any
    recall_target: float | None = flax.struct.field(pytree_node=False, default=None)
    mesh: Mesh | AbstractMesh | None = flax.struct.field(pytree_node=False, default=None)
    axis: str = flax.struct.field(pytree_node=False, default="data")
    remainders: Any = None
    over_retrieve: int = flax.struct.field(pytree_node=False, default=1)
    as_on_tpu: bool = flax.struct.field(pytree_node=False, default=False)

    @property
    def rows(self) -> tuple[Any, Any, Any]:
        """What is cut alike by rows: vectors, scales, remainders."""
        return self.vectors, self.scales, self.remainders


def quantize(rows: Float[Array, "R D"]) -> tuple[Any, Float32[Array, " R"]]:
    """int8 [R, D] and the scale of each row: rows are about values * scale. A row of zeros has the scale 1."""
    rows = rows.astype(jnp.float32)
    largest = jnp.abs(rows).max(axis=1)
    scales = jnp.where(largest > 0, largest / INT8_LARGEST, 1.0)
    return jnp.round(rows / scales[:, None]).astype(jnp.int8), scales


def remainder(
    rows: Float[Array, "R D"], values: Int8[Array, "R D"], scales: Float32[Array, " R"]
) -> Int8[Array, "R D"]:
    """What `quantize` left of the rows: they are values + remainder / `REMAINDER_STEPS`, times the scale."""
    left = rows.astype(jnp.float32) / scales[:, None] - values
    return jnp.round(left * REMAINDER_STEPS).astype(jnp.int8)


def search(
    index: DeviceIndex, queries: Float[Array, "B D"], k: int
) -> tuple[Int32[Array, "B k"], Float32[Array, "B k"]]:
    """The k passages with the largest inner products, for each query.

    Args:
      index: the vectors.
      queries: floating, whatever their sharding.
      k: static, 1 or more; may exceed N.

    Returns:
      Row numbers, best first (exact search: equal scores in the order of rows), -1 where there is none; and the
      scores, -inf where there is none. Those of bfloat16 and int8 are as coarse as the vectors. No gradient flows
      through either: score the passages found again from their own vectors.
    """
    queries = jax.lax.stop_gradient(queries)
    if index.mesh is None:
        scores, rows = _best_of_shard(index, queries, index.rows, index.count, jnp.int32(0), k)
    else:
        scores, rows = _over_mesh(index, queries, k)
    missing = k - scores.shape[1]
    scores = jnp.pad(scores, ((0, 0), (0, missing)), constant_values=-jnp.inf)
    rows = jnp.pad(rows, ((0, 0), (0, missing)), constant_values=NO_PASSAGE)
    return jnp.where(scores == -jnp.inf, NO_PASSAGE, rows), scores


def fetch_vectors(index: DeviceIndex, rows: Int32[Array, "B K"]) -> Float32[Array, "B K D"]:
    """The vectors of these rows as exactly as they are kept, zero where there is none (-1). No gradient flows."""
    # What floats travels as it is kept: half the bytes, for bfloat16.
    floating = index.vectors.dtype != jnp.int8
    read = (lambda parts: parts[0]) if floating else _values
    return jax.lax.stop_gradient(fetch(index.rows, rows, index.mesh, index.axis, read).astype(jnp.float32))


def _over_mesh(index: DeviceIndex, queries: Float[Array, "B D"], k: int) -> tuple[Any, Any]:
    """Every device finds the best of its rows for all queries; the candidates are gathered and the best chosen."""
    whole, cut = PartitionSpec(), PartitionSpec(index.axis)

    def one_shard(queries: Any, parts: Any, count: Any) -> tuple[Any, Any]:
        first = jax.lax.axis_index(index.axis) * len(parts[0])
        scores, rows = _best_of_shard(index, queries, parts, count, first, k)
        # One exchange for both, scores by their bits. In the order of the shards, so that top_k, which is stable, keeps
        # equal scores in the order of rows.
        pairs = jnp.stack([jax.lax.bitcast_convert_type(scores, jnp.int32), rows])
        bits, rows = jax.lax.all_gather(pairs, index.axis, axis=2, tiled=True)
        scores = jax.lax.bitcast_convert_type(bits, jnp.float32)
        best, places = jax.lax.top_k(scores, min(k, scores.shape[1]))
        return best, jnp.take_along_axis(rows, places, axis=1)

    # Queries enter whole: where they were cut over the mesh, this is their all-gather. After the last gather every
    # device holds the same result, which the check of varying axes cannot see.
    specs: dict[str, Any] = {"in_specs": (whole, cut, whole), "out_specs": (whole, whole)}
    return jax.shard_map(one_shard, mesh=index.mesh, check_vma=False, **specs)(queries, index.rows, index.count)


def _best_of_shard(
    index: DeviceIndex, queries: Float[Array, "B D"], parts: Any, count: Any, first: Any, k: int
) -> tuple[Any, Any]:
    """The best scores of one shard's rows, at most k, with row numbers that count from `first`."""
    vectors, scales, _ = parts
    scores, rows = _found(index, queries, vectors, scales, count, first, k * index.over_retrieve)
    if index.over_retrieve == 1:
        return scores, rows
    near = _values(jax.tree.map(lambda part: part[rows.clip(first, first + len(vectors) - 1) - first], parts))
    exact = jnp.einsum("bd,bcd->bc", queries.astype(jnp.float32), near, precision=jax.lax.Precision.HIGHEST)
    best, places = jax.lax.top_k(jnp.where(scores == -jnp.inf, -jnp.inf, exact), min(k, scores.shape[1]))
    return best, jnp.take_along_axis(rows, places, axis=1)


def _values(parts: tuple[Any, Any, Any]) -> Float32[Array, "B K D"]:
    """Looked-up rows of vectors, scales and remainders as the float32 vectors that they stand for."""
    vectors, scales, remainders = parts
    values = vectors.astype(jnp.float32)
    if remainders is not None:
        values += remainders.astype(jnp.float32) / REMAINDER_STEPS
    return values if scales is None else values * scales[..., None]


def _found(
    index: DeviceIndex, queries: Float[Array, "B D"], vectors: Any, scales: Any, count: Any, first: Any, k: int
) -> tuple[Any, Any]:
    """As `_best_of_shard`, by the scores of the search alone."""
    k = min(k, len(vectors))
    if index.recall_target is not None:  # a TPU does this in one pass: no score reaches its memory
        rows = first + jnp.arange(len(vectors))
        scores = jnp.where(rows < count, _scores(queries, vectors, scales), -jnp.inf)
        max_k = max_k_as_on_tpu if index.as_on_tpu else jax.lax.approx_max_k
        best, places = max_k(scores, k, recall_target=index.recall_target)
        return best, first + places
    # Blocks of about one size, so that the last one has little to score twice.
    size, step = -(-len(vectors) // -(-len(vectors) // BLOCK_ROWS)), min(ROW_STEP, BLOCK_ROWS)
    size = min(-(-size // step) * step, len(vectors))
    if size == len(vectors):
        return _best_of_block(queries, vectors, scales, first + jnp.arange(size), count, k)

    def one_block(best: tuple[Any, Any], start: Any) -> tuple[tuple[Any, Any], None]:
        # The last block reaches back over rows that were scored already, which then do not count.
        at = jnp.minimum(start, len(vectors) - size)
        block = jax.lax.dynamic_slice_in_dim(vectors, at, size)
        block_scales = None if scales is None else jax.lax.dynamic_slice_in_dim(scales, at, size)
        places = at + jnp.arange(size)
        rows = jnp.where(places >= start, first + places, count)
        new = _best_of_block(queries, block, block_scales, rows, count, min(k, size))
        # The earlier rows stand in front, so that top_k, which is stable, keeps equal scores in the order of rows.
        scores, rows = (jnp.concatenate(pair, axis=1) for pair in zip(best, new, strict=True))
        scores, places = jax.lax.top_k(scores, k)
        return (scores, jnp.take_along_axis(rows, places, axis=1)), None

    shape = len(queries), k
    nothing = jnp.full(shape, -jnp.inf, jnp.float32), jnp.full(shape, NO_PASSAGE, jnp.int32)
    found, _ = jax.lax.scan(one_block, nothing, jnp.arange(0, len(vectors), size))
    return found


def _best_of_block(
    queries: Float[Array, "B D"], vectors: Any, scales: Any, rows: Int32[Array, " n"], count: Any, k: int
) -> tuple[Float32[Array, "B k"], Int32[Array, "B k"]]:
    """The k <= n best scores of n vectors and their rows, as these are numbered; rows from `count` on are none."""
    scores = jnp.where(rows < count, _scores(queries, vectors, scales), -jnp.inf)
    best, places = jax.lax.top_k(scores, k)
    return best, rows[places]


def _scores(queries: Float[Array, "B D"], vectors: Any, scales: Any) -> Float32[Array, "B R"]:
    """Inner products in float32; both sides are int8 when the vectors are, so that the product is one of int8."""
    product = (((1,), (1,)), ((), ()))
    if vectors.dtype == jnp.int8:
        # Behind a barrier: a TPU would put it into the product's fusion and do it again for every block of rows.
        values, query_scales = jax.lax.optimization_barrier(quantize(queries))
        scores = jax.lax.dot_general(values, vectors, product, preferred_element_type=jnp.int32)
        return scores.astype(jnp.float32) * query_scales[:, None] * scales[None, :]
    # A TPU would multiply float32 in bfloat16 by default, which turns near neighbours into ties.
    precision = jax.lax.Precision.HIGHEST if vectors.dtype == jnp.float32 else None
    queries = queries.astype(vectors.dtype)
    return jax.lax.dot_general(queries, vectors, product, precision=precision, preferred_element_type=jnp.float32)
