import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.index import device
from rag_jax.index.backends import measure_recall
from rag_jax.index.device_searcher import DeviceSearcher, DeviceSettings, abstract_index, device_index
from rag_jax.index.exact import ExactSearcher

COUNT, DIM = 3001, 64


@pytest.fixture
def vectors(rng):
    return rng.standard_normal((COUNT, DIM), np.float32)


@pytest.fixture
def queries(rng):
    return rng.standard_normal((30, DIM), np.float32)


def test_float32_on_a_device_finds_what_exact_search_finds(vectors, queries):
    found = DeviceSearcher(vectors).search(queries, 10)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, ExactSearcher(vectors).search(queries, 10))


@pytest.mark.parametrize(("dtype", "least"), [("bfloat16", 0.99), ("int8", 0.97)])
def test_smaller_vectors_keep_the_recall(vectors, queries, dtype, least):
    searcher = DeviceSearcher(vectors, DeviceSettings(dtype))
    assert searcher.index.vectors.dtype == dtype
    assert measure_recall(searcher, vectors, queries, 10) >= least


def test_quantized_rows_are_within_half_a_step_of_their_own_scale(rng):
    rows = rng.standard_normal((50, 16), np.float32) * np.logspace(-3, 3, 50, dtype=np.float32)[:, None]
    rows[7] = 0
    values, scales = device.quantize(jnp.asarray(rows))
    assert np.abs(np.asarray(values, np.int32)).max() == 127
    error = np.abs(np.asarray(values) * np.asarray(scales)[:, None] - rows)
    assert (error <= 0.501 * np.asarray(scales)[:, None]).all()
    assert not np.asarray(values)[7].any()


def test_search_is_a_pure_function_inside_jit_without_gradient(vectors, queries):
    index = device_index(vectors[:100], DeviceSettings(recall_target=0.9))

    @jax.jit
    def step(index, queries):
        ids, scores = device.search(index, queries, 5)
        return (scores**2).sum(), (ids, scores)

    (_, (ids, scores)), gradient = jax.value_and_grad(step, argnums=1, has_aux=True)(index, jnp.asarray(queries))
    np.testing.assert_array_equal(ids, ExactSearcher(vectors[:100]).search(queries, 5))
    expected = np.take_along_axis(queries @ vectors[:100].T, np.asarray(ids), axis=1)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert not np.asarray(gradient).any()


def test_more_rows_in_the_same_room_need_no_new_program(vectors, queries):
    traces = []

    @jax.jit
    def step(index, queries):
        traces.append(1)
        return device.search(index, queries, 3)[0]

    index = device_index(vectors[:64])
    full = step(index, queries)
    fewer = step(index.replace(count=jnp.int32(10)), queries)
    assert len(traces) == 1
    assert full.max() > 9 >= fewer.max()


def test_beyond_the_corpus_there_is_no_passage(vectors, queries):
    ids, scores = device.search(device_index(vectors[:3]), jnp.asarray(-np.abs(queries)), 5)
    assert (np.sort(ids[:, :3], axis=1) == np.arange(3)).all()
    assert (ids[:, 3:] == -1).all()
    assert (scores[:, 3:] == -np.inf).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (DeviceSettings("float16"), "float32, bfloat16, int8, not 'float16'"),
        (DeviceSettings(recall_target=1.5), "between 0 and 1"),
        (DeviceSettings(over_retrieve=0), "1 or more, not 0"),
        (DeviceSettings("bfloat16", remainders=True), "bfloat16 leaves none"),
    ],
)
def test_settings_out_of_range_are_refused(vectors, settings, message):
    with pytest.raises(ValueError, match=message):
        device_index(vectors, settings)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("count", [64, 65, 203])  # whole blocks, a row too many, a last block that reaches back
def test_block_by_block_the_same_is_found_as_in_one_go(rng, monkeypatch, dtype, count):
    vectors = rng.integers(-3, 4, (count, 16)).astype(np.float32)  # whole numbers: exact sums, and many ties
    queries = jnp.asarray(rng.integers(-3, 4, (9, 16)), jnp.float32)
    index = device_index(vectors, DeviceSettings(dtype)).replace(count=jnp.int32(count - 3))
    for k in (1, 40):  # 40: more than a block
        whole = device.search(index, queries, k)
        with monkeypatch.context() as patch:
            patch.setattr(device, "BLOCK_ROWS", 32)
            blocks = device.search(index, queries, k)
        np.testing.assert_array_equal(blocks[0], whole[0])
        np.testing.assert_array_equal(blocks[1], whole[1])


def test_exact_search_never_holds_the_scores_of_all_rows(monkeypatch):
    monkeypatch.setattr(device, "BLOCK_ROWS", 256)
    rows, queries = 1 << 14, 64
    index = jax.eval_shape(lambda: device_index(np.ones((1, 8), np.float32)))
    index = index.replace(vectors=jax.ShapeDtypeStruct((rows, 8), jnp.float32))
    search = jax.jit(device.search, static_argnames="k")
    memory = search.lower(index, jax.ShapeDtypeStruct((queries, 8), jnp.float32), k=5).compile().memory_analysis()
    assert memory.temp_size_in_bytes < rows * queries * 4 / 4


