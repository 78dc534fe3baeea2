"""HOST. Jeopardy question generation (the paper's section 3.3): from an entity to the clue that asks for it.

The pairs are SearchQA's (Dunn et al. 2017): a folder for each split, with a JSON object a file; or one JSON array, as
the clues were collected at first. `question` is the clue and `answer` the entity, which here is what the model reads.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from rag_jax.text.faults import ReadError
from rag_jax.text.records import Record, json_array, json_object
from rag_jax.types import Question


def folder_questions(path: pathlib.Path) -> Iterator[tuple[None, Question]]:
    """The pairs of a folder's `.json` files, by name; a pair's id is its file's name without the ending."""
    files = sorted(path.glob("*.json"))
    if not files:
        raise ReadError(path, None, "no .json file in this folder; give the one that the authors' archive unpacks to")
    for file in files:
        yield None, _pair(file.stem, json_object(file))


def array_questions(path: pathlib.Path) -> Iterator[tuple[int | None, Question]]:
    """(line, pair) of one array; it has no ids, so a pair's is its number, from 0."""
    for number, record in enumerate(json_array(path)):
        yield record.line, _pair(str(number), record)


def _pair(id_: str, record: Record) -> Question:
    entity, clue = (_plain(record.words(name, name)) for name in ("answer", "question"))
    return Question(id_, entity, (clue,))


def _plain(text: str) -> str:
    r"""Without the quotes that the source puts around every clue, and with ' where it writes \'."""
    text = text.replace("\\'", "'").strip()
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == "'" else text
