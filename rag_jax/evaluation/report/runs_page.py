"""HOST. The report of evaluated runs: results, retrieval beside generation, curves over k, the hot swap, examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rag_jax.config import LEAVES, Config, get, to_json
from rag_jax.evaluation.answers import exact_match, regex_match
from rag_jax.evaluation.figures import OF_RETRIEVAL
from rag_jax.evaluation.over_k import em_points, headline
from rag_jax.evaluation.report.charts import Bars, Chart, Line
from rag_jax.evaluation.report.examples import answer_examples
from rag_jax.evaluation.report.labels import label, notes
from rag_jax.evaluation.report.page import Page, Section, Table, share
from rag_jax.evaluation.retrieval import has_answer
from rag_jax.types import Answer, Question

ALWAYS = ("variant", "retriever", "k", "eval.k")  # fields that are shown even where all runs agree
OUTCOMES = ("retrieved, right", "retrieved, wrong", "not retrieved, right", "not retrieved, wrong")


@dataclasses.dataclass(frozen=True)
class ReportedRun:
    """An evaluated run.

    Attributes:
      name: that of its directory.
      config: as it was evaluated, final.
      questions, answers: in one order.
      figures: shares and counts by name, and the tables 'recall_over_k' and 'em_over_k'.
    """

    name: str
    config: Config
    questions: Sequence[Question]
    answers: Sequence[Answer]
    figures: Mapping[str, Any]


def runs_page(title: str, runs: Sequence[ReportedRun], hot_swap: Mapping[str, Any] | None = None) -> Page:
    """The report of at least one run; `hot_swap` is the table of `rag_jax.evaluation.hot_swap`."""
    sections = [_results(runs), _beside(runs), _over_k(runs), _swapped(hot_swap)]
    counts = sorted({len(run.questions) for run in runs})
    asked = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    some = "One run" if len(runs) == 1 else f"{len(runs)} runs"
    return Page(
        title=title,
        summary=f"{some}, {asked} questions. Figures are shares from 0 to 1.",
        sections=tuple(section for section in sections if section is not None),
        examples=answer_examples(
            {run.name: (run.questions, run.answers) for run in runs},
            regex=any(run.config.data.regex_answers for run in runs),
            labels=any(run.config.data.labels for run in runs),
        ),
        settings=tuple((run.name, to_json(run.config)) for run in runs),
    )


def _results(runs: Sequence[ReportedRun]) -> Section:
    names = list(dict.fromkeys(n for run in runs for n, value in run.figures.items() if not isinstance(value, list)))
    retrieved = [name for name in names if name.startswith(OF_RETRIEVAL)]
    found = [run for run in runs if any(name in run.figures for name in retrieved)]
    tables = [_figures("Answers", runs, [name for name in names if name not in retrieved])]
    tables += [_figures("Retrieval", found, retrieved)] * bool(found)
    paths = [path for path in LEAVES if path in ALWAYS or len({get(run.config, path) for run in runs}) > 1]
    settings = Table(
        "Settings",
        ("run", *paths),
        tuple((run.name, *(_setting(get(run.config, path)) for path in paths)) for run in runs),
        words=True,
    )
    return Section("Results", tables=(*tables, settings))


def _figures(title: str, runs: Sequence[ReportedRun], names: Sequence[str]) -> Table:
    """One row a run, one column a figure."""
    rows = tuple((run.name, *(share(run.figures.get(name)) for name in names)) for run in runs)
    return Table(title, ("run", *map(label, names)), rows, notes(names))


def _setting(value: Any) -> str:
    return ", ".join(value) or "–" if isinstance(value, tuple) else "–" if value is None else str(value)


def _beside(runs: Sequence[ReportedRun]) -> Section | None:
    """Where answers are lost: not retrieved, or retrieved and not said. Labels are looked for in no passage."""
    runs = [run for run in runs if not run.config.data.labels]
    found = [(run.name, _outcomes(run)) for run in runs if any(answer.sources for answer in run.answers)]
    if not found:
        return None
    columns = ("run", *OUTCOMES, "right where retrieved", "right where not")
    rows = tuple((name, *map(share, (*shares, *_conditional(shares)))) for name, shares in found)
    text = (
        "Each question counts once: whether an accepted answer stands in a retrieved passage, and whether the answer"
        " given is right. What was retrieved and is wrong, generation lost; what was not retrieved, retrieval did."
    )
    return Section(
        "Retrieval beside generation",
        text,
        (Table("Shares of the questions", columns, rows),),
        bars=(Bars("Where answers are lost", OUTCOMES, tuple(found)),),
    )


def _outcomes(run: ReportedRun) -> tuple[float, ...]:
    """The share of the questions for each of OUTCOMES."""
    counts, regex = [0] * len(OUTCOMES), run.config.data.regex_answers
    match = regex_match if regex else exact_match
    for question, answer in zip(run.questions, run.answers, strict=True):
        texts = [source.passage.text for source in answer.sources]
        retrieved = any(has_answer(text, question.answers, regex) for text in texts)
        counts[2 * (not retrieved) + (not match(answer.text, question.answers))] += 1
    return tuple(count / len(run.questions) for count in counts)


def _conditional(shares: Sequence[float]) -> list[float | None]:
    """Right among the retrieved, and among the others; None where there are none."""
    return [right / (right + wrong) if right + wrong else None for right, wrong in (shares[:2], shares[2:])]


def _over_k(runs: Sequence[ReportedRun]) -> Section | None:
    """Curves: recall at k, and the headline figure over k where it was measured."""
    charts = []
    for name, title in (("answer", "An answer among the first k"), ("gold", "A gold passage among the first k")):
        lines = _recall_lines(runs, name)
        if lines:
            charts.append(Chart(title, "k", "recall", lines))
    for name in dict.fromkeys(headline(run.figures) for run in runs):  # a chart has one figure
        points = em_points({run.name: run.figures for run in runs if headline(run.figures) == name})
        if not points:
            continue
        figure = label(name)
        lines = tuple(Line(run, tuple(found)) for run, found in points.items())
        charts.append(Chart(f"{figure} over k at test", "k", figure, lines))
    text = "Recall is that of the passages as ranked by the prior p(z|x)."
    return Section("Over k", text, charts=tuple(charts)) if charts else None


def _recall_lines(runs: Sequence[ReportedRun], name: str) -> tuple[Line, ...]:
    tables = [(run.name, run.figures.get("recall_over_k", ())) for run in runs]
    points = [(run, tuple((row["k"], row[name]) for row in rows if name in row)) for run, rows in tables]
    return tuple(Line(run, found) for run, found in points if found)


def _swapped(table: Mapping[str, Any] | None) -> Section | None:
    """The paper's two by two."""
    if table is None:
        return None
    editions = [name.removesuffix("_index") for name in table if name.endswith("_index")]
    rows = tuple(
        (edition, *(share(table[f"{edition}_index"][f"{other}_leaders"]) for other in editions)) for edition in editions
    )
    text = (
        f"One trained RAG-Sequence is asked for {table['questions']} leaders who changed, with the index of either"
        " edition and nothing trained again: it answers as its index says."
    )
    columns = ("index", *(f"leaders of {edition}" for edition in editions))
    return Section("Hot swap", text, (Table("Exact match", columns, rows),))
