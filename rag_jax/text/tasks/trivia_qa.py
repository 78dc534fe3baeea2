"""HOST. TriviaQA (Joshi et al. 2017): `unfiltered-web-train.json` and its like, or DPR's json."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from rag_jax.text.records import json_object, lines
from rag_jax.text.tasks import dpr
from rag_jax.types import Question


def questions(path: pathlib.Path) -> Iterator[tuple[int | None, Question]]:
    """The questions, each with its answer first and then the answer's aliases; none where the test set hides them.

    The whole file is held in memory while it is read; `unfiltered-web-train.json` has 600 MB.
    """
    if next((line.lstrip()[0] for line in lines(path) if line.strip()), "") == "[":
        yield from dpr.json_questions(path)
        return
    data = json_object(path)
    for record in data.inner("Data", data.get("Data", "; check that it is TriviaQA's own file")):
        answers: tuple[str, ...] = ()
        if "Answer" in record.fields:
            (answer,) = record.inner("Answer", [record.fields["Answer"]])
            answers = tuple(dict.fromkeys((answer.text("Value"), *answer.texts("Aliases"))))
        yield None, Question(record.id("QuestionId"), record.words("Question"), answers)
