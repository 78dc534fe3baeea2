"""HOST. Exact match, regex match and F1 of answers, by the rules that the published numbers are made with.

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

from rag_jax.types import Question

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """'The  U.S.A.!' -> 'usa'; see the module's docstring for the rule."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the prediction is any of the answers, both sides normalised.

    Raises:
      ValueError: no answers.
    """
    _need_answers(answers)
    return normalise(prediction) in {normalise(answer) for answer in answers}


def regex_match(prediction: str, answers: Sequence[str]) -> bool:
    """Whether any of the answers, which are regexes as in CuratedTREC, matches the prediction (DrQA's rule).

    A match begins where the prediction as written begins, and need not reach its end; case is ignored.

    Raises:
      ValueError: no answers, or an answer that is no regex.
    """
    _need_answers(answers)
    return any(compile_answer(answer).match(prediction) is not None for answer in answers)


def f1(prediction: str, answers: Sequence[str]) -> float:
    """The best overlap of words with any answer, from 0 to 1: harmonic mean of precision and recall, repeats counted.

    Where nothing is left of one side after normalisation, it is 1 if nothing is left of the other, else 0.

    Raises:
      ValueError: no answers.
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
