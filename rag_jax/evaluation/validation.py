"""HOST. Validation while a run trains: the figures that its best checkpoints are told by."""

from __future__ import annotations

from typing import Any

from rag_jax.config import Config, k_at_test
from rag_jax.evaluation.metrics import score
from rag_jax.experiment import Parts, answer_questions
from rag_jax.rag.retrieve import ClosedBook, Retriever
from rag_jax.text.datasets import spread


def validation_figures(
    config: Config, parts: Parts, params: dict[str, Any], retriever: Retriever | ClosedBook
) -> dict[str, float]:
    """Answers `config.train.validation_questions` of the validation questions, evenly spaced, and scores the answers.

    Where the passage encoder is trained too, passages are found as the steps find them: in the index as it was last
    made, scored by the encoder as it is now.

    Args:
      config: final. `eval` says how they are answered and by which metrics they are scored; not with which retriever.
      parts: with the validation questions.
      params: of the run as it stands, on the host.
      retriever: the run's.

    Returns:
      The metrics by name, from 0 to 1, in the order of `config.eval.metrics`.
    """
    questions = spread(parts.collection.validation, config.train.validation_questions)
    asked = retriever if isinstance(retriever, ClosedBook) else retriever.with_k(k_at_test(config))
    answers = answer_questions(config, parts, params, asked, questions)
    predictions = {question.id: found.text for question, found in zip(questions, answers, strict=True)}
    return score(predictions, questions, config.eval.metrics, config.data.regex_answers).overall