EIGHT = """
import jax, numpy as np, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from rag_jax.index import device
from rag_jax.index.device_searcher import DeviceSettings, device_index

assert len(jax.devices()) == 8
mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
rng = np.random.default_rng(0)
search, fetch = jax.jit(device.search, static_argnames="k"), jax.jit(device.fetch_vectors)
for count in (5, 203):  # fewer rows than shards, and a number that eight does not divide
    vectors = rng.integers(-3, 4, (count, 16)).astype(np.float32)  # whole numbers: exact sums, and many ties
    queries = -np.abs(rng.integers(-3, 4, (16, 16))).astype(np.float32)
    cut = jax.device_put(queries, NamedSharding(mesh, PartitionSpec("data")))
    again = DeviceSettings("int8", over_retrieve=2, remainders=True)
    for settings in (*map(DeviceSettings, ("float32", "bfloat16", "int8")), DeviceSettings(recall_target=0.9), again):
        one, eight = device_index(vectors, settings), device_index(vectors, settings, mesh)
        assert len(eight.vectors.sharding.device_set) == 8 and eight.vectors.shape[0] % 8 == 0
        for k in (10, 300):
            expected = jax.device_get(search(one, queries, k=k))
            found = jax.device_get(search(eight, cut, k=k))
            np.testing.assert_allclose(found[1], expected[1], atol=1e-5 if settings is again else 0)
            if settings.recall_target is None and settings is not again:  # approx_max_k may take any of equal scores
                np.testing.assert_array_equal(found[0], expected[0])
            if count > 5 and k == 10 and settings.dtype != "float32":
                for rows in (found[0], found[0][:3]):  # eight divide 16 questions, and do not divide three
                    np.testing.assert_array_equal(fetch(eight, rows), fetch(one, rows))
            assert found[0].max() < count and (found[0][:, min(k, count):] == -1).all()
two = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
over_model = device_index(vectors, None, two, "model")
np.testing.assert_array_equal(search(over_model, queries, k=10)[0], search(device_index(vectors), queries, k=10)[0])
try:
    device_index(vectors, None, mesh, "rows")
except ValueError as error:
    assert "no axis 'rows'" in str(error)
print("same")
"""


@pytest.mark.slow
def test_eight_devices_find_the_same_as_one():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", EIGHT], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "same", done.stderr[-3000:]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (DeviceSettings("float32"), 0),
        (DeviceSettings("bfloat16"), 2**-8),
        (DeviceSettings("int8"), 0.5 / 127),
        (DeviceSettings("int8", remainders=True), 0.5 / 127 / 254),
    ],
    ids=str,
)
def test_vectors_are_fetched_as_exactly_as_they_are_kept(vectors, settings, error):
    rows = jnp.asarray([[4, -1], [0, COUNT - 1]])
    found = device.fetch_vectors(device_index(vectors, settings), rows)
    assert (found.dtype, found.shape) == (jnp.float32, (2, 2, DIM))
    assert not found[0, 1].any()
    for place, row in (((0, 0), 4), ((1, 0), 0), ((1, 1), COUNT - 1)):
        assert np.abs(found[place] - vectors[row]).max() <= 1.01 * error * np.abs(vectors[row]).max()


def test_candidates_scored_again_stand_in_the_order_of_their_exact_scores(vectors, queries):
    exact, scores = device.search(device_index(vectors), jnp.asarray(queries), 10)
    again = device_index(vectors, DeviceSettings("int8", 0.9, over_retrieve=4, remainders=True))
    found, near = device.search(again, jnp.asarray(queries), 10)
    np.testing.assert_allclose(near, scores, atol=1e-3)
    assert (np.asarray(found) == np.asarray(exact)).mean() > 0.99
    few = device.search(device_index(vectors[:3], DeviceSettings("int8", over_retrieve=4)), jnp.asarray(queries), 5)[0]
    assert (np.sort(few[:, :3], axis=1) == np.arange(3)).all()
    assert (few[:, 3:] == -1).all()


def test_a_released_index_comes_back_with_the_next_search(vectors, queries):
    searcher = DeviceSearcher(vectors)
    before = searcher.search(queries, 3)
    searcher.release()
    np.testing.assert_array_equal(searcher.search(queries, 3), before)


@pytest.mark.parametrize("settings", [DeviceSettings(), DeviceSettings("int8", 0.9, 2, remainders=True)], ids=str)
def test_an_abstract_index_has_the_shapes_of_the_real_one(vectors, settings):
    real = jax.eval_shape(lambda index: index, device_index(vectors, settings))
    assert jax.tree.all(
        jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), real, abstract_index(COUNT, DIM, settings))
    )
