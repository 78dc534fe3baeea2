"""HOST. The index backends by name, and how well one of them finds what exact search finds."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from rag_jax.index.exact import ExactSearcher
from rag_jax.index.protocol import Searcher
from rag_jax.index.scann import ScannSearcher, ScannSettings

VECTORS = "vectors.npy"
FILES = "backend"


@dataclasses.dataclass(frozen=True)
class Backend:
    """One way to search, as functions of the index directory, which holds vectors.npy, and of its vectors [N, D].

    Attributes:
      build: (vectors, settings or None) -> searcher. A ValueError refuses settings that are not its own.
      save: (searcher, directory) -> parameters for the manifest; files go into the folder `FILES`.
      load: (directory, vectors) -> searcher.
    """

    build: Callable[[np.ndarray, Any], Searcher]
    save: Callable[[Any, pathlib.Path], dict[str, Any]]
    load: Callable[[pathlib.Path, np.ndarray], Searcher]


def _build_exact(vectors: np.ndarray, settings: Any) -> ExactSearcher:
    if settings is not None:
        raise ValueError(f"the exact backend has no settings, given {settings!r}")
    return ExactSearcher(vectors)


def _build_scann(vectors: np.ndarray, settings: Any) -> ScannSearcher:
    if not isinstance(settings, ScannSettings | None):
        raise ValueError(f"the scann backend takes ScannSettings, given {settings!r}")
    return ScannSearcher.build(vectors, settings)


def _save_scann(searcher: ScannSearcher, directory: pathlib.Path) -> dict[str, Any]:
    searcher.save(directory / FILES)
    copy = directory / FILES / "dataset.npy"
    if copy.exists():  # ScaNN's own copy of vectors.npy, for 21 million passages another 65 GB: one file does for both
        with contextlib.suppress(OSError):  # a file system without hard links keeps the copy
            os.link(directory / VECTORS, copy.with_suffix(".link"))
            os.replace(copy.with_suffix(".link"), copy)
    return dataclasses.asdict(searcher.settings)


BACKENDS: dict[str, Backend] = {
    "exact": Backend(_build_exact, lambda searcher, directory: {}, lambda directory, vectors: ExactSearcher(vectors)),
    "scann": Backend(
        _build_scann, _save_scann, lambda directory, vectors: ScannSearcher.load(directory / FILES, len(vectors))
    ),
}


def backend_named(name: str) -> Backend:
    """The backend of this name.

    Raises:
      ValueError: there is none; the message lists them.
    """
    if name not in BACKENDS:
        raise ValueError(f"no index backend {name!r}; choose from {', '.join(sorted(BACKENDS))}")
    return BACKENDS[name]


def measure_recall(
    searcher: Searcher, vectors: Float32[np.ndarray, "N D"], queries: Float[np.ndarray, "B D"], k: int
) -> float:
    """Share of the k best inner products, of N if there are fewer, that a searcher finds, averaged over B >= 1 queries.

    A found row counts if its score reaches the k-th exact one, so that doubles of a passage count as well as itself.
    """
    k = min(k, len(vectors))
    exact = ExactSearcher(vectors).search(queries, k)
    found = searcher.search(queries, k)
    shares = []
    for query, exact_row, found_row in zip(queries.astype(np.float64), exact, found, strict=True):
        bound = (vectors[exact_row] @ query).min()
        scores = vectors[np.unique(found_row[found_row >= 0])] @ query
        shares.append((scores >= bound - 1e-5 * abs(bound)).sum() / k)
    return float(np.mean(shares))
