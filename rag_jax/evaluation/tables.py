"""HOST. Results on the terminal: a table of runs, the hot swap's two by two, answers with where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from rag_jax.evaluation.answers import exact_match
from rag_jax.evaluation.figures import OF_RETRIEVAL
from rag_jax.text.printable import terminal_text
from rag_jax.types import Answer, Question


def print_results(results: Mapping[str, Mapping[str, Any]], console: Console | None = None) -> None:
    """One table of the answers and one of retrieval, for runs that have it."""
    console = console or Console()
    alone = {run: {n: x for n, x in figures.items() if not isinstance(x, list)} for run, figures in results.items()}
    apart = {run: {n: x for n, x in figures.items() if n.startswith(OF_RETRIEVAL)} for run, figures in alone.items()}
    answered = {run: {n: x for n, x in figures.items() if n not in apart[run]} for run, figures in alone.items()}
    console.print(_by_run("Answers to the evaluation questions (shares from 0 to 1)", answered))
    retrieved = {run: figures for run, figures in apart.items() if figures}
    if retrieved:
        console.print(_by_run("Retrieval for them (shares from 0 to 1; entropy in nats)", retrieved))


def print_recall(figures: Mapping[str, Any], console: Console | None = None) -> None:
    """Recall at each k, of the figures of `search_figures`."""
    rows = figures["recall_over_k"]
    title = f"{figures['questions']:,} questions, {figures['passages']:,} passages, {figures['backend']}"
    table = Table("k", title=title)
    names = [name for name in rows[0] if name != "k"]
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*map(_cell, row.values()))
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
        shown.add_row(terminal_text(edition), *(_cell(row[f"{other}_leaders"]) for other in editions))
    (console or Console()).print(shown)


def print_answers(
    questions: Sequence[Question], answers: Sequence[Answer], count: int, console: Console | None = None
) -> None:
    """Some questions, evenly spread, with the answer and each passage's prior p(z|x) and posterior p(z|x,y)."""
    console = console or Console()
    step = max(1, len(questions) // count)
    for question, given in list(zip(questions, answers, strict=True))[::step][:count]:
        right = "right" if exact_match(given.text, question.answers) else f"wrong, it is {question.answers[0]}"
        table = Table(
            title=terminal_text(f"{question.text}? {given.text} ({right})", "table.title"), title_justify="left"
        )
        for column in ("prior", "posterior"):
            table.add_column(column, justify="right")
        table.add_column("passage")
        for source in given.sources:
            text = f"{source.passage.title}: {source.passage.text}"
            table.add_row(_cell(source.prior), _cell(source.posterior), terminal_text(text[:160]))
        console.print(table)


def _by_run(title: str, results: Mapping[str, Mapping[str, float]]) -> Table:
    """Runs against figures. The longer list goes down the page, as a terminal is seldom wide."""
    names = list(dict.fromkeys(name for figures in results.values() for name in figures))
    cells = {(run, name): _cell(figures.get(name)) for run, figures in results.items() for name in names}
    down = len(results) >= len(names)
    table = Table("run" if down else "", title=title, title_justify="left")
    for head in names if down else results:
        table.add_column(head.replace("_", " ") if down else terminal_text(head), justify="right")
    for head in results if down else names:
        row = (cells[head, name] for name in names) if down else (cells[run, head] for run in results)
        table.add_row(terminal_text(head) if down else head.replace("_", " "), *row)
    return table


def _cell(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
