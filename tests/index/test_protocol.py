import ml_dtypes
import numpy as np
import pytest

from rag_jax.index.device_searcher import DeviceSearcher
from rag_jax.index.exact import ExactSearcher
from rag_jax.index.protocol import LARGEST, NO_PASSAGE, Searcher, check_queries, check_vectors, pad_rows_found
from rag_jax.index.scann import ScannSearcher

ROWS = np.ones((3, 4), np.float32)


def with_value(value):
    rows = ROWS.copy()
    rows[1, 2] = value
    return rows


def test_the_vector_backends_are_searchers(rng):
    vectors = rng.standard_normal((5, 4), np.float32)
    assert isinstance(ExactSearcher(vectors), Searcher)
    assert isinstance(DeviceSearcher(vectors), Searcher)
    pytest.importorskip("scann", reason="ScaNN has wheels for Linux only")
    assert isinstance(ScannSearcher.build(vectors), Searcher)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_any_floating_dtype_is_searched_as_float32(dtype):
    checked = check_queries(ROWS.astype(dtype)[:, ::-1], 1, 4)
    assert checked.dtype == np.float32
    assert checked.flags.c_contiguous


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38, -2 * LARGEST])
def test_unusable_numbers_are_refused_with_their_row(value):
    with pytest.raises(ValueError, match="query 1 holds"):
        check_queries(with_value(value), 1, 4)
    with pytest.raises(ValueError, match="row 1 holds"):
        check_vectors(with_value(value))


def test_a_double_that_overflows_float32_is_refused():
    with pytest.raises(ValueError, match="query 0 holds inf"):
        check_queries(np.full((1, 4), 1e300), 1, 4)


@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [
        (ROWS, 0, "k must be 1 or more"),
        (ROWS, -1, "k must be 1 or more"),
        (ROWS[0], 1, r"must be \[B, D\].*queries\[None\]"),
        (ROWS[None], 1, r"must be \[B, D\]"),
        (ROWS[:, :3], 1, "3 dimensions and the index has 4"),
        (ROWS.astype(np.int32), 1, "must be floating"),
        (ROWS.astype(np.complex64), 1, "must be floating"),
    ],
)
def test_queries_that_cannot_be_searched_are_refused(queries, k, message):
    with pytest.raises(ValueError, match=message):
        check_queries(queries, k, 4)


@pytest.mark.parametrize("vectors", [ROWS[:0], ROWS[:, :0], ROWS[0], ROWS.astype(np.int8)])
def test_vectors_that_cannot_be_indexed_are_refused(vectors):
    with pytest.raises(ValueError, match=r"must be \[N, D\]|must be floating"):
        check_vectors(vectors)


def test_missing_columns_are_no_passage():
    found = pad_rows_found(np.array([[4, 2]]), 4)
    assert found.dtype == np.int32
    assert found.tolist() == [[4, 2, NO_PASSAGE, NO_PASSAGE]]
