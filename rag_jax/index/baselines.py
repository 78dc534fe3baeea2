"""HOST. What retrieval is measured against: passages drawn at random, and the oracle that knows the gold passages.

Both are asked with texts, as BM25 is (`TextSearcher`), and find all their passages equally probable: scores of 0.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Float32, Int32

from rag_jax.index.protocol import NO_PASSAGE, Found, TextSearcher, check_texts
from rag_jax.text.table import PassageTable
from rag_jax.types import Question


class RandomSearcher:
    """k passages for each question, drawn uniformly without replacement.

    The draw depends on the seed and the question's text alone: it is the same in every epoch, batch and process.

    Args:
      count: passages N.
      seed: another one draws others.
    """

    def __init__(self, count: int, seed: int = 0):
        self.count, self.seed = count, seed

    def search_texts(self, texts: Sequence[str], k: int) -> Found:
        """See `TextSearcher.search_texts`; the order is the draw's."""
        check_texts(texts, k)
        return _equal([self._draw(text, min(k, self.count)) for text in texts], k)

    def _draw(self, text: str, k: int) -> Sequence[int]:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        numbers = np.random.default_rng([self.seed, *np.frombuffer(digest, "<u4").tolist()])
        return numbers.choice(self.count, k, replace=False).tolist()


class GoldSearcher:
    """The passages that are known to hold the answer (`Question.positive_ids`) and no others.

    The places left over hold no passage: with more of them the answer would be looked for elsewhere too. Questions of
    one text share their gold passages.

    Args:
      passages: where the ids are looked up; ids that it lacks are left out.
      questions: those that may be asked.

    Attributes:
      most: the most gold passages that a question has.

    Raises:
      ValueError: a question without any, by its id.
    """

    def __init__(self, passages: PassageTable, questions: Sequence[Question]):
        self._rows: dict[str, list[int]] = {}
        for question in questions:
            known = self._rows.setdefault(question.text, [])
            for id_ in question.positive_ids:
                try:
                    row = passages.row_of(id_)
                except KeyError:
                    continue
                if row not in known:
                    known.append(row)
        without = [question.id for question in questions if not self._rows[question.text]]
        if without:
            raise ValueError(
                f"retriever 'gold': question {without[0]!r} has no gold passage in the index (positive_ids)"
                + f", nor have {len(without) - 1} others" * (len(without) > 1)
                + "; leave them out, or choose another retriever"
            )
        self.most = max(map(len, self._rows.values()), default=1)

    def search_texts(self, texts: Sequence[str], k: int) -> Found:
        """See `TextSearcher.search_texts`; of more than k gold passages the first.

        Raises:
          ValueError: also a text that is none of the questions'.
        """
        check_texts(texts, k)
        for text in texts:
            if text not in self._rows:
                raise ValueError(f"retriever 'gold': no gold passage is known for the question {text!r}")
        return _equal([self._rows[text] for text in texts], k)


def _equal(rows: Sequence[Sequence[int]], k: int) -> Found:
    """The first k rows of each question, with scores of 0."""
    found = np.full((len(rows), k), NO_PASSAGE, np.int32)
    for places, own in zip(found, rows, strict=True):
        places[: len(own)] = own[:k]
    return Found(found, np.where(found == NO_PASSAGE, -np.inf, 0.0).astype(np.float32))


@dataclasses.dataclass(frozen=True)
class Baseline:
    """What a retriever needs of an index, where nothing is built and no vector is stored.

    Attributes:
      passages: N passages.
      searcher: one of this module's, over their rows.
    """

    passages: PassageTable
    searcher: TextSearcher
    searches_texts = True

    @property
    def vectors(self) -> Float32[np.ndarray, "N 0"]:
        """None, as where an index searches texts."""
        return np.zeros((len(self.passages), 0), np.float32)

    def search(self, queries: Float[np.ndarray, "B D"], k: int) -> Int32[np.ndarray, "B k"]:
        """Refused, as by every index that searches texts.

        Raises:
          ValueError: always.
        """
        raise ValueError("a baseline searches texts: call search_texts")

    def search_texts(self, texts: Sequence[str], k: int) -> Found:
        """See `TextSearcher.search_texts`."""
        return self.searcher.search_texts(texts, k)
