"""HOST. JSON lines of `question` and `answer`: NQ-open and EfficientQA, and DrQA's copies of the other open sets.

They have no ids: a question's is its number in the file, from 0.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from rag_jax.text.records import json_lines
from rag_jax.types import Question


def questions(path: pathlib.Path) -> Iterator[tuple[int | None, Question]]:
    """(line, question) of `NQ-open.dev.jsonl` and its like; `answer` is a list of strings."""
    for number, record in enumerate(json_lines(path)):
        yield record.line, Question(str(number), record.words("question"), record.texts("answer"))
