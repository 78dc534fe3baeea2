"""HOST, around one jitted DEVICE function. Exact inner-product search: for small sets, and as a measure."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int32

from rag_jax.index.protocol import check_queries, check_vectors, pad_rows_found

QUERY_BUCKETS = (8, 64, 256)  # batches are padded up to one of these, and cut at the last
BLOCK_ROWS = 1 << 16  # scores of one block and the largest bucket take 64 MiB
RESIDENT_BYTES = 2 << 30  # a set up to this size stays on the device; a larger one is sent block by block


@functools.partial(jax.jit, static_argnames="k")
def block_top_k(
    queries: Float32[Array, "B D"], vectors: Float32[Array, "R D"], k: int
) -> tuple[Float32[Array, "B k"], Int32[Array, "B k"]]:
    """The k <= R largest inner products with one block, and their rows in it; equal scores in the order of rows."""
    # A TPU would multiply in bfloat16 by default, which turns near neighbours into ties.
    scores = jnp.matmul(queries, vectors.T, precision=jax.lax.Precision.HIGHEST)
    best, rows = jax.lax.top_k(scores, k)
    return best, rows


class ExactSearcher:
    """Scores every stored vector in float32.

    Equal vectors come in the order of their rows; in a set of several blocks only within each, as blocks of other
    sizes may round otherwise.

    Args:
      vectors: [N, D] float32, N >= 1; may be memory-mapped.

    Raises:
      ValueError: vectors that `check_vectors` refuses.
    """

    def __init__(self, vectors: Float[np.ndarray, "N D"]):
        check_vectors(vectors)
        self.count, self.dim = vectors.shape
        blocks = [vectors[start : start + BLOCK_ROWS] for start in range(0, self.count, BLOCK_ROWS)]
        resident = self.count * self.dim * 4 <= RESIDENT_BYTES
        self._blocks = [jnp.asarray(block, jnp.float32) for block in blocks] if resident else blocks

    def search(self, queries: Float[np.ndarray, "B D"], k: int) -> Int32[np.ndarray, "B k"]:
        """See `Searcher.search`."""
        queries = check_queries(queries, k, self.dim)
        largest = QUERY_BUCKETS[-1]
        found = [
            self._search_bucket(queries[at : at + largest], min(k, self.count))
            for at in range(0, len(queries), largest)
        ]
        return pad_rows_found(np.concatenate(found) if found else np.zeros((0, 0), np.int32), k)

    def _search_bucket(self, queries: Float32[np.ndarray, "B D"], k: int) -> Int32[np.ndarray, "B k"]:
        """One bucket of queries against all blocks; k <= N."""
        size = next(size for size in QUERY_BUCKETS if size >= len(queries))
        padded = np.zeros((size, self.dim), np.float32)
        padded[: len(queries)] = queries
        best_scores, best_rows = np.zeros((size, 0), np.float32), np.zeros((size, 0), np.int32)
        for number, block in enumerate(self._blocks):
            block = jnp.asarray(block, jnp.float32)
            scores, rows = map(np.asarray, block_top_k(padded, block, min(k, len(block))))
            best_scores = np.concatenate([best_scores, scores], axis=1)
            best_rows = np.concatenate([best_rows, rows + number * BLOCK_ROWS], axis=1)
            if number:  # stable: earlier blocks hold the smaller row numbers
                order = np.argsort(-best_scores, axis=1, kind="stable")[:, :k]
                best_scores = np.take_along_axis(best_scores, order, axis=1)
                best_rows = np.take_along_axis(best_rows, order, axis=1)
        return best_rows[: len(queries)]
