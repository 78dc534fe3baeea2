"""DEVICE. What `jax.lax.approx_max_k` finds on a TPU, for devices on which it is exact.

On a TPU the places fall into buckets, the best of each bucket stays, and the k best of those are taken. One of the k
best is lost when a better one lies in its bucket: of M buckets it stays with the probability (1 - 1/M)^(k-1), about
exp(-(k-1)/M), and M is chosen for that to be the recall asked for. Scores come in tiles of 128 lanes, and a bucket is
one lane of a power of two of neighbouring tiles: rows that stand less than 128 apart are never in one.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32

from rag_jax.models.layers import LANES


def bucket_rule(places: int, k: int, recall_target: float) -> tuple[int, int]:
    """How a TPU cuts `places` scores of a row into buckets, for the k best of them.

    Args:
      places: number of scores, 1 or more.
      k: 1 or more.
      recall_target: expected share of the k best that stays, above 0, at most 1.

    Returns:
      The number of buckets, and how many tiles share theirs: 1 is exact search, in which every place is a bucket.
    """
    tiles = -(-places // LANES)
    if tiles == 1 or (recall_target == 1 and k > 1):
        return places, 1
    if k == 1:  # the best is never lost
        return LANES, 1 << (tiles - 1).bit_length()
    # The compiler is given the target in float32.
    needed = int((k - 1) / -math.log(np.float32(recall_target)))
    needed = min(max(needed, LANES), places)
    halvings = min((places // needed).bit_length() - 1, (places // LANES - 1).bit_length())
    return (places, 1) if halvings == 0 else (-(-tiles // (1 << halvings)) * LANES, 1 << halvings)


def max_k_as_on_tpu(
    scores: Float[Array, "B R"], k: int, recall_target: float
) -> tuple[Float[Array, "B k"], Int32[Array, "B k"]]:
    """`jax.lax.approx_max_k(scores, k, recall_target=recall_target)` with a TPU's losses, on any device.

    Which tiles share buckets is the compiler's own affair. Neighbouring ones are taken here: for rows in no order all
    choices lose as much.

    Args:
      scores: floating; all of them are held at once, which a TPU does not.
      k: static, at most R and the number of buckets.
      recall_target: see `bucket_rule`.

    Returns:
      The k best scores that stay and their places, best first.
    """
    batch, places = scores.shape
    buckets, together = bucket_rule(places, k, recall_target)
    if together == 1:
        best, found = jax.lax.top_k(scores, k)
        return best, found
    rows = buckets // LANES
    filled = jnp.pad(scores, ((0, 0), (0, rows * together * LANES - places)), constant_values=-jnp.inf)
    grouped = filled.reshape(batch, rows, together, LANES)
    winners = (jnp.arange(rows)[:, None] * together + grouped.argmax(2)) * LANES + jnp.arange(LANES)
    best, buckets_found = jax.lax.top_k(grouped.max(2).reshape(batch, buckets), k)
    return best, jnp.take_along_axis(winners.reshape(batch, buckets), buckets_found, axis=1)
