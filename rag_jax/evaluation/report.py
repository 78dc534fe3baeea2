"""HOST. Results on the terminal: a table of runs, the hot swap's two by two, answers with where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rag_jax.evaluation.answers import exact_match
from rag_jax.types import Answer, Question


def print_results(results: Mapping[str, Mapping[str, float]], console: Console | None = None) -> None:
    """One row a run, one column a figure."""
    names = list(dict.fromkeys(name for figures in results.values() for name in figures))
    table = Table(title="Answers to the evaluation questions (shares from 0 to 1)")
    table.add_column("run")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for run, figures in results.items():
        table.add_row(escape(run), *(_cell(figures.get(name)) for name in names))
    (console or Console()).print(table)


def print_hot_swap(table: Mapping[str, Any], console: Console | None = None) -> None:
    """The paper's two by two: exact match of each edition's leaders under each edition's index."""
    editions = [name.removesuffix("_index") for name in table if name.endswith("_index")]
    shown = Table(title=f"Hot swap: {table['questions']} leaders that changed, exact match")
    shown.add_column("index")
    for edition in editions:
        shown.add_column(f"leaders of {edition}", justify="right")
    for edition in editions:
        row = table[f"{edition}_index"]
        shown.add_row(edition, *(_cell(row[f"{other}_leaders"]) for other in editions))
    (console or Console()).print(shown)


def print_answers(
    questions: Sequence[Question], answers: Sequence[Answer], count: int, console: Console | None = None
) -> None:
    """Some questions, evenly spread, with the answer and each passage's prior p(z|x) and posterior p(z|x,y)."""
    console = console or Console()
    step = max(1, len(questions) // count)
    for question, given in list(zip(questions, answers, strict=True))[::step][:count]:
        right = "right" if exact_match(given.text, question.answers) else f"wrong, it is {question.answers[0]}"
        table = Table(title=escape(f"{question.text}? {given.text} ({right})"), title_justify="left")
        for column in ("prior", "posterior"):
            table.add_column(column, justify="right")
        table.add_column("passage")
        for source in given.sources:
            text = f"{source.passage.title}: {source.passage.text}"
            table.add_row(_cell(source.prior), _cell(source.posterior), escape(text[:160]))
        console.print(table)


def _cell(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
