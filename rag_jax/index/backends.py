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

from rag_jax.index.bm25 import Bm25Searcher, Bm25Settings
from rag_jax.index.device_searcher import DeviceSearcher, DeviceSettings
from rag_jax.index.exact import ExactSearcher
from rag_jax.index.protocol import Searcher, TextSearcher
from rag_jax.index.scann import ScannSearcher, ScannSettings
from rag_jax.text.table import PassageTable

VECTORS = "vectors.npy"
FILES = "backend"


@dataclasses.dataclass(frozen=True)
class Backend:
    """One way to search, as functions of the index directory.

    Attributes:
      settings: the class of its settings; None: it has none.
      build: (vectors [N, D], passages, settings or None) -> searcher.
      save: (searcher, directory) -> None. Files go into the folder `FILES`; its settings are kept in the manifest.
      load: (directory, vectors [N, D], settings) -> searcher.
      texts: whether it searches texts (`TextSearcher`): then the index holds no vectors, D = 0.
      derive: (N, settings) -> the settings that follow from N, as far as these leave it open.
      dtype_field: the setting that says what the vectors are scored as; "" where that is no choice.
    """

    settings: type[Any] | None
    build: Callable[[np.ndarray, PassageTable, Any], Searcher | TextSearcher]
    save: Callable[[Any, pathlib.Path], None]
    load: Callable[[pathlib.Path, np.ndarray, Any], Searcher | TextSearcher]
    texts: bool = False
    derive: Callable[[int, Any], Any] = lambda count, settings: settings
    dtype_field: str = ""

    def check_settings(self, settings: Any) -> None:
        """Refuses settings of another backend.

        Raises:
          ValueError: which they are, and which they should be.
        """
        if settings is None:
            return
        if self.settings is None:
            raise ValueError(f"the exact backend has no settings, given {settings!r}")
        if not isinstance(settings, self.settings):
            name = self.settings.__name__
            raise ValueError(f"the {name.removesuffix('Settings').lower()} backend takes {name}, given {settings!r}")

    def with_dtype(self, count: int, dtype: str) -> Any:
        """Settings for N vectors that are scored as `dtype`; None where that is no choice."""
        if self.settings is None or not self.dtype_field:
            return None
        return self.derive(count, self.settings(**{self.dtype_field: dtype}))

    def parameters(self, searcher: Any) -> dict[str, Any]:
        """A searcher's settings for the manifest."""
        return {} if self.settings is None else dataclasses.asdict(searcher.settings)

    def restored(self, parameters: dict[str, Any]) -> Any:
        """Settings from the manifest.

        Raises:
          ValueError: parameters that are not this backend's.
        """
        try:
            return None if self.settings is None else self.settings(**parameters)
        except TypeError as error:
            raise ValueError(f"the manifest's parameters are not those of this backend ({error})") from error

    def for_another_count(self, parameters: dict[str, Any], before: int, after: int) -> Any:
        """Settings to build with when N changes: derived ones are derived again, chosen ones kept."""
        settings = self.restored(parameters)
        return self.derive(after, settings) if settings == self.derive(before, settings) else settings


def _save_scann(searcher: ScannSearcher, directory: pathlib.Path) -> None:
    searcher.save(directory / FILES)
    copy = directory / FILES / "dataset.npy"
    if copy.exists():  # ScaNN's own copy of vectors.npy, for 21 million passages another 65 GB: one file does for both
        with contextlib.suppress(OSError):  # a file system without hard links keeps the copy
            os.link(directory / VECTORS, copy.with_suffix(".link"))
            os.replace(copy.with_suffix(".link"), copy)


def _nothing_to_save(searcher: Any, directory: pathlib.Path) -> None:
    """All that the searcher needs are the vectors and its settings."""


BACKENDS: dict[str, Backend] = {
    "bm25": Backend(
        settings=Bm25Settings,
        build=lambda vectors, passages, settings: Bm25Searcher.build(passages, settings),
        save=lambda searcher, directory: searcher.save(directory / FILES),
        load=lambda directory, vectors, settings: Bm25Searcher.load(directory / FILES, len(vectors), settings),
        texts=True,
    ),
    "device": Backend(
        settings=DeviceSettings,
        build=lambda vectors, passages, settings: DeviceSearcher(vectors, settings),
        save=_nothing_to_save,
        load=lambda directory, vectors, settings: DeviceSearcher(vectors, settings),
        dtype_field="dtype",
    ),
    "exact": Backend(
        settings=None,
        build=lambda vectors, passages, settings: ExactSearcher(vectors),
        save=_nothing_to_save,
        load=lambda directory, vectors, settings: ExactSearcher(vectors),
    ),
    "scann": Backend(
        settings=ScannSettings,
        build=lambda vectors, passages, settings: ScannSearcher.build(vectors, settings),
        save=_save_scann,
        load=lambda directory, vectors, settings: ScannSearcher.load(directory / FILES, len(vectors)),
        derive=lambda count, settings: ScannSettings.derive(count, reorder_dtype=settings.reorder_dtype),
        dtype_field="reorder_dtype",
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
