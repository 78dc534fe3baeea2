"""HOST. Retrieval alone: is an answer, or a known passage, among the first k passages? Rules as DPR's evaluation.

Pages, which KILT counts, are in `pages`.

An answer counts as present if its tokens occur in a row in the passage's text (the title does not count), after Unicode
NFD normalisation, case ignored. A token is a run of letters, numbers and marks, or any single other character that is
neither space nor control: 'U.S.' is four tokens, 'car' does not occur in 'care'.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from rag_jax.evaluation.answers import compile_answer, match_ids
from rag_jax.types import Passage, Question


def has_answer(text: str, answers: Sequence[str], regex: bool = False) -> bool:
    """Whether `text` holds any of the answers, by the module's rule.

    Args:
      text: a passage's text.
      answers: the accepted answers; one without any token occurs nowhere (in DPR's script it occurs everywhere).
      regex: the answers are regexes (CuratedTREC), searched for anywhere in the text, case ignored. Both sides are
        decomposed, as published: a class such as [eé] finds the e without an accent only.

    Raises:
      ValueError: an answer that is no regex; a string in place of a sequence of them.
    """
    if isinstance(answers, str):
        raise ValueError(f"answers are a sequence of strings, got the string {answers!r}")
    if regex:
        text = unicodedata.normalize("NFD", text)
        return any(compile_answer(_decomposed(answer)).search(text) for answer in answers)
    searched = _spaced(text)
    return any(answer != " " and answer in searched for answer in map(_spaced, answers))


def answer_recall(
    ranked: Mapping[str, Sequence[Passage]], questions: Iterable[Question], ks: Sequence[int], regex: bool = False
) -> dict[int, float]:
    """k -> the share of questions, from 0 to 1, with an answer in the text of one of their first k passages.

    Args:
      ranked: question id -> passages, best first.
      questions: the same questions, each with at least one answer.
      ks: what to cut at, each at least 1.
      regex: as in `has_answer`.

    Raises:
      ValueError: ids that differ, a question without answers, or a k past the longest ranking.
    """
    return recall(answer_ranks(ranked, questions, regex), ranked, ks)


def answer_ranks(
    ranked: Mapping[str, Sequence[Passage]], questions: Iterable[Question], regex: bool = False
) -> dict[str, int | None]:
    """Question id -> the rank, from 1, of the first passage with an answer in its text; None where no passage has one.

    Arguments are those of `answer_recall`.

    Raises:
      ValueError: ids that differ, or a question without reference answers.
    """
    ranks = {}
    for id_, question in match_ids(ranked, questions, "ranking").items():
        if not question.answers:
            raise ValueError(f"question {id_!r} has no reference answers")
        ranks[id_] = _first(has_answer(passage.text, question.answers, regex) for passage in ranked[id_])
    return ranks


def gold_recall(
    ranked_ids: Mapping[str, Sequence[str]], questions: Iterable[Question], ks: Sequence[int]
) -> dict[int, float]:
    """k -> the share of questions, from 0 to 1, with one of their `positive_ids` among the first k passage ids.

    Args:
      ranked_ids: question id -> passage ids, best first.
      questions: the same questions, each with at least one positive; leave out those without before.
      ks: what to cut at, each at least 1.

    Raises:
      ValueError: ids that differ, a question without positives, or a k past the longest ranking.
    """
    return recall(gold_ranks(ranked_ids, questions), ranked_ids, ks)


def gold_ranks(ranked_ids: Mapping[str, Sequence[str]], questions: Iterable[Question]) -> dict[str, int | None]:
    """Question id -> the rank, from 1, of the first of its positives; None where none was found.

    Arguments are those of `gold_recall`.

    Raises:
      ValueError: ids that differ, or a question without positives.
    """
    ranks = {}
    for id_, question in match_ids(ranked_ids, questions, "ranking").items():
        if not question.positive_ids:
            raise ValueError(f"question {id_!r} has no positive_ids")
        ranks[id_] = _first(passage_id in question.positive_ids for passage_id in ranked_ids[id_])
    return ranks


def recall(
    ranks: Mapping[str, int | None], ranked: Mapping[str, Sequence[object]], ks: Sequence[int]
) -> dict[int, float]:
    """k -> the share of ranks, from 0 to 1, that are at most k.

    Args:
      ranks: question id -> the rank, from 1, of what was looked for; None where it is not there.
      ranked: what it was looked for in; a k past the longest ranking would measure nothing.
      ks: what to cut at, each at least 1.

    Raises:
      ValueError: no questions, or a k past the longest ranking.
    """
    if not ranks:
        raise ValueError("no questions to score")
    longest = max(map(len, ranked.values()))
    for k in ks:
        if not 1 <= k <= longest:
            raise ValueError(f"recall at {k}, but the longest ranking holds {longest} passages")
    return {k: sum(rank is not None and rank <= k for rank in ranks.values()) / len(ranks) for k in ks}


def _first(hits: Iterable[bool]) -> int | None:
    """The rank, from 1, of the first hit; what follows it is not looked at."""
    return next((rank for rank, hit in enumerate(hits, start=1) if hit), None)


def _decomposed(regex: str) -> str:
    r"""A regex for decomposed texts: r'Sn\ě\žka' finds what 'Sněžka' finds.

    A backslash before a letter with an accent means nothing, but would before the letter that is left of it.
    """
    unescaped = re.sub(r"\\(.)", lambda escape: escape[0] if escape[1].isascii() else escape[1], regex, flags=re.DOTALL)
    return unicodedata.normalize("NFD", unescaped)


@functools.lru_cache(maxsize=1 << 15)  # an evaluation asks for a passage again and again
def _spaced(text: str) -> str:
    """The tokens, each between single spaces, so that a run of tokens is a substring; ' ' when there is none."""
    # Token by token: the lower case of a letter may depend on what follows it (the Greek sigma at a word's end).
    tokens = (token.lower() for token in _token_pattern().findall(unicodedata.normalize("NFD", text)))
    return " ".join(["", *tokens, ""])


@functools.cache
def _token_pattern() -> re.Pattern[str]:
    r"""`[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]`, spelt out: the standard library's `re` knows no Unicode categories."""
    kinds = {"word": "LNM", "space": "ZC"}
    spelt = dict.fromkeys(kinds, "")
    for kind, letters in kinds.items():
        start = None
        for code in range(sys.maxunicode + 2):
            inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] in letters
            if inside and start is None:
                start = code
            elif not inside and start is not None:
                spelt[kind] += f"\\U{start:08x}-\\U{code - 1:08x}"
                start = None
    return re.compile(f"[{spelt['word']}]+|[^{spelt['space']}]")
