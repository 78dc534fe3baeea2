"""HOST. Scores of answers by the names of `config.eval.metrics`, by question id: of each question, and over them all.

All are from 0 to 1, not percent. em and f1 are SQuAD's (`answers`); regex is the match of a regex, published as exact
match for CuratedTREC, and where answers are regexes em is the same. bleu1, rouge_l, accuracy and distinct_trigrams lie
in `generation`, qbleu1 in `question_bleu`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rag_jax.evaluation.answers import exact_match, f1, match_ids, regex_match
from rag_jax.evaluation.generation import bleu1, corpus_bleu1, distinct_trigrams, is_label, majority_class, rouge_l
from rag_jax.evaluation.question_bleu import q_bleu1
from rag_jax.types import Question


class Metric(NamedTuple):
    """One metric; at least one of the two is there.

    Attributes:
      each: (prediction, references) -> the score of one question; None: only a set of answers has one.
      overall: (predictions, references of each) -> the score of a set; None: the mean of `each`.
    """

    each: Callable[[str, Sequence[str]], float] | None
    overall: Callable[[Sequence[str], Sequence[Sequence[str]]], float] | None = None


class Scores(NamedTuple):
    """Scores of a set of answers.

    Attributes:
      overall: name -> over all questions.
      each: question id -> name -> score, in the order of the questions; a rank that there is none of is None.
    """

    overall: dict[str, float]
    each: dict[str, dict[str, float | None]]


METRICS = {
    "em": Metric(exact_match),
    "f1": Metric(f1),
    "regex": Metric(regex_match),
    "bleu1": Metric(bleu1, corpus_bleu1),
    "qbleu1": Metric(q_bleu1),
    "rouge_l": Metric(rouge_l),
    "accuracy": Metric(is_label),
    "distinct_trigrams": Metric(None, lambda predictions, references: distinct_trigrams(predictions)),
}


def score(
    predictions: Mapping[str, str], questions: Iterable[Question], names: Sequence[str], regex: bool = False
) -> Scores:
    """Scores predictions by the metrics of these names; with accuracy comes `majority_class`, of a constant answer.

    Args:
      predictions: question id -> what was generated.
      questions: the same questions, in any order, each with at least one answer.
      names: of `METRICS`.
      regex: the answers are regexes.

    Raises:
      ValueError: ids that differ, ids given twice, a question without answers, no questions, or an answer that is no
        regex.
    """
    by_id = match_ids(predictions, questions, "prediction")
    if not by_id:
        raise ValueError("no questions to score")
    for id_, question in by_id.items():
        if not question.answers:
            raise ValueError(f"question {id_!r} has no reference answers")
    references = [question.answers for question in by_id.values()]
    given = [predictions[id_] for id_ in by_id]
    overall: dict[str, float] = {}
    each: dict[str, dict[str, float | None]] = {id_: {} for id_ in by_id}
    for name in names:
        metric = METRICS["regex" if name == "em" and regex else name]
        if metric.each is not None:
            scores = [float(metric.each(*pair)) for pair in zip(given, references, strict=True)]
            for id_, one in zip(by_id, scores, strict=True):
                each[id_][name] = one
        overall[name] = sum(scores) / len(scores) if metric.overall is None else metric.overall(given, references)
        if name == "accuracy":
            overall["majority_class"] = majority_class(references)
    return Scores(overall, each)
