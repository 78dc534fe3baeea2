"""HOST. BM25 over the passages' words, by bm25s: the retriever without an encoder that learned ones are measured by."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from rag_jax.index.protocol import NO_PASSAGE, Found, check_texts
from rag_jax.types import Passage


@dataclasses.dataclass(frozen=True)
class Bm25Settings:
    """The constants of BM25, in Lucene's variant, whose scores are never negative.

    Attributes:
      k1: how soon a repeated word stops counting, 0 or more.
      b: how far long passages are held back, 0 to 1.
      stopwords: bm25s's list of words that do not count: a language ("en"), or "" for none.
    """

    k1: float = 1.5
    b: float = 0.75
    stopwords: str = "en"

    def check(self) -> None:
        """Refuses constants out of range.

        Raises:
          ValueError: one is, or the stop words are no name.
        """
        if not self.k1 >= 0 or not 0 <= self.b <= 1:
            raise ValueError(f"BM25 needs k1 >= 0 and b in 0..1, given k1 = {self.k1}, b = {self.b}")
        if not isinstance(self.stopwords, str):
            raise ValueError(f"BM25's stopwords are the name of a list of them, given {self.stopwords!r}")


class Bm25Searcher:
    """Searches titles and texts; made by `build` or `load`.

    Args:
      model: a bm25s.BM25 with an index.
      settings: what it was built with.
    """

    def __init__(self, model: Any, settings: Bm25Settings):
        self._model, self.settings = model, settings
        self.count = int(model.scores["num_docs"])

    @classmethod
    def build(cls, passages: Iterable[Passage], settings: Bm25Settings | None = None) -> Bm25Searcher:
        """Counts the words of N passages; they and their counts are held in memory.

        Raises:
          ValueError: settings out of range, or passages without a single word.
          ImportError: bm25s is not installed.
        """
        settings = settings or Bm25Settings()
        settings.check()
        words = _words((f"{passage.title} {passage.text}" for passage in passages), settings, as_ids=True)
        if not any(words.ids):
            raise ValueError("not one passage holds a word that BM25 counts; are these the texts you meant?")
        model = _bm25s().BM25(k1=settings.k1, b=settings.b, method="lucene")
        model.index(words, show_progress=False)
        return cls(model, settings)

    def search_texts(self, texts: Sequence[str], k: int) -> Found:
        """See `TextSearcher.search_texts`. The scores are BM25's own.

        Raises:
          ValueError: see there.
          ImportError: bm25s is not installed.
        """
        check_texts(texts, k)
        rows = np.full((len(texts), k), NO_PASSAGE, np.int32)
        scores = np.full((len(texts), k), -np.inf, np.float32)
        for number, words in enumerate(_words(texts, self.settings, as_ids=False)):
            known = self._model.get_tokens_ids(words)
            if known:
                found, values = _best(np.asarray(self._model.get_scores_from_ids(known), np.float32), k)
                rows[number, : len(found)], scores[number, : len(found)] = found, values
        return Found(rows, scores)

    def save(self, directory: str | pathlib.Path) -> None:
        """Writes bm25s's files into a directory, which is made and may be moved afterwards."""
        self._model.save(directory, show_progress=False)

    @classmethod
    def load(cls, directory: str | pathlib.Path, expected_count: int, settings: Bm25Settings) -> Bm25Searcher:
        """Reads what `save` wrote, memory-mapped.

        Raises:
          ValueError: files that are not whole, or of another number of passages; build the index again.
          ImportError: bm25s is not installed.
        """
        settings.check()
        try:
            model = _bm25s().BM25.load(directory, mmap=True, load_corpus=False, show_progress=False)
            found = cls(model, settings)
        except (KeyError, TypeError, OSError, EOFError) as error:
            raise ValueError(f"{directory}: not a BM25 index ({error!r})") from error
        if found.count != expected_count:
            raise ValueError(f"{directory}: BM25 over {found.count} passages, expected {expected_count}")
        return found


def _best(scores: Float32[np.ndarray, " N"], k: int) -> tuple[Int32[np.ndarray, " n"], Float32[np.ndarray, " n"]]:
    """At most k rows with positive scores, best first, equal ones in the order of rows whatever the selection does."""
    rows = np.flatnonzero(scores > 0)
    if len(rows) > k:
        rows = rows[scores[rows] >= np.partition(scores[rows], -k)[-k]]
    rows = rows[np.argsort(-scores[rows], kind="stable")[:k]]
    return rows.astype(np.int32), scores[rows]


def _words(texts: Iterable[str], settings: Bm25Settings, as_ids: bool) -> Any:
    """Texts as bm25s cuts them: lower case, words of two letters or more."""
    texts = list(texts)
    if not texts:
        return []
    return _bm25s().tokenize(texts, stopwords=settings.stopwords or None, return_ids=as_ids, show_progress=False)


def _bm25s() -> Any:
    """The bm25s module, imported late: only this backend needs it."""
    try:
        import bm25s
    except ImportError as error:
        raise ImportError("bm25s is not installed here (pip install bm25s), and the bm25 backend needs it") from error
    return bm25s
