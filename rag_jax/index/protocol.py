"""HOST. What every index backend is to the rest of the project, and the checks that all of them make first."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Int32

# Trained encoders give components below about 100. Far larger ones are a fault, and their products overflow.
LARGEST = 1e6
NO_PASSAGE = -1


class Found(NamedTuple):
    """What a search found, with scores.

    Attributes:
      rows: int32 [B, k], row numbers, best first; -1 (`NO_PASSAGE`) where there is none.
      scores: float32 [B, k], the logits of p(z|x); -inf where there is none.
    """

    rows: Int32[np.ndarray, "B k"]
    scores: Float32[np.ndarray, "B k"]


@runtime_checkable
class Searcher(Protocol):
    """Maximum inner product search over N stored vectors.

    It gives no scores: an approximate index has only approximate ones, so they are computed again from the vectors.
    """

    def search(self, queries: Float[np.ndarray, "B D"], k: int) -> Int32[np.ndarray, "B k"]:
        """Row numbers (0..N-1) of the k vectors with the largest inner product, best first.

        Where there is none, as when k > N, the row is -1 (`NO_PASSAGE`), always behind the found ones. B = 0 is legal.

        Raises:
          ValueError: NaN, infinity or components above `LARGEST`, another D, not two axes, k < 1.
        """
        ...


@runtime_checkable
class TextSearcher(Protocol):
    """Search over the N passages' texts by the questions' texts, without an encoder and without vectors.

    Its scores cannot be computed again from anything else, so it gives them.
    """

    def search_texts(self, texts: Sequence[str], k: int) -> Found:
        """The k passages with the largest scores for each of B texts, best first; equal scores in the order of rows.

        A passage that shares no word with the question is none, so there may be fewer than k, or none at all.

        Raises:
          ValueError: k < 1, or one text instead of several.
        """
        ...


def check_texts(texts: Sequence[str], k: int) -> None:
    """Refuses what cannot be searched with.

    Raises:
      ValueError: as in `TextSearcher.search_texts`.
    """
    check_k(k)
    if isinstance(texts, str):
        raise ValueError("texts must be several questions, given one string; one question is [text]")


def check_k(k: int) -> None:
    """Refuses a k below 1.

    Raises:
      ValueError: such a k.
    """
    if isinstance(k, bool) or operator.index(k) < 1:
        raise ValueError(f"k must be 1 or more, not {k}")


def check_queries(queries: np.ndarray, k: int, dim: int) -> Float32[np.ndarray, "B D"]:
    """Queries as contiguous float32, once they are fit to be searched with.

    Args:
      queries: [B, D], any floating dtype.
      k: how many rows will be asked for.
      dim: the D of the index.

    Raises:
      ValueError: as in `Searcher.search`; the message names the first bad row.
    """
    check_k(k)
    queries = np.asarray(queries)
    if queries.ndim != 2:
        raise ValueError(f"queries must be [B, D], found shape {queries.shape}; one query is queries[None]")
    if queries.shape[1] != dim:
        raise ValueError(f"queries have {queries.shape[1]} dimensions and the index has {dim}: another encoder made it")
    return _usable(queries, "query")


def check_vectors(vectors: np.ndarray, name: str = "vectors") -> None:
    """Refuses what no backend can index. Reads in slices: a memory-mapped array may be larger than memory.

    Raises:
      ValueError: not [N, D] with N, D >= 1, N too large for int32, not floating, or a component that is NaN, infinite
        or above `LARGEST`.
    """
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise ValueError(f"{name} must be [N, D] with at least one row, found shape {vectors.shape}")
    if len(vectors) > np.iinfo(np.int32).max:
        raise ValueError(f"{len(vectors)} rows do not fit into int32; split the collection")
    step = max(1, (1 << 24) // vectors.shape[1])
    for start in range(0, len(vectors), step):
        _usable(vectors[start : start + step], "row", start)


def _usable(rows: np.ndarray, kind: str, first: int = 0) -> Float32[np.ndarray, "B D"]:
    if not np.can_cast(rows.dtype, np.float64) or rows.dtype.kind in "bui":
        raise ValueError(f"{kind} vectors must be floating, not {rows.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.ascontiguousarray(rows, np.float32)
        good = (np.abs(rows) <= LARGEST).all(axis=1)  # False for NaN
    if not good.all():
        row = int(np.argmin(good))
        value = rows[row][~(np.abs(rows[row]) <= LARGEST)][0]
        raise ValueError(
            f"{kind} {first + row} holds {value} (limit {LARGEST:g}); its encoder has diverged or is not loaded"
        )
    return rows


def pad_rows_found(rows: np.ndarray, k: int) -> Int32[np.ndarray, "B k"]:
    """Search results [B, fewer than k or k] as int32, filled up to k columns with `NO_PASSAGE`."""
    out = np.full((len(rows), k), NO_PASSAGE, np.int32)
    out[:, : rows.shape[1]] = rows
    return out
