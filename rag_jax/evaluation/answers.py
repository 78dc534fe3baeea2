"""HOST. Exact match and F1 of answers, by the rules that the published numbers are made with.

The normalisation is SQuAD's (Rajpurkar et al. 2016), which DPR and RAG took over unchanged: lower case, no punctuation,
no articles, single spaces, in this order. Two corners of it are kept as published, so that numbers compare: only ASCII
punctuation is removed ('«Paris»' is not 'paris'), and Unicode is not normalised ('é' in one code point is not 'é' in
two). Retrieval's `has_answer` has a rule of its own.
"""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rag_jax.types import Question

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Score(NamedTuple):
    """One question's exact match and F1, both from 0 to 1."""

    exact_match: float
    f1: float


def normalise(text: str) -> str:
    """'The  U.S.A.!' -> 'usa'; see the module's docstring for the rule."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str], regex: bool = False) -> bool:
    """Whether the prediction is one of the answers.

    Args:
      prediction: what was generated.
      answers: the accepted answers; any of them counts.
      regex: the answers are regexes, as in CuratedTREC: each has to match from the start of the prediction as written,
        case ignored (DrQA's rule). Else both sides are normalised and compared.

    Raises:
      ValueError: no answers, or an answer that is no regex.
    """
    _need_answers(answers)
    if regex:
        return any(compile_answer(answer).match(prediction) is not None for answer in answers)
    return normalise(prediction) in {normalise(answer) for answer in answers}


def f1(prediction: str, answers: Sequence[str]) -> float:
    """The best overlap of words with any answer, from 0 to 1: harmonic mean of precision and recall, repeats counted.

    Where nothing is left of one side after normalisation, it is 1 if nothing is left of the other, else 0.
    """
    _need_answers(answers)
    return max(_overlap(normalise(prediction).split(), normalise(answer).split()) for answer in answers)


def compile_answer(answer: str) -> re.Pattern[str]:
    """A CuratedTREC answer as a compiled regex: case ignored, `^` and `$` at lines.

    Raises:
      ValueError: it is no regex, with its text.
    """
    try:
        return re.compile(answer, re.IGNORECASE | re.MULTILINE)
    except re.error as error:
        raise ValueError(f"answer {answer!r} is no regex: {error}") from None


def score_each(predictions: Mapping[str, str], questions: Iterable[Question], regex: bool = False) -> dict[str, Score]:
    """Question id -> `Score`, in the order of the questions; with `regex` both numbers are the exact match.

    Raises:
      ValueError: ids of `predictions` and `questions` that differ, ids given twice, or a question without answers.
    """
    by_id = match_ids(predictions, questions, "prediction")
    found = {}
    for id_, question in by_id.items():
        if not question.answers:
            raise ValueError(f"question {id_!r} has no reference answers")
        matched = float(exact_match(predictions[id_], question.answers, regex))
        found[id_] = Score(matched, matched if regex else f1(predictions[id_], question.answers))
    return found


def score(predictions: Mapping[str, str], questions: Iterable[Question], regex: bool = False) -> dict[str, float]:
    """{'exact_match', 'f1': means over the questions, from 0 to 1 (not percent), 'questions': how many}.

    Raises:
      ValueError: as `score_each`, or no questions at all.
    """
    scores = list(score_each(predictions, questions, regex).values())
    if not scores:
        raise ValueError("no questions to score")
    means = {name: sum(getattr(one, name) for one in scores) / len(scores) for name in Score._fields}
    return means | {"questions": len(scores)}


def match_ids(given: Mapping[str, object], questions: Iterable[Question], what: str) -> dict[str, Question]:
    """Question id -> question, once `given` is known to hold exactly the same ids.

    Args:
      what: what `given` holds for each question, for the message.

    Raises:
      ValueError: missing, extra or repeated ids; the first few are named.
    """
    questions = list(questions)
    by_id = {question.id: question for question in questions}
    if len(by_id) < len(questions):
        counts = collections.Counter(question.id for question in questions)
        raise ValueError(f"question ids given twice: {_some([id_ for id_, count in counts.items() if count > 1])}")
    missing = [id_ for id_ in by_id if id_ not in given]
    extra = [id_ for id_ in given if id_ not in by_id]
    complaints = [f"no {what} for {_some(missing)}"] * bool(missing)
    complaints += [f"a {what} for unknown {_some(extra)}"] * bool(extra)
    if complaints:
        raise ValueError("; ".join(complaints))
    return by_id


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return ", ".join(map(repr, ids[:3])) + more


def _need_answers(answers: Sequence[str]) -> None:
    if isinstance(answers, str):
        raise ValueError(f"answers are a sequence of strings, got the string {answers!r}")
    if not answers:
        raise ValueError("no reference answers to compare with")


def _overlap(prediction: Sequence[str], answer: Sequence[str]) -> float:
    if not prediction or not answer:
        return float(prediction == answer)
    shared = (collections.Counter(prediction) & collections.Counter(answer)).total()
    return 2 * shared / (len(prediction) + len(answer))
