"""HOST. Questions with their answers and passages, as few bytes as will do: what the page's script reads.

    kind       "answers", or "retrieval" where nothing was generated
    runs       their names
    passages   [title, text], each passage once; texts are cut around an answer where all would be too much
    questions  [id, text, [accepted answers]]
    answers    for each run, for each question: null, or
               [text, right, probability, [[passage, prior, posterior, flags]], hidden, tokens, heat]

`right` is 0 or 1; in retrieval the rank of the first passage with a flag, 0 where none has. `flags`: 1 where the
passage holds an answer, 2 where it is a gold one, 3 both. Probability, prior and posterior are thousandths; in
retrieval the prior is the score, and a posterior that is not known is null. `hidden` = [how many passages are not
shown, their prior, their posterior]. `heat`, for RAG-Token: for each of `tokens` hundredths over the shown passages,
and for all hidden ones together where there are any. What is shared out sums to exactly 1000, and 100.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import decoders

from rag_jax.evaluation.answers import exact_match, regex_match
from rag_jax.evaluation.retrieval import has_answer
from rag_jax.types import Answer, Passage, Question

SHOWN = 8  # passages of one example
MOST = 6000  # examples of all runs together
BYTES = 4_300_000  # of all this
LEAST_TEXT = 800_000  # bytes of passages' texts, whatever the rest takes
CUTS = (1 << 30, 2000, 1000, 700, 500, 400, 300, 240, 190, 150, 120, 90, 70)  # characters of a text
HOLDS_ANSWER, GOLD = 1, 2
THOUSANDTHS, HUNDREDTHS = 1000, 100


def answer_examples(
    runs: Mapping[str, tuple[Sequence[Question], Sequence[Answer]]], regex: bool = False, labels: bool = False
) -> dict[str, Any]:
    """The examples of some runs over one set of questions, or several.

    Args:
      runs: name -> questions and their answers, in one order.
      regex: accepted answers are regexes.
      labels: they are names of classes, which are not looked for in passages.
    """
    asked = _spread({q.id: q for questions, _ in runs.values() for q in questions}, MOST // max(1, len(runs)))
    passages = _Passages(regex, labels)
    answers = []
    for questions, given in runs.values():
        by_id = dict(zip((q.id for q in questions), given, strict=True))
        answers.append([_answered(q, by_id[q.id], passages) if q.id in by_id else None for q in asked])
    return _examples("answers", list(runs), asked, answers, passages)


def retrieval_examples(
    questions: Sequence[Question], found: Sequence[Sequence[tuple[Passage, float]]], regex: bool = False
) -> dict[str, Any]:
    """The examples of a retrieval without a generator.

    Args:
      questions: with accepted answers, or with gold passages, or with neither.
      found: for each question its passages and their scores, best first.
      regex: accepted answers are regexes.
    """
    by_id = dict(zip((q.id for q in questions), found, strict=True))
    asked = _spread({q.id: q for q in questions}, MOST)
    passages = _Passages(regex)
    entries = []
    for question in asked:
        ranked = by_id[question.id]
        rank = next((n for n, (p, _) in enumerate(ranked, start=1) if passages.flags(p, question)), 0)
        shown = [
            [passages.number(p, question), round(score, 3), 0, passages.flags(p, question)]
            for p, score in ranked[:SHOWN]
        ]
        entries.append(["", rank, 0, shown, [max(0, len(ranked) - SHOWN), 0, 0], [], []])
    return _examples("retrieval", [""], asked, [entries], passages)


def whole_parts(shares: Sequence[float], total: int) -> list[int]:
    """Shares as whole numbers that sum to `total`: what rounding down leaves goes to the largest remainders.

    Shares of a sum that is not quite 1, as of floats, are taken of that sum; of nothing, the first gets all.
    """
    whole = sum(shares)
    exact = [value / whole * total for value in shares] if whole > 0 else [float(total)] + [0.0] * (len(shares) - 1)
    parts = [math.floor(value) for value in exact]
    largest = sorted(range(len(parts)), key=lambda i: parts[i] - exact[i])
    for i in largest[: total - sum(parts)]:
        parts[i] += 1
    return parts


def cut_around(text: str, most: int, answers: Sequence[str]) -> str:
    """At most about `most` characters of a text, whole words, around the first answer that stands in it."""
    if len(text) <= most:
        return text
    lowered = text.lower()
    places = [place for place in (lowered.find(answer.lower()) for answer in answers if answer) if place >= 0]
    start = max(0, min(min(places, default=0) - most // 3, len(text) - most))
    if start:  # to the next word's beginning, if there is one nearby
        start = next((i + 1 for i in range(start - 1, min(start + 20, len(text) - 1)) if text[i].isspace()), start)
    end = min(len(text), start + most)
    if end < len(text):
        end = next((i for i in range(end, max(end - 20, start), -1) if text[i].isspace()), end)
    return "…" * (start > 0) + text[start:end].strip() + "…" * (end < len(text))


def readable(token: str) -> str:
    """A token of byte-level BPE as text, its leading space as '␣'; what is half a letter stays as '�'."""
    return decoders.ByteLevel().decode([token]).replace(" ", "␣") or token


class _Passages:
    """The passages that examples point to, each once, with the answers to cut it around."""

    def __init__(self, regex: bool, labels: bool = False):
        self.regex, self.labels = regex, labels
        self.numbers: dict[Passage, int] = {}
        self.answers: list[tuple[str, ...]] = []
        self.known: dict[tuple[str, Passage], int] = {}

    def number(self, passage: Passage, question: Question) -> int:
        """The passage's place in the list, where it is put now if it is new."""
        if passage not in self.numbers:
            self.numbers[passage] = len(self.answers)
            self.answers.append(())
        number = self.numbers[passage]
        if not self.answers[number] and self.flags(passage, question) & HOLDS_ANSWER:
            self.answers[number] = question.answers
        return number

    def flags(self, passage: Passage, question: Question) -> int:
        """Whether it holds an answer, and whether it is a gold one."""
        key = question.id, passage
        if key not in self.known:
            sought = bool(question.answers) and not self.labels
            holds = sought and has_answer(passage.text, question.answers, self.regex)
            self.known[key] = HOLDS_ANSWER * holds + GOLD * (passage.id in question.positive_ids)
        return self.known[key]

    def texts(self, most_bytes: int) -> list[list[str]]:
        """[title, text] of each, cut to the longest of CUTS with which all together take about so many bytes."""
        lengths = [len(passage.text) for passage in self.numbers]
        bytes_each = sum(len(passage.text.encode()) for passage in self.numbers) / max(1, sum(lengths))
        fit = (most for most in CUTS if sum(min(length, most) for length in lengths) * bytes_each <= most_bytes)
        most = next(fit, CUTS[-1])
        pairs = zip(self.numbers, self.answers, strict=True)
        return [[passage.title, cut_around(passage.text, most, answers)] for passage, answers in pairs]


