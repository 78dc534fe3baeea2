"""HOST. The plots of `rag-jax compare`: lines over k, bars for what else was varied."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rag_jax.evaluation.compare import ComparedRun, series
from rag_jax.evaluation.over_k import em_points, headline
from rag_jax.evaluation.report.labels import label

INCHES = (6.0, 4.0)
BARS = {"freeze": "what is frozen", "retriever": "what finds the passages", "variant": "the marginal"}
MARKERS = "os^Dv<>P"


def draw(runs: Sequence[ComparedRun], directory: pathlib.Path, kind: str = "png") -> list[pathlib.Path]:
    """Draws what the runs have to show, and writes it.

    Args:
      runs: evaluated.
      directory: gets the plots; made if it is not there.
      kind: 'png' or 'svg'.

    Returns:
      The files, those of `em_over_test_k`, `recall_over_k`, `em_over_training_k`, `em_by_freeze`, `em_by_retriever`
      and `em_by_variant` for which some of the runs have what they show.
    """
    figure = label(headline(runs[0].figures))
    over_test = em_points({run.name: run.figures for run in runs})
    recall = {run.name: [(row["k"], row["answer"]) for row in _recall(run) if "answer" in row] for run in runs}
    lines = {
        "em_over_test_k": (over_test, "passages read at test", figure),
        "recall_over_k": (recall, "first k passages", "an answer among them"),
        "em_over_training_k": (series(runs, "k"), "passages read in training", figure),
    }
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (points, x_label, y_label) in lines.items():
        if any(points.values()):
            written.append(_write(_lines(points, x_label, y_label), directory / f"{name}.{kind}"))
    for field, x_label in BARS.items():
        if groups := series(runs, field):
            written.append(_write(_bars(groups, x_label, figure), directory / f"em_by_{field}.{kind}"))
    return written


def _recall(run: ComparedRun) -> Sequence[Mapping[str, Any]]:
    return run.figures.get("recall_over_k", ())


def _axes(x_label: str, y_label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=INCHES, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    return figure, axes


def _lines(points: Mapping[str, Sequence[tuple[int, float]]], x_label: str, y_label: str) -> Figure:
    """Shares over k, a line for each series; k on a logarithmic axis with ticks where it was measured."""
    figure, axes = _axes(x_label, y_label)
    for number, (name, pairs) in enumerate(points.items()):
        if pairs:
            axes.plot(*zip(*pairs, strict=True), marker=MARKERS[number % len(MARKERS)], markersize=4, label=name)
    ks = sorted({k for pairs in points.values() for k, _ in pairs})
    axes.set_xscale("log")
    axes.set_xticks([k for k in ks if len(ks) <= 8 or k in (1, 2, 5, 10, 20, 50, 100)], minor=False)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter("{x:g}")
    _legend(axes, len(points))
    return figure


def _bars(groups: Mapping[str, Sequence[tuple[str, float]]], x_label: str, y_label: str) -> Figure:
    """A cluster of bars for each value, a bar in it for each group."""
    figure, axes = _axes(x_label, y_label)
    values = list(dict.fromkeys(value for pairs in groups.values() for value, _ in pairs))
    width = 0.8 / len(groups)
    for number, (name, pairs) in enumerate(groups.items()):
        places = [values.index(value) + (number - (len(groups) - 1) / 2) * width for value, _ in pairs]
        drawn = axes.bar(places, [share for _, share in pairs], width * 0.92, label=name)
        axes.bar_label(drawn, fmt="{:.3f}", fontsize=8, padding=2)
    axes.set_xticks(range(len(values)), values)
    _legend(axes, len(groups))
    return figure


def _legend(axes: Axes, count: int) -> None:
    """Below the plot, where it hides nothing; one series needs none."""
    if count > 1:
        axes.figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)


def _write(figure: Figure, path: pathlib.Path) -> pathlib.Path:
    """Beside and renamed."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    figure.savefig(beside, format=path.suffix[1:], dpi=160)
    os.replace(beside, path)
    return path
