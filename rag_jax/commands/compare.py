"""HOST. `rag-jax compare`: evaluated runs in one table, and plots of what they differ in."""

# No `from __future__ import annotations`: typer reads the annotations' values.
import pathlib
from typing import Annotated

import typer

from rag_jax.commands.plainly import told_plainly


def compare(
    runs: Annotated[
        list[pathlib.Path],
        typer.Argument(help="Runs, or directories of runs, that eval.py was run on.", show_default=False),
    ],
    out: Annotated[pathlib.Path, typer.Option(help="Gets the plots.")] = pathlib.Path("comparison"),
    kind: Annotated[str, typer.Option("--format", help="Of the plots: png or svg.")] = "png",
) -> None:
    """Prints what runs differ in and their figures, and draws EM over k, recall over k, and bars for what was varied.

    Example:
      rag-jax compare runs/sweep runs/world --out runs/comparison
    """
    from rag_jax.evaluation.compare import read_runs
    from rag_jax.evaluation.comparison_tables import print_comparison, print_over_k
    from rag_jax.evaluation.plots import draw

    with told_plainly():
        if kind not in ("png", "svg"):
            raise ValueError(f"--format: no {kind!r}; choose png or svg")
        compared = read_runs(runs)
        print_comparison(compared)
        print_over_k({run.name: run.figures for run in compared})
        for path in draw(compared, out, kind):
            typer.echo(str(path))
