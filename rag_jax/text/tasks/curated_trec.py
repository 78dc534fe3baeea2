"""HOST. CuratedTREC (Baudis and Sedivy 2015): `large2470-train.tsv` and its like, whose answers are regexes.

A model is not trained to write regexes. `with_target` gives a training question the likeliest string that its regex
stands for: the paper's way for questions whose passages match nothing (its appendix, "CuratedTrec preprocessing").
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterator

from rag_jax.text.faults import ReadError
from rag_jax.text.records import lines
from rag_jax.text.tasks.regex_strings import strings
from rag_jax.types import Question

COLUMNS = ("id", "kind", "question", "regex")
FLAGS = re.IGNORECASE | re.MULTILINE


def questions(path: pathlib.Path) -> Iterator[tuple[int | None, Question]]:
    """(line, question) of the four columns, tab-separated and not quoted; the answer is the regex."""
    for number, line in enumerate(lines(path), start=1):
        if not line.strip():
            continue
        columns = line.rstrip("\r\n").split("\t")
        if len(columns) != len(COLUMNS):
            fault = (
                f"{len(columns)} column(s) where {', '.join(COLUMNS)} make {len(COLUMNS)}, tab-separated; mend the line"
            )
            raise ReadError(path, number, fault)
        id_, _, text, regex = columns
        if not id_.strip() or not text.strip() or not regex:
            raise ReadError(path, number, "the id, the question or the regex is empty; write it or remove the line")
        yield number, Question(id_, text, (regex,))


def checked(path: pathlib.Path, rows: Iterator[tuple[int | None, Question]]) -> Iterator[tuple[int | None, Question]]:
    """Rows whose answers are regexes, each of which is one."""
    for line, question in rows:
        for answer in question.answers:
            try:
                re.compile(answer, FLAGS)
            except re.error as error:
                raise ReadError(path, line, f"the answer {answer!r} is no regex: {error}; mend it") from error
        yield line, question


def with_target(question: Question) -> Question:
    """The question with one string in the place of its regexes: the first that they both stand for and match."""
    found = [(answer, text) for answer in question.answers for text in strings(answer)]
    fitting = [text for answer, text in found if re.match(answer, text, FLAGS)]
    texts = fitting or [text for _, text in found]
    return dataclasses.replace(question, answers=tuple(texts[:1]))
