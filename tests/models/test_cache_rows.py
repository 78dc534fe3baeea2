"""Chosen rows of arrays that are cut in parts, and attention that reads a cache as far as it is written."""

import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.cache_rows import BLOCK, Blocks, take_rows, write_rows, write_slots
from rag_jax.models.layers import Segment, attend

PARTS, R, G, L, W = 2, 6, 2, 3 * BLOCK, 8
ROWS = np.array([[2, 0], [1, 2]])  # counted in their parts of three rows
CHOSEN = [2, 0, 4, 5]


@pytest.fixture
def cache(rng):
    return jnp.asarray(rng.normal(size=(R, G, L, W)), jnp.float32)


def test_rows_are_taken_from_and_written_to_their_own_part(cache, rng):
    np.testing.assert_array_equal(take_rows(cache, jnp.asarray(ROWS)), cache[np.array(CHOSEN)])
    new = rng.normal(size=(len(CHOSEN), G, L, W)).astype(np.float32)
    expected = np.array(cache)
    expected[CHOSEN] = new
    np.testing.assert_array_equal(write_rows(cache, jnp.asarray(new), jnp.asarray(ROWS)), expected)


def test_slots_are_written_from_each_rows_own_start_on(cache, rng):
    new = rng.normal(size=(len(CHOSEN), G, 5, W)).astype(np.float32)
    starts = [0, BLOCK - 2, 7, L - 5]
    expected = np.array(cache)
    for row, start, own in zip(CHOSEN, starts, new, strict=True):
        expected[row, :, start : start + 5] = own
    found = write_slots(cache, jnp.asarray(new), jnp.asarray(ROWS), jnp.asarray(starts))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("together", [1, 2])
def test_attention_by_blocks_is_attention_over_the_whole_cache(cache, rng, together):
    """Of a query that sees nothing in the cache too. Blocks that nobody wrote are not read: here they hold NaN."""
    count = 3
    value = jnp.asarray(rng.normal(size=cache.shape), jnp.float32)
    query = jnp.asarray(rng.normal(size=(len(CHOSEN), G, count, W)), jnp.float32)
    seen = rng.random((len(CHOSEN), 1, count, L)) < 0.1
    seen[..., 2 * BLOCK :] = False
    seen[1, :, 2] = False
    own = [jnp.asarray(rng.normal(size=(len(CHOSEN), G, count, W)), jnp.float32) for _ in range(2)]
    beside = Segment(*own, jnp.broadcast_to(jnp.eye(count, dtype=bool), (len(CHOSEN), 1, count, count)))
    at = np.array(CHOSEN)
    whole = attend(query, Segment(cache[at], value[at], jnp.asarray(seen)), beside, together=together)
    unwritten = [x.at[:, :, 2 * BLOCK :].set(jnp.nan) for x in (cache, value)]
    blocks = Blocks(*unwritten, jnp.asarray(ROWS), jnp.asarray(seen), jnp.asarray(2))
    np.testing.assert_allclose(attend(query, blocks, beside, together=together), whole, atol=1e-6)
