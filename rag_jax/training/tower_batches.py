"""HOST. Batches for the towers: each is a function of the seed and the step, so that a run can go on anywhere."""

from __future__ import annotations

import array
import dataclasses
import pathlib

import numpy as np
from jaxtyping import Int, Shaped

from rag_jax.text.dpr_json import read_examples
from rag_jax.text.faults import ReadError
from rag_jax.text.tokens import Tokenizers
from rag_jax.text.world_facts import Counterfactuals, world_passages, world_questions
from rag_jax.training.contrastive import TowerBatch
from rag_jax.training.examples import rows_of_step
from rag_jax.types import Passage

REAL_SHARE = 3  # one group in so many is of a real country
# Passages of a country in a batch. What passages are about is learned soon, and names that were never seen are told
# apart late: so a batch has many countries, and every question meets other countries' passages on its own subject.
EACH = 2


class WorldGroups:
    """World Facts: questions with their passages, two on each country, which are hard negatives of each other.

    Real training questions and passages make a third of the groups, counterfactual ones the rest; of these every other
    one is on a namesake of the country before. Nothing of countries outside the training split is in them.

    Args:
      tokenizers: of both towers.
      batch_size: questions, each with its own passage.
      seed: of the draws.
      edition: whose countries and values are seen.
    """

    def __init__(self, tokenizers: Tokenizers, batch_size: int, seed: int, edition: str = "2020"):
        self._tokenizers, self._batch_size, self._seed = tokenizers, batch_size, seed
        self._made_up = Counterfactuals(edition)
        texts = {item.passage.id: item.passage for item in world_passages(edition)}
        self._real: dict[str, list[tuple[str, Passage]]] = {}
        for item in world_questions(edition, "train"):
            pair = item.question.text, texts[item.question.positive_ids[0]]
            self._real.setdefault(item.country, []).append(pair)

    def batch(self, step: int) -> TowerBatch:
        """The batch of a step, without further hard negatives (M = 1)."""
        rng, size = np.random.default_rng((self._seed, step)), self._batch_size
        pairs: list[tuple[str, Passage]] = []
        count = min(size // EACH // REAL_SHARE, len(self._real))
        for country in rng.choice(sorted(self._real), count, replace=False):
            shuffled = [self._real[country][number] for number in rng.permutation(len(self._real[country]))]
            own = {passage.id: (question, passage) for question, passage in shuffled}
            pairs += list(own.values())[:EACH]
        country = None
        while len(pairs) < size:
            examples = self._made_up.sample_group(rng, EACH, facts=(2, 5), namesake_of=country)
            country = examples[0].country if country is None else None
            pairs += [(example.question, Passage("", example.title, example.text)) for example in examples]
        questions, passages = zip(*pairs[:size], strict=True)
        t = self._tokenizers
        rows = _padded(t.passages(passages), t.max_passage, t.passage.pad_token_id)[:, None]
        question = _padded(t.questions(questions), t.max_question, t.question.pad_token_id)
        return TowerBatch(question, rows, np.ones(rows.shape[:2], bool))


@dataclasses.dataclass(frozen=True)
class DprExamples:
    """The questions of a file in DPR's json, as tokens.

    Attributes:
      question: int32 [N,Q].
      tokens: all passages' tokens end to end, without padding.
      ends: [passages+1], where each passage begins; the last is where the last one ends.
      first: [N+1], each question's first passage, which is its own; its hard negatives follow.
      width: P.
      pad_id: of passages.
    """

    question: Int[np.ndarray, "N Q"]
    tokens: Shaped[np.ndarray, "tokens"]
    ends: Int[np.ndarray, "_"]
    first: Int[np.ndarray, "_"]
    width: int
    pad_id: int

    @classmethod
    def read(cls, path: str | pathlib.Path, tokenizers: Tokenizers, kept_negatives: int) -> DprExamples:
        """Reads a file; questions without a positive passage are left out, as DPR leaves them out.

        Args:
          path: see `read_examples`.
          tokenizers: of both towers.
          kept_negatives: of each question, the first in the file; no more are held in memory.

        Raises:
          FileNotFoundError, ReadError: see `read_examples`; or no question has a positive passage.
        """
        t, asked = tokenizers, []
        tokens = array.array("H" if max(t.passage.get_vocab().values()) < 1 << 16 else "i")
        ends, first = array.array("q", [0]), array.array("q", [0])
        for example in read_examples(path):
            if not example.positives:
                continue
            asked.append(t.questions([example.question])[0])
            for row in t.passages([example.positives[0], *example.hard_negatives[:kept_negatives]]):
                tokens.extend(row[row != t.passage.pad_token_id].tolist())
                ends.append(len(tokens))
            first.append(len(ends) - 1)
        if not asked:
            raise ReadError(path, None, "no question has a positive passage; there is nothing to learn from")
        question = np.stack([_padded(row[None], t.max_question, t.question.pad_token_id)[0] for row in asked])
        flat = np.frombuffer(tokens, tokens.typecode), np.frombuffer(ends, np.int64), np.frombuffer(first, np.int64)
        return cls(question, *flat, t.max_passage, t.passage.pad_token_id)

    def batch(self, step: int, batch_size: int, seed: int, hard_negatives: int) -> TowerBatch:
        """The batch of a step; every question draws its hard negatives anew, without one twice."""
        rows, rng = rows_of_step(len(self.question), step, batch_size, seed), np.random.default_rng((seed, step))
        passages = np.full((batch_size, 1 + hard_negatives, self.width), self.pad_id, np.int32)
        valid = np.zeros(passages.shape[:2], bool)
        for place, row in enumerate(rows):
            own = self.first[row]
            others = own + 1 + rng.permutation(self.first[row + 1] - own - 1)[:hard_negatives]
            chosen = [own, *others]
            valid[place, : len(chosen)] = True
            for column, number in enumerate(chosen + [own] * (1 + hard_negatives - len(chosen))):
                start, end = self.ends[number], self.ends[number + 1]
                passages[place, column, : end - start] = self.tokens[start:end]
        return TowerBatch(self.question[rows], passages, valid)


def _padded(rows: Int[np.ndarray, "N L"], width: int, pad_id: int) -> Int[np.ndarray, "N M"]:
    """Rows padded to `width` columns, which they do not pass."""
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=pad_id)
