"""HOST. MS MARCO 2.1 (Bajaj et al. 2016): `train_v2.1.json` and its like, one object of columns.

Every column is an object of row number -> value. The task is the one of natural language generation: questions that
people answered in a well-formed sentence. A file is held in memory while it is read; the training set has gigabytes.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

from rag_jax.text.records import Record, json_object, short
from rag_jax.types import Passage, Question

NO_ANSWERS = "[]"  # as the authors write that there are none


def questions(path: pathlib.Path) -> Iterator[tuple[None, Question]]:
    """The questions with well-formed answers, of a file without any (the test set) all; with the passages marked."""
    data = json_object(path)
    hidden = "wellFormedAnswers" not in data.fields
    for row in _rows(data, ("query_id", "query", *(() if hidden else ("wellFormedAnswers",)))):
        answers = () if hidden or row.fields["wellFormedAnswers"] == NO_ANSWERS else row.texts("wellFormedAnswers")
        if answers or hidden:
            id_ = row.id("query_id")
            marked = [number for number, passage in _passages(row) if passage.fields.get("is_selected") == 1]
            yield None, Question(id_, row.words("query"), answers, tuple(f"{id_}-{number}" for number in marked))


def passages(path: pathlib.Path) -> Iterator[tuple[None, Passage]]:
    """The passages that came with each question, about ten, as `<query id>-<number>`; the title is the address."""
    for row in _rows(json_object(path), ("query_id", "query", "passages")):
        for number, passage in _passages(row):
            title = passage.text("url") if "url" in passage.fields else ""
            yield None, Passage(f"{row.id('query_id')}-{number}", title, passage.text("passage_text"))


def _passages(row: Record) -> list[tuple[int, Record]]:
    return list(enumerate(row.inner("passages", row.fields.get("passages", []))))


def _rows(data: Record, needed: tuple[str, ...]) -> Iterator[Record]:
    """The rows, in the order of the first column needed, with all the columns that the file has."""
    columns: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys((*needed, *data.fields)):
        column = data.get(name, "; check that it is MS MARCO's own file")
        if not isinstance(column, dict):
            raise data.fault(f"{name!r} must be an object of row number -> value, not {short(column)}")
        columns[name] = column
    for number in columns[needed[0]]:
        missing = [name for name in needed if number not in columns[name]]
        if missing:
            raise data.fault(f"row {number!r} is missing from column {missing[0]!r}; download the file again")
        fields = {name: column[number] for name, column in columns.items() if number in column}
        yield Record(data.path, None, fields, f"row {number!r}: ")
