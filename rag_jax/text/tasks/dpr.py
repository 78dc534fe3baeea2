"""HOST. Questions as DPR's authors publish them (Karpukhin et al. 2020): QA csv, and the json of retriever training.

Their files cover Natural Questions, TriviaQA, WebQuestions and CuratedTREC. None has ids: a question's is its number in
the file, from 0.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

from rag_jax.text.faults import ReadError
from rag_jax.text.records import Record, csv_rows, json_array, short
from rag_jax.types import Question

_STRING = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}


def csv_questions(path: pathlib.Path) -> Iterator[tuple[int | None, Question]]:
    """(line, question) of `nq-test.qa.csv` and its like: question and answers, tab-separated, without a header.

    The answers are written as Python writes a list of strings. They are parsed, never evaluated.
    """
    for number, (line, row) in enumerate(csv_rows(path)):
        if len(row) != 2:
            fault = f"{len(row)} column(s) where question and answers make 2, tab-separated; quote fields with a tab"
            raise ReadError(path, line, fault)
        text, written = row
        if not text.strip():
            raise ReadError(path, line, "the question is empty; write it or remove the line")
        answers = python_strings(written)
        if answers is None:
            raise ReadError(
                path, line, f"the answers must be a list such as ['Paris', 'Lutetia'], not {short(written)}"
            )
        yield line, Question(str(number), text, answers)


def python_strings(text: str) -> tuple[str, ...] | None:
    """A list of strings as Python's `repr` writes it; None for anything else."""
    inner = text.strip()
    if not (inner.startswith("[") and inner.endswith("]")):
        return None
    found: list[str] = []
    at, end = 1, len(inner) - 1
    while True:
        at += len(inner[at:end]) - len(inner[at:end].lstrip())
        if at == end:
            return tuple(found)
        match = _STRING.match(inner, at, end)
        if match is None:
            return None
        value = _unescaped(match[1] if match[1] is not None else match[2])
        if value is None:
            return None
        found.append(value)
        at = match.end()
        rest = inner[at:end].lstrip()
        if rest[:1] not in ("", ","):
            return None
        at = end - len(rest) + len(rest[:1])


def _unescaped(text: str) -> str | None:
    """The string that Python writes so; None where it writes none so."""
    parts, at = [], 0
    for match in _ESCAPE.finditer(text):
        code = match[1] or match[2] or match[3]
        if code is None and match[4] not in _ESCAPED:
            return None
        if code is not None and (int(code, 16) > 0x10FFFF or 0xD800 <= int(code, 16) <= 0xDFFF):
            return None
        parts += [text[at : match.start()], chr(int(code, 16)) if code is not None else _ESCAPED[match[4]]]
        at = match.end()
    return "".join([*parts, text[at:]])


def json_questions(path: pathlib.Path) -> Iterator[tuple[int | None, Question]]:
    """(line, question) of `biencoder-nq-train.json` and its like, with the ids of the passages known to answer it.

    Those are the `positive_ctxs` that have an id, as `passage_id` or `psg_id`. The file is not held in memory.
    """
    for number, record in enumerate(json_array(path)):
        yield record.line, json_question(number, record)


def json_question(number: int, record: Record) -> Question:
    """One record of such a file, the `number`th."""
    found = []
    for passage in record.inner("positive_ctxs", record.fields.get("positive_ctxs", [])):
        found += [passage.id(name) for name in ("passage_id", "psg_id") if name in passage.fields][:1]
    positive_ids = tuple(dict.fromkeys(found))
    return Question(str(number), record.words("question"), record.texts("answers"), positive_ids)
