"""HOST. A handle on an index that may be changed or swapped while questions are answered from it."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int32

from rag_jax.index.device_searcher import DeviceSearcher
from rag_jax.index.manifest import read_manifest
from rag_jax.index.protocol import Found
from rag_jax.index.store import Index, open_index


class LiveIndex:
    """Answers from the index that was there when it was opened or last refreshed, whole, whatever happens on disk.

    All threads may use one handle at once. A search never waits; once a `refresh` has returned, no search that begins
    answers from an index that was older than what was on disk when that refresh was called.

    Rows mean something in one index only: to look passages up after a search take `index` once, and do both with it.

    Args:
      directory: the index.
      options: those of `open_index`; they hold at every refresh as well.

    Attributes:
      index: the one in use.
    """

    def __init__(self, directory: str | pathlib.Path, **options: Any):
        self._directory, self._options = pathlib.Path(directory), options
        self._refreshing = threading.Lock()
        self.index: Index = self._open()

    def refresh(self) -> bool:
        """Goes over to what is on disk now; returns whether that is another index than before.

        The new one is opened whole before it takes over, so searches in other threads never fail or wait. If it cannot
        be opened, the error is raised and the old one stays in use. Of several threads that ask, one opens it and the
        others wait, so that no slow one puts an older index in the place of a newer.

        Raises:
          FileNotFoundError, IndexMismatch: as `open_index`.
        """
        with self._refreshing:
            if read_manifest(self._directory) == self.index.manifest:
                return False
            self.index = self._open()
            return True

    def _open(self) -> Index:
        """The index on disk, ready: vectors for a device are put there now, so that no search waits for it."""
        index = open_index(self._directory, **self._options)
        if isinstance(index.searcher, DeviceSearcher):
            _ = index.searcher.index
        return index

    def search(self, queries: Float[np.ndarray, "B D"], k: int) -> Int32[np.ndarray, "B k"]:
        """See `Index.search`."""
        return self.index.search(queries, k)

    def search_texts(self, texts: Sequence[str], k: int) -> Found:
        """See `Index.search_texts`."""
        return self.index.search_texts(texts, k)
