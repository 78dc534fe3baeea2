"""HOST. WebQuestions (Berant et al. 2013), one JSON array a file, in three forms.

- `webquestions.examples.train.json`, the authors': `utterance`, `targetValue` and no id, so a question's is its number;
- with the fields `qId`, `qText`, `answers`, as the set is passed on with an id for every question;
- DPR's json of retriever training.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

from rag_jax.text.records import Record, json_array, short
from rag_jax.text.tasks import dpr
from rag_jax.types import Question

_ANSWER = r'\(description (?:"((?:[^"\\]|\\.)*)"|([^()"]+))\)'
_ANSWERS = re.compile(rf"\(list(?: {_ANSWER})*\)")
_ESCAPE = re.compile(r"\\(.)")


def questions(path: pathlib.Path) -> Iterator[tuple[int | None, Question]]:
    """(line, question) of any form."""
    for number, record in enumerate(json_array(path)):
        if "positive_ctxs" in record.fields:
            yield record.line, dpr.json_question(number, record)
        elif "utterance" in record.fields:
            yield record.line, Question(str(number), record.words("utterance"), _answers(record))
        else:
            yield record.line, Question(record.id("qId"), record.words("qText"), record.texts("answers"))


def _answers(record: Record) -> tuple[str, ...]:
    """`(list (description "Jaxon Bieber") (description Barbados))` as its strings."""
    value = record.text("targetValue")
    if not _ANSWERS.fullmatch(value):
        raise record.fault(f"'targetValue' must be (list (description ...) ...), not {short(value)}; check the file")
    return tuple(_ESCAPE.sub(r"\1", quoted) or bare for quoted, bare in re.findall(_ANSWER, value))
