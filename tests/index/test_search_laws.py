"""The laws that every backend keeps."""

import numpy as np
import pytest

from rag_jax.index import exact
from rag_jax.index.device_searcher import DeviceSearcher
from rag_jax.index.exact import ExactSearcher
from rag_jax.index.scann import ScannSearcher, ScannSettings

HASHED = ScannSettings(dims_per_block=2, reorder=300)
TREE = ScannSettings(leaves=12, leaves_to_search=12, dims_per_block=2, reorder=300)
BUILDERS = {
    "device": DeviceSearcher,
    "exact": ExactSearcher,
    "scann": ScannSearcher.build,
    "scann codes": lambda vectors: ScannSearcher.build(vectors, HASHED),
    "scann tree": lambda vectors: ScannSearcher.build(vectors, TREE),
}
COUNT, DIM = 300, 17


@pytest.fixture(params=BUILDERS)
def build(request):
    if request.param.startswith("scann"):
        pytest.importorskip("scann", reason="ScaNN has wheels for Linux only")
    return BUILDERS[request.param]


@pytest.fixture
def vectors(rng):
    return rng.standard_normal((COUNT, DIM), np.float32)


@pytest.fixture
def queries(rng):
    return rng.standard_normal((70, DIM), np.float32)


def expected(queries, vectors, k):
    scores = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("k", [1, 7, COUNT])
def test_search_agrees_with_a_sort_of_all_scores(build, vectors, queries, k):
    found = build(vectors).search(queries, k)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected(queries, vectors, k))


def test_one_by_one_is_the_same_as_a_batch(build, vectors, queries):
    searcher = build(vectors)
    singles = np.concatenate([searcher.search(queries[at : at + 1], 5) for at in range(len(queries))])
    np.testing.assert_array_equal(searcher.search(queries, 5), singles)


def test_permuted_vectors_give_permuted_rows(build, vectors, queries, rng):
    order = rng.permutation(COUNT)
    np.testing.assert_array_equal(order[build(vectors[order]).search(queries, 5)], build(vectors).search(queries, 5))


def test_beyond_the_corpus_there_is_no_passage(build, vectors, queries):
    found = build(vectors).search(queries, COUNT + 9)
    assert (found[:, COUNT:] == -1).all()
    assert (np.sort(found[:, :COUNT], axis=1) == np.arange(COUNT)).all()


def test_no_queries_find_nothing(build, vectors, queries):
    assert build(vectors).search(queries[:0], 5).shape == (0, 5)


def test_negative_scores_are_still_found(build, vectors):
    vectors = np.abs(vectors)
    queries = -np.abs(vectors[:3])
    np.testing.assert_array_equal(build(vectors).search(queries, 4), expected(queries, vectors, 4))


def test_a_bad_query_is_refused_and_the_searcher_lives_on(build, vectors, queries):
    searcher = build(vectors)
    for value in (np.nan, np.inf, 1e38):
        bad = queries.copy()
        bad[3, 0] = value
        with pytest.raises(ValueError, match="query 3 holds"):
            searcher.search(bad, 5)
    with pytest.raises(ValueError, match="index has 17"):
        searcher.search(queries[:, 1:], 5)
    with pytest.raises(ValueError, match="k must be"):
        searcher.search(queries, 0)
    np.testing.assert_array_equal(searcher.search(queries, 5), expected(queries, vectors, 5))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38])
def test_bad_vectors_are_refused_before_they_are_indexed(build, vectors, value):
    vectors[123, 4] = value
    with pytest.raises(ValueError, match="row 123 holds"):
        build(vectors)


def test_vectors_may_be_read_only_strided_or_double(build, vectors, queries, tmp_path):
    np.save(tmp_path / "v.npy", vectors)
    for same in (np.load(tmp_path / "v.npy", mmap_mode="r"), np.asfortranarray(vectors), vectors.astype(np.float64)):
        np.testing.assert_array_equal(build(same).search(queries, 5), expected(queries, vectors, 5))


def test_exact_search_in_blocks_agrees_with_one_block(vectors, queries, monkeypatch):
    whole = ExactSearcher(vectors).search(queries, 120)
    monkeypatch.setattr(exact, "BLOCK_ROWS", 64)
    for resident in (exact.RESIDENT_BYTES, 0):
        monkeypatch.setattr(exact, "RESIDENT_BYTES", resident)
        np.testing.assert_array_equal(ExactSearcher(vectors).search(queries, 120), whole)


def test_exact_search_puts_equal_scores_in_the_order_of_rows():
    assert (
        ExactSearcher(np.ones((9, 2), np.float32)).search(np.ones((2, 2), np.float32), 4).tolist() == [[0, 1, 2, 3]] * 2
    )


def test_batches_of_any_size_compile_few_programs(vectors, rng):
    searcher = ExactSearcher(vectors)
    before = exact.block_top_k._cache_size()
    for size in (1, 2, 5, 8, 9, 30, 64, 65, 200, 256, 300, 600):
        assert len(searcher.search(rng.standard_normal((size, DIM), np.float32), 3)) == size
    assert exact.block_top_k._cache_size() - before <= len(exact.QUERY_BUCKETS)
