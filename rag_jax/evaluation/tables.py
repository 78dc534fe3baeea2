"""HOST. Results on the terminal: a table of runs, the hot swap's two by two, answers with where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.measure import Measurement
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
    print_whole(console, _by_run("Answers to the evaluation questions (shares from 0 to 1)", answered))
    retrieved = {run: figures for run, figures in apart.items() if figures}
    if retrieved:
        print_whole(console, _by_run("Retrieval for them (shares from 0 to 1; entropy in nats)", retrieved))


def print_recall(figures: Mapping[str, Any], console: Console | None = None) -> None:
    """Recall at each k, of the figures of `search_figures`."""
    rows = figures["recall_over_k"]
    title = f"{figures['questions']:,} questions, {figures['passages']:,} passages, {figures['backend']}"
    table = Table("k", title=title)
    names = [name for name in rows[0] if name != "k"]
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*map(cell, row.values()))
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
        shown.add_row(terminal_text(edition), *(cell(row[f"{other}_leaders"]) for other in editions))
    (console or Console()).print(shown)


def add_figures(table: Table, columns: Mapping[str, Sequence[str]]) -> None:
    """A column on the right for each head, which wraps between words alone; figures never do."""
    for head, cells in columns.items():
        table.add_column(terminal_text(head), justify="right", min_width=max(map(len, [*head.split(), *cells])))


def print_whole(console: Console, table: Table) -> None:
    """The table with no figure cut, though its lines be longer than the terminal's: what is piped has no width."""
    least = Measurement.get(console, console.options.update(max_width=10_000), table).minimum
    console.print(table, width=max(console.width, least), crop=False)


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
            table.add_row(cell(source.prior), cell(source.posterior), terminal_text(text[:160]))
        console.print(table)


def _by_run(title: str, results: Mapping[str, Mapping[str, float]]) -> Table:
    """Runs against figures. The longer list goes down the page, as a terminal is seldom wide."""
    names = list(dict.fromkeys(name for figures in results.values() for name in figures))
    cells = {(run, name): cell(figures.get(name)) for run, figures in results.items() for name in names}
    down = len(results) >= len(names)
    table = Table("run" if down else "", title=title, title_justify="left")
    by_name = {name.replace("_", " "): [cells[run, name] for run in results] for name in names}
    by_run = {run: [cells[run, name] for name in names] for run in results}
    columns, rows = (by_name, by_run) if down else (by_run, by_name)
    add_figures(table, columns)
    for head, row in rows.items():
        table.add_row(terminal_text(head), *row)
    return table


def cell(value: float | int | None) -> str:
    """A count as it is, a share with three places, '-' for what was not measured."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
