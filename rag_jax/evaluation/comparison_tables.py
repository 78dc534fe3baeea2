"""HOST. Runs on the terminal, side by side: what they differ in, their figures, and the headline figure over k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_jax.config import get
from rag_jax.evaluation.compare import ComparedRun, differing
from rag_jax.evaluation.figures import OF_RETRIEVAL
from rag_jax.evaluation.over_k import em_points, headline
from rag_jax.evaluation.report.labels import label


def print_comparison(runs: Sequence[ComparedRun], console: Console | None = None) -> None:
    """One row a run: the fields of training in which the runs differ and the figures of answers; those of retrieval."""
    console = console or Console()
    paths = differing(runs)
    names = list(dict.fromkeys(n for run in runs for n, value in run.figures.items() if not isinstance(value, list)))
    answered = [name for name in names if not name.startswith(OF_RETRIEVAL)]
    table = _table("Runs", *(path.rpartition(".")[2].replace("_", " ") for path in paths), *map(label, answered))
    for run in runs:
        settings = [_setting(get(run.config, path)) for path in paths]
        table.add_row(Text(run.name), *map(Text, settings), *(_cell(run.figures.get(name)) for name in answered))
    console.print(table)
    retrieved = [name for name in names if name.startswith(OF_RETRIEVAL)]
    if retrieved:
        table = _table("Retrieval", *map(label, retrieved))
        for run in runs:
            table.add_row(Text(run.name), *(_cell(run.figures.get(name)) for name in retrieved))
        console.print(table)


def print_over_k(runs: Mapping[str, Mapping[str, Any]], console: Console | None = None) -> None:
    """One row a run, or a decoding of it: the headline figure for each k at test; nothing where none was measured."""
    points = em_points(runs)
    if not points:
        return
    ks = sorted({k for pairs in points.values() for k, _ in pairs})
    table = _table(f"{label(headline(next(iter(runs.values()))))} for k at test", *(f"k={k}" for k in ks))
    for name, pairs in points.items():
        at = dict(pairs)
        table.add_row(Text(name), *(_cell(at.get(k)) for k in ks))
    (console or Console()).print(table)


def _table(title: str, *columns: str) -> Table:
    """A row's name is never cut; figures stand on the right."""
    table = Table(title=title, box=None)
    table.add_column("run", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _setting(value: Any) -> str:
    return (", ".join(value) or "none") if isinstance(value, tuple) else str(value)


def _cell(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
