"""HOST. A few passages as an index that was never on disk: those that somebody brings along with a question."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int32

from rag_jax.index.manifest import Manifest, this_program
from rag_jax.index.protocol import NO_PASSAGE, Found, check_queries, check_texts
from rag_jax.index.store import Index
from rag_jax.text.table import PassageTable
from rag_jax.types import Passage


class EveryPassage:
    """Finds all passages for every question, in their order: `Searcher` and `TextSearcher`, with scores of 0.

    Args:
      count: passages N.
      dim: D of the questions' vectors; 0 where it is asked with texts.
    """

    def __init__(self, count: int, dim: int = 0):
        self.count, self.dim = count, dim

    def search(self, queries: Float[np.ndarray, "B D"], k: int) -> Int32[np.ndarray, "B k"]:
        """The first k rows; see `Searcher.search`."""
        return self._first(len(check_queries(queries, k, self.dim)), k)

    def search_texts(self, texts: Sequence[str], k: int) -> Found:
        """The first k rows, all equally probable; see `TextSearcher.search_texts`."""
        check_texts(texts, k)
        rows = self._first(len(texts), k)
        return Found(rows, np.where(rows == NO_PASSAGE, -np.inf, 0.0).astype(np.float32))

    def _first(self, questions: int, k: int) -> Int32[np.ndarray, "B k"]:
        rows = np.arange(k, dtype=np.int32)
        return np.tile(np.where(rows < self.count, rows, np.int32(NO_PASSAGE)), (questions, 1))


@dataclasses.dataclass(frozen=True)
class InMemoryIndex(Index):
    """An index whose every passage is found for every question. `index_in_memory` makes one."""

    @property
    def searches_texts(self) -> bool:
        """Whether there are no vectors, so that the prior is uniform."""
        return not self.vectors.shape[1]


def index_in_memory(passages: Iterable[Passage], vectors: Float[np.ndarray, "N D"] | None = None) -> InMemoryIndex:
    """An index of passages in memory.

    Args:
      passages: N >= 1 passages with ids of their own.
      vectors: by the passage encoder, for a prior p(z|x) from q.d; None: a uniform one.

    Raises:
      ValueError: no passages, two with one id, or another number of vectors.
    """
    table = PassageTable.from_passages(passages)
    stored = np.zeros((len(table), 0), np.float32) if vectors is None else np.asarray(vectors, np.float32)
    if len(stored) != len(table):
        raise ValueError(f"{len(table)} passages and {len(stored)} vectors")
    manifest = Manifest(
        count=len(table),
        dim=stored.shape[1],
        passages=table.fingerprint,
        encoder="",
        backend="exact",
        parameters={},
        recall=None,
        files={},
        created_by=this_program(),
    )
    searcher = EveryPassage(len(table), stored.shape[1])
    return InMemoryIndex(pathlib.Path("(in memory)"), manifest, table, stored, searcher)
