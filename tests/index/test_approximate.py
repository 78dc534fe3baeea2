"""The bucket rule of approximate search, which loses something only on a TPU."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.index import device
from rag_jax.index.approximate import bucket_rule, max_k_as_on_tpu
from rag_jax.index.device_searcher import DeviceSettings, device_index


@pytest.mark.parametrize("places", [100, 128, 129, 1000, 1864, 14_912, 2_626_916])
def test_there_are_as_many_buckets_as_the_compiler_makes(places):
    for k, recall_target in itertools.product((1, 2, 5, 100), (0.5, 0.95, 0.99)):
        keep = functools.partial(jax.lax.approx_max_k, k=k, recall_target=recall_target, aggregate_to_topk=False)
        made = jax.eval_shape(keep, jax.ShapeDtypeStruct((2, places), jnp.float32))[0].shape[1]
        assert bucket_rule(places, k, recall_target)[0] == made


def test_the_best_of_each_bucket_stays_and_nothing_else():
    assert bucket_rule(1024, 2, 0.5) == (128, 8)
    scores = np.zeros((1, 1024), np.float32)
    scores[0, [3, 3 + 128, 3 + 7 * 128, 5]] = 4, 9, 7, 2  # the first three share a bucket
    best, places = max_k_as_on_tpu(jnp.asarray(scores), 2, 0.5)
    assert places.tolist() == [[3 + 128, 5]]
    assert best.tolist() == [[9, 2]]


def test_of_rows_in_no_order_as_much_stays_as_was_asked_for(rng):
    scores = jnp.asarray(rng.standard_normal((100, 20_000), np.float32))
    for k, target in ((50, 0.9), (100, 0.9)):
        exact = np.asarray(jax.lax.top_k(scores, k)[1])
        found = np.asarray(max_k_as_on_tpu(scores, k, target)[1])
        stayed = np.mean([len({*a} & {*b}) / k for a, b in zip(exact, found, strict=True)])
        assert target - 0.01 < stayed < 1


@pytest.fixture(scope="module")
def clustered():
    """Passages around a few hundred centres and questions near them, as encoders make them."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((300, 64))
    rows = centres[rng.integers(0, 300, 12_000)] + 0.6 * rng.standard_normal((12_000, 64))
    asked = rows[rng.integers(0, 12_000, 100)] + 0.6 * rng.standard_normal((100, 64))
    return rows.astype(np.float32), jnp.asarray(asked, jnp.float32)


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        (DeviceSettings("bfloat16", 0.99), 0.985),  # one shard; over several less is lost
        (DeviceSettings("int8", 0.99), 0.97),
        (DeviceSettings("int8", 0.99, over_retrieve=4, remainders=True), 0.995),
    ],
    ids=str,
)
def test_recall_as_on_a_tpu(clustered, settings, least):
    rows, asked = clustered
    exact = np.asarray(device.search(device_index(rows), asked, 5)[0])
    index = device_index(rows, settings).replace(as_on_tpu=True)
    found = np.asarray(jax.jit(device.search, static_argnames="k")(index, asked, k=5)[0])
    assert np.mean([len({*a} & {*b}) / 5 for a, b in zip(exact, found, strict=True)]) >= least
