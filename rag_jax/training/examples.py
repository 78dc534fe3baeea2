"""HOST. The order of the training questions: a function of the seed and the step, so a run can go on anywhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from rag_jax.text.tokens import Tokenizers, trim
from rag_jax.types import Question


@dataclasses.dataclass(frozen=True)
class Examples:
    """Training questions as token rows, one row for each (question, answer) pair.

    Attributes:
      texts: the N questions as they are, for a search by words.
      question: int32 [N,Q] for the question encoder.
      source_question: int32 [N,Q'] for the generator.
      target: int32 [N,T].
    """

    texts: tuple[str, ...]
    question: Int[np.ndarray, "N Q"]
    source_question: Int[np.ndarray, "N R"]
    target: Int[np.ndarray, "N T"]

    @classmethod
    def tokenize(
        cls, questions: Sequence[Question], tokenizers: Tokenizers, each: bool = False, labels: Sequence[str] = ()
    ) -> Examples:
        """Tokenizes questions with their first answers, or with each of them in turn.

        Args:
          questions: with answers.
          tokenizers: of every role.
          each: a row for each answer, not for the first alone.
          labels: what answers are, if they are classes: a target is then a label's one token, without an end token.

        Raises:
          ValueError: no questions, one without an answer, or an answer that is no label.
        """
        if not questions:
            raise ValueError("no questions to train on: give config.data.questions_path")
        for question in questions:
            if not question.answers:
                raise ValueError(f"question {question.id!r} has no answer to train on")
        pairs = [(q, answer) for q in questions for answer in (q.answers if each else q.answers[:1])]
        texts = [question.text for question, _ in pairs]
        return cls(
            tuple(texts),
            trim(tokenizers.questions(texts), tokenizers.question.pad_token_id, 8),
            trim(tokenizers.source_questions(texts), tokenizers.source.pad_token_id, 8),
            _labels(pairs, tokenizers, labels) if labels else _texts(pairs, tokenizers),
        )

    def __len__(self) -> int:
        return len(self.target)

    def batch(self, step: int, batch_size: int, seed: int) -> tuple[Int[np.ndarray, "B"], Float[np.ndarray, "B"]]:
        """Row numbers and weights of a step's batch."""
        return rows_of_step(len(self), step, batch_size, seed), np.ones(batch_size, np.float32)


def rows_of_step(count: int, step: int, batch_size: int, seed: int) -> Int[np.ndarray, "B"]:
    """Row numbers of a step's batch, of `count` rows.

    Every epoch is one permutation of all rows; batches run on over its end, so each row is seen equally often.
    """
    places = step * batch_size + np.arange(batch_size)
    epochs, offsets = np.divmod(places, count)
    rows = np.empty(batch_size, np.int64)
    for epoch in np.unique(epochs):
        order = np.random.default_rng((seed, int(epoch))).permutation(count)
        rows[epochs == epoch] = order[offsets[epochs == epoch]]
    return rows


def _texts(pairs: Sequence[tuple[Question, str]], tokenizers: Tokenizers) -> Int[np.ndarray, "N T"]:
    return trim(tokenizers.targets([answer for _, answer in pairs]), tokenizers.target.pad_token_id, 8)


def _labels(
    pairs: Sequence[tuple[Question, str]], tokenizers: Tokenizers, labels: Sequence[str]
) -> Int[np.ndarray, "N 1"]:
    ids = dict(zip(labels, tokenizers.labels(labels), strict=True))
    for question, answer in pairs:
        if answer not in ids:
            raise ValueError(f"question {question.id!r}: {answer!r} is none of config.data.labels, {', '.join(labels)}")
    return np.array([[ids[answer]] for _, answer in pairs], np.int32)
