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
    def tokenize(cls, questions: Sequence[Question], tokenizers: Tokenizers) -> Examples:
        """Tokenizes questions with their first answers.

        Raises:
          ValueError: no questions, or one without an answer.
        """
        if not questions:
            raise ValueError("no questions to train on: give config.data.questions_path")
        for question in questions:
            if not question.answers:
                raise ValueError(f"question {question.id!r} has no answer to train on")
        texts = [question.text for question in questions]
        return cls(
            tuple(texts),
            trim(tokenizers.questions(texts), tokenizers.question.pad_token_id, 8),
            trim(tokenizers.source_questions(texts), tokenizers.source.pad_token_id, 8),
            trim(tokenizers.targets([q.answers[0] for q in questions]), tokenizers.target.pad_token_id, 8),
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
