"""HOST. The report of a retrieval without a generator: recall over k, and what was found for each question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rag_jax.evaluation.report.charts import Chart, Line
from rag_jax.evaluation.report.examples import retrieval_examples
from rag_jax.evaluation.report.page import Page, Section, Table, share
from rag_jax.types import Passage, Question

MEANINGS = {
    "answer": ("an answer", "questions with an accepted answer in the text of one of the first k passages"),
    "gold": ("a gold passage", "questions with a passage known to hold the answer among the first k"),
}


def retrieval_page(
    title: str,
    figures: Mapping[str, Any],
    questions: Sequence[Question],
    found: Sequence[Sequence[tuple[Passage, float]]],
    regex: bool = False,
) -> Page:
    """The report.

    Args:
      title: of the page.
      figures: 'backend', 'passages' and 'questions' (how many), 'recall_over_k'.
      questions, found, regex: see `retrieval_examples`.
    """
    rows = figures["recall_over_k"]
    names = [name for name in MEANINGS if name in rows[0]]
    table = Table(
        "Recall",
        ("k", *(MEANINGS[name][0] for name in names)),
        tuple((str(row["k"]), *(share(row[name]) for name in names)) for row in rows),
        tuple(MEANINGS[name] for name in names),
    )
    lines = tuple(Line(MEANINGS[name][0], tuple((row["k"], row[name]) for row in rows)) for name in names)
    chart = Chart("Among the first k passages there is", "k", "recall", lines)
    return Page(
        title=title,
        summary=(
            f"{figures['questions']:,} questions over {figures['passages']:,} passages, by"
            f" backend {figures['backend']}. Figures are shares from 0 to 1."
        ),
        sections=(Section("Recall over k", charts=(chart,), tables=(table,)),),
        examples=retrieval_examples(questions, found, regex),
    )
