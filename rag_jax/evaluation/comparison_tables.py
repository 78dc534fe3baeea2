"""HOST. Runs on the terminal, side by side: what they differ in, their figures, and the headline figure over k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from rag_jax.config import get
from rag_jax.evaluation.compare import ComparedRun, differing
from rag_jax.evaluation.figures import OF_RETRIEVAL
from rag_jax.evaluation.over_k import em_points, headline
from rag_jax.evaluation.report.labels import label
from rag_jax.evaluation.tables import add_figures, cell, print_whole
from rag_jax.text.printable import terminal_text


def print_comparison(runs: Sequence[ComparedRun], console: Console | None = None) -> None:
    """One row a run: the fields of training in which the runs differ and the figures of answers; those of retrieval."""
    console = console or Console()
    run_names = [run.name for run in runs]
    settings = {
        path.rpartition(".")[2].replace("_", " "): [_setting(get(run.config, path)) for run in runs]
        for path in differing(runs)
    }
    names = list(dict.fromkeys(n for run in runs for n, value in run.figures.items() if not isinstance(value, list)))
    cells = {name: [cell(run.figures.get(name)) for run in runs] for name in names}
    answered = {label(name): own for name, own in cells.items() if not name.startswith(OF_RETRIEVAL)}
    _print(console, "Runs", run_names, settings | answered)
    retrieved = {label(name): own for name, own in cells.items() if name.startswith(OF_RETRIEVAL)}
    if retrieved:
        _print(console, "Retrieval", run_names, retrieved)


def print_over_k(runs: Mapping[str, Mapping[str, Any]], console: Console | None = None) -> None:
    """One row a run, or a decoding of it: the headline figure for each k at test; nothing where none was measured."""
    points = em_points(runs)
    if not points:
        return
    ks = sorted({k for pairs in points.values() for k, _ in pairs})
    title = f"{label(headline(next(iter(runs.values()))))} for k at test"
    columns = {f"k={k}": [cell(dict(pairs).get(k)) for pairs in points.values()] for k in ks}
    _print(console or Console(), title, list(points), columns)


def _print(console: Console, title: str, names: Sequence[str], columns: Mapping[str, Sequence[str]]) -> None:
    """A row for each name, which is never cut."""
    table = Table(title=title, box=None)
    table.add_column("run", no_wrap=True)
    add_figures(table, columns)
    for name, *cells in zip(names, *columns.values(), strict=True):
        table.add_row(terminal_text(name), *map(terminal_text, cells))
    print_whole(console, table)


def _setting(value: Any) -> str:
    return (", ".join(value) or "none") if isinstance(value, tuple) else str(value)
