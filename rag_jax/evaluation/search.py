"""HOST. An index alone, asked many questions: what it finds, with scores, and how often the answer is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from rag_jax.evaluation.over_k import recall_over_k
from rag_jax.index import Index
from rag_jax.types import Passage, Question

BATCH = 256  # questions searched for at a time


def ranked_passages(
    index: Index, questions: Sequence[Question], vectors: Float[np.ndarray, "B D"] | None, k: int
) -> list[list[tuple[Passage, float]]]:
    """For each question the passages that the index finds and their scores, best first.

    Args:
      index: an open one.
      questions: B of them; their texts are what an index of words is searched for.
      vectors: the questions', for an index of vectors.
      k: passages a question, fewer where there are no more.
    """
    found = []
    for start in range(0, len(questions), BATCH):
        part = slice(start, start + BATCH)
        if vectors is None:
            hits = index.search_texts([question.text for question in questions[part]], k)
        else:
            hits = index.search_scored(vectors[part], k)
        for rows, scores in zip(hits.rows.tolist(), hits.scores.tolist(), strict=True):
            pairs = zip(rows, scores, strict=True)
            found.append([(index.passages[row], score) for row, score in pairs if row >= 0])
    return found


def search_figures(
    index: Index,
    questions: Sequence[Question],
    found: Sequence[Sequence[tuple[Passage, float]]],
    ks: Sequence[int],
    regex: bool = False,
) -> dict[str, Any]:
    """How often the answer is there: 'backend', 'passages' and 'questions' (how many), 'recall_over_k'.

    Args:
      index: that was searched.
      questions: what for.
      found: of `ranked_passages`, with the largest of `ks`.
      ks: where to cut.
      regex: accepted answers are regexes.

    Raises:
      ValueError: no question has an answer or a gold passage, or nothing was found for any that has.
    """
    table = recall_over_k(questions, [[passage for passage, _ in ranked] for ranked in found], ks, regex)
    if not any(len(row) > 1 for row in table):
        raise ValueError(
            "nothing to measure: no question with 'answers' or 'positive_ids' for which a passage is found"
        )
    return {
        "backend": index.manifest.backend,
        "passages": len(index.passages),
        "questions": len(questions),
        "recall_over_k": table,
    }
