"""HOST. Evaluation of runs: answers to a split, scored; one table for a directory of runs."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rag_jax.config import Config, as_evaluated, finalise, from_json, k_at_test
from rag_jax.evaluation.answers import compile_answer
from rag_jax.evaluation.figures import figures_of
from rag_jax.evaluation.hot_swap import hot_swap
from rag_jax.evaluation.over_k import figures_over_k
from rag_jax.evaluation.pages import gold_pages
from rag_jax.evaluation.report.page import render
from rag_jax.evaluation.report.runs_page import ReportedRun, runs_page
from rag_jax.evaluation.tables import print_answers, print_hot_swap, print_results
from rag_jax.experiment import (
    Parts,
    answer_questions,
    evaluation_layout,
    load_parts,
    make_retriever,
    trained_parts,
)
from rag_jax.rag.retrieve import ClosedBook
from rag_jax.sharding import is_first
from rag_jax.text.datasets import spread
from rag_jax.text.whole_files import write_json, write_text
from rag_jax.types import Answer, Question

Restore = Callable[[Config, pathlib.Path, Parts], dict[str, Any]]
EXAMPLES = 10


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """One evaluated run: what it was, what it answered, the figures, and the scores of each question by its id.

    Attributes:
      config: with evaluation's retriever.
      figures: those of `figures_of`, and the tables of `figures_over_k`.
    """

    config: Config
    parts: Parts
    params: dict[str, Any]
    questions: tuple[Question, ...]
    answers: tuple[Answer, ...]
    figures: dict[str, Any]
    scores: dict[str, dict[str, float | None]]


def evaluate(
    config: Config,
    workdir: str | os.PathLike[str],
    restore: Restore,
    *,
    ks: Sequence[int] = (),
    decodings: Sequence[str] = (),
    answered: Callable[[Sequence[Question], Sequence[Answer]], None] | None = None,
) -> Evaluated:
    """Answers the evaluation questions of one run.

    Args:
      config: the run's, final.
      workdir: the run's directory.
      restore: gives the trained parameters (evaluation does not know training).
      ks, decodings: further settings to answer with, see `figures_over_k`.
      answered: takes the questions and their answers before these are scored, so that no fault in that loses them.

    Raises:
      FileNotFoundError: no checkpoint.
      ValueError: no questions, some that cannot be scored, or a run of another recipe than 'rag'.
    """
    if config.recipe != "rag":
        raise ValueError(f"{workdir}: a run of recipe {config.recipe} answers no questions; see its metrics.jsonl")
    asked = as_evaluated(config)
    parts = load_parts(config, retrieves=asked.retriever != "none")
    questions = spread(parts.collection.evaluation, config.eval.max_questions)
    if not questions:
        raise ValueError("no questions to evaluate on: give config.data.eval_questions_path")
    _check_references(questions, config.data.regex_answers)
    parts, params = trained_parts(parts, restore(config, pathlib.Path(workdir), parts))
    if asked.retriever != config.retriever:
        parts = load_parts(asked, parts.collection)
        params = parts.params | params  # what training had no use for is as it was before
    retriever = make_retriever(asked, parts, workdir, k_at_test(asked), evaluation_layout(asked), questions=questions)
    answers = answer_questions(asked, parts, params, retriever, questions)
    if answered is not None:
        answered(questions, answers)
    k = 0 if asked.retriever == "none" else k_at_test(asked)
    gold = None if isinstance(retriever, ClosedBook) else gold_pages(retriever.index.passages, questions)
    of: dict[str, Any] = {"metrics": asked.eval.metrics, "regex": asked.data.regex_answers, "gold": gold}
    of |= {"labels": bool(asked.data.labels)}
    overall, scores = figures_of(questions, answers, k, **of)

    def measure(found: Sequence[Answer], k: int) -> dict[str, float]:
        return figures_of(questions, found, k, **of).overall

    run = asked, parts, params, retriever, questions, answers
    figures = {**overall, **figures_over_k(*run, measure, ks=ks, decodings=decodings)}
    return Evaluated(asked, parts, params, questions, answers, figures, scores)


def _check_references(questions: Sequence[Question], regex: bool) -> None:
    """Refuses, before hours of decoding, questions whose answers could not be scored."""
    without = [question.id for question in questions if not question.answers]
    if without:
        raise ValueError(
            f"{len(without)} of {len(questions)} evaluation questions have no reference answers to score by, the first "
            f"is {without[0]!r}: add answers or leave them out; rag-jax ask --json answers questions without scoring"
        )
    for answer in [answer for question in questions for answer in question.answers] if regex else ():
        compile_answer(answer)


def find_runs(workdir: str | os.PathLike[str]) -> list[pathlib.Path]:
    """The directory itself if it is a run, else the runs directly below it, by name.

    Raises:
      FileNotFoundError: neither.
    """
    workdir = pathlib.Path(workdir)
    if (workdir / "config.json").is_file():
        return [workdir]
    runs = sorted(path.parent for path in workdir.glob("*/config.json"))
    if not runs:
        raise FileNotFoundError(
            f"{workdir}: no run there (no config.json); train one with train.py --workdir={workdir}"
        )
    return runs


def evaluate_runs(
    workdir: str | os.PathLike[str],
    restore: Restore,
    settings: Callable[[Config], Config] = lambda config: config,
    *,
    ks: Sequence[int] = (),
    decodings: Sequence[str] = (),
) -> dict[str, Any]:
    """Evaluates every run of a directory: tables, `metrics.json`, `report.html`.

    Each run's own directory gets its `predictions.jsonl`, before they are scored and again with the scores, and a
    `metrics.json` with its figures alone, as soon as they are known. The hot swap is measured where a run of
    RAG-Sequence was trained on World Facts. Of several processes each decodes its part of every batch, and the first
    writes.

    Args:
      workdir: a run, or a directory of runs.
      restore: gives a run's trained parameters.
      settings: changes a run's configuration before it is evaluated.
      ks, decodings: further settings to answer with, see `figures_over_k`.
    """
    workdir = pathlib.Path(workdir)
    reported: list[ReportedRun] = []
    swapped = None
    for run in find_runs(workdir):
        config = finalise(settings(from_json((run / "config.json").read_text("utf-8"))))
        unscored = functools.partial(write_predictions, run / "predictions.jsonl", scores={}) if is_first() else None
        done = evaluate(config, run, restore, ks=ks, decodings=decodings, answered=unscored)
        reported.append(ReportedRun(run.absolute().name, config, done.questions, done.answers, done.figures))
        if is_first():
            write_predictions(run / "predictions.jsonl", done.questions, done.answers, done.scores)
            write_json(run / "metrics.json", {reported[-1].name: done.figures})
        asked = done.config
        if asked.data.dataset == "world_facts" and asked.retriever == "dpr" and asked.variant == "sequence":
            swapped = done
    results: dict[str, Any] = {run.name: run.figures for run in reported}
    if is_first():
        print_results(results)
    if swapped is not None:
        results["hot_swap"] = hot_swap(swapped.params, swapped.parts, swapped.config, workdir / "hot_swap")
    if is_first():
        if swapped is not None:
            print_hot_swap(results["hot_swap"])
            print_answers(swapped.questions, swapped.answers, EXAMPLES)
        write_json(workdir / "metrics.json", results)
        page = runs_page(workdir.absolute().name, reported, results.get("hot_swap"))
        write_text(workdir / "report.html", render(page))
        print(f"{workdir / 'report.html'}: every question with its passages; in each run's directory predictions.jsonl")
    return results


def write_predictions(
    path: pathlib.Path,
    questions: Sequence[Question],
    answers: Sequence[Answer],
    scores: Mapping[str, Mapping[str, float | None]],
) -> None:
    """One JSON object a question: id, text, prediction, logprob, references, scores if any, and the passages."""
    lines = [
        json.dumps(
            {
                "id": q.id,
                "question": q.text,
                "prediction": a.text,
                "logprob": a.logprob,
                "answers": list(q.answers),
                "scores": scores.get(q.id, {}),
                "passages": [{"id": s.passage.id, "prior": s.prior, "posterior": s.posterior} for s in a.sources],
            }
        )
        for q, a in zip(questions, answers, strict=True)
    ]
    write_text(path, "\n".join(lines) + "\n")