def _answered(question: Question, answer: Answer, passages: _Passages) -> list[Any]:
    """One run's answer to one question; of many passages the likeliest are shown, before or after the answer."""
    sources = answer.sources
    best = sorted(range(len(sources)), key=lambda i: -sources[i].prior - (sources[i].posterior or 0.0))[:SHOWN]
    order = [*sorted(best), *sorted(set(range(len(sources))) - set(best))]
    priors = _split([sources[i].prior for i in order], THOUSANDTHS)
    posteriors = _split([sources[i].posterior for i in order], THOUSANDTHS)
    listed = [
        [passages.number(s.passage, question), prior, posterior, passages.flags(s.passage, question)]
        for s, prior, posterior in zip([sources[i] for i in order[:SHOWN]], priors, posteriors, strict=False)
    ]
    count = len(order) - len(listed)
    hidden = [count, priors[-1], posteriors[-1]] if count else [0, 0, 0]
    by_token = bool(sources) and bool(sources[0].token_posterior)
    tokens = [readable(token) for token in answer.tokens] if by_token else []
    heat = [_split([sources[i].token_posterior[t] for i in order], HUNDREDTHS) for t in range(len(tokens))]
    match = regex_match if passages.regex else exact_match
    right = int(bool(question.answers) and match(answer.text, question.answers))
    probability = round(math.exp(min(answer.logprob, 0.0)) * THOUSANDTHS)
    return [answer.text, right, probability, listed, hidden, tokens, heat]


def _split(shares: Sequence[float | None], total: int) -> list[Any]:
    """Whole parts of the shown ones, and of all others together where there are any; None where they are not known."""
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        return [None] * min(len(shares), SHOWN + 1)
    shown, others = known[:SHOWN], known[SHOWN:]
    return whole_parts([*shown, sum(others)] if others else shown, total) if shown else []


def _examples(
    kind: str, runs: Sequence[str], asked: Sequence[Question], answers: Sequence[Any], passages: _Passages
) -> dict[str, Any]:
    """All of it, once the passages know how much room is left."""
    rest = {
        "kind": kind,
        "runs": list(runs),
        "questions": [[q.id, q.text, list(q.answers)] for q in asked],
        "answers": list(answers),
    }
    taken = len(json.dumps(rest, ensure_ascii=False, separators=(",", ":")).encode())
    return {**rest, "passages": passages.texts(max(BYTES - taken, LEAST_TEXT))}


def _spread(questions: Mapping[str, Question], most: int) -> list[Question]:
    """All, or so many of them evenly spaced."""
    listed = list(questions.values())
    return listed if len(listed) <= most else [listed[i * len(listed) // most] for i in range(most)]
