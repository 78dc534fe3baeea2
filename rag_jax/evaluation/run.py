"""HOST. Evaluation of runs: answers to a split, scored; one table for a directory of runs."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from rag_jax.config import Config, as_evaluated, finalise, from_json
from rag_jax.evaluation.answers import exact_match, score
from rag_jax.evaluation.hot_swap import hot_swap
from rag_jax.evaluation.report import print_answers, print_hot_swap, print_results
from rag_jax.evaluation.retrieval import answer_recall, gold_recall, has_answer
from rag_jax.experiment import Parts, answer_questions, evaluation_layout, load_parts, make_retriever
from rag_jax.sharding import is_first
from rag_jax.types import NO_DOCUMENT, Answer, Passage, Question

Restore = Callable[[Config, pathlib.Path, Parts], dict[str, Any]]
RECALL_AT = (1, 5)
EXAMPLES = 10


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """One evaluated run: what it was (with evaluation's retriever), what it answered, and the figures."""

    config: Config
    parts: Parts
    params: dict[str, Any]
    questions: tuple[Question, ...]
    answers: tuple[Answer, ...]
    figures: dict[str, float]


def figures_of(questions: Sequence[Question], answers: Sequence[Answer], k: int) -> dict[str, float]:
    """All figures of a set of answers, shares from 0 to 1.

    Args:
      questions: with reference answers.
      answers: in the same order.
      k: passages a question; 0 for closed book, which has no retrieval figures.

    Returns:
      em, f1, questions; and with retrieval recall_at_{1,5,k} (an answer stands in one of the first passages),
      gold_recall_at_{1,5,k} where gold passages are known, and right_without_support: of the right answers, the share
      that stands in no retrieved passage.
    """
    predictions = {q.id: a.text for q, a in zip(questions, answers, strict=True)}
    scored = score(predictions, questions)
    figures = {"em": scored["exact_match"], "f1": scored["f1"], "questions": len(questions)}
    if not k:
        return figures
    ranked = {q.id: found_passages(a) for q, a in zip(questions, answers, strict=True)}
    found = min(k, max(len(passages) for passages in ranked.values()))
    ks = sorted({at for at in (*RECALL_AT, found) if at <= found})
    figures |= {f"recall_at_{at}": share for at, share in answer_recall(ranked, questions, ks).items()}
    with_gold = [q for q in questions if q.positive_ids]
    if with_gold:
        ids = {q.id: [passage.id for passage in ranked[q.id]] for q in with_gold}
        figures |= {f"gold_recall_at_{at}": share for at, share in gold_recall(ids, with_gold, ks).items()}
    right = [q for q in questions if exact_match(predictions[q.id], q.answers)]
    alone = [q for q in right if not any(has_answer(passage.text, q.answers) for passage in ranked[q.id])]
    return figures | {"right_without_support": len(alone) / len(right) if right else 0.0}


def found_passages(answer: Answer) -> list[Passage]:
    """What was retrieved, best first; the null document is not retrieved."""
    return [source.passage for source in answer.sources if source.passage != NO_DOCUMENT]


def evaluate(config: Config, workdir: str | os.PathLike[str], restore: Restore) -> Evaluated:
    """Answers the evaluation questions of one run.

    Args:
      config: the run's, final.
      workdir: the run's directory.
      restore: gives the trained parameters (evaluation does not know training).

    Raises:
      FileNotFoundError: no checkpoint.
      ValueError: no questions to evaluate on.
    """
    parts = load_parts(config)
    questions = spread(parts.collection.evaluation, config.eval.max_questions)
    if not questions:
        raise ValueError("no questions to evaluate on: give config.data.eval_questions_path")
    params = restore(config, pathlib.Path(workdir), parts)
    asked = as_evaluated(config)
    if asked.retriever != config.retriever:
        parts = load_parts(asked)
        params = parts.params | params  # what training had no use for is as it was before
    retriever = make_retriever(asked, parts, workdir, asked.eval.k, evaluation_layout(asked), questions)
    answers = answer_questions(asked, parts, params, retriever, questions)
    k = 0 if asked.retriever == "none" else asked.eval.k
    return Evaluated(asked, parts, params, questions, answers, figures_of(questions, answers, k))


def spread(questions: Sequence[Question], most: int | None) -> tuple[Question, ...]:
    """At most `most` questions, evenly spaced: files are often sorted by subject, so the first ones are no sample."""
    if most is None or len(questions) <= most:
        return tuple(questions)
    return tuple(questions[index * len(questions) // most] for index in range(most))


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
    workdir: str | os.PathLike[str], restore: Restore, settings: Callable[[Config], Config] = lambda config: config
) -> dict[str, Any]:
    """Evaluates every run of a directory: tables, `metrics.json`, and each run's `predictions.jsonl`.

    The hot swap is measured where a run of RAG-Sequence was trained on World Facts. Of several processes each decodes
    its part of every batch, and the first writes.

    Args:
      workdir: a run, or a directory of runs.
      restore: gives a run's trained parameters.
      settings: changes a run's configuration before it is evaluated.
    """
    workdir = pathlib.Path(workdir)
    results: dict[str, Any] = {}
    swapped = None
    for run in find_runs(workdir):
        config = finalise(settings(from_json((run / "config.json").read_text("utf-8"))))
        done = evaluate(config, run, restore)
        results[run.name] = done.figures
        if is_first():
            write_predictions(run / "predictions.jsonl", done.questions, done.answers)
        asked = done.config
        if asked.data.dataset == "world_facts" and asked.retriever == "dpr" and asked.variant == "sequence":
            swapped = done
    if is_first():
        print_results(results)
    if swapped is not None:
        results["hot_swap"] = hot_swap(swapped.params, swapped.parts, swapped.config, workdir / "hot_swap")
    if is_first():
        if swapped is not None:
            print_hot_swap(results["hot_swap"])
            print_answers(swapped.questions, swapped.answers, EXAMPLES)
        write_json(workdir / "metrics.json", results)
    return results


def write_predictions(path: pathlib.Path, questions: Sequence[Question], answers: Sequence[Answer]) -> None:
    """One JSON object a question: id, text, prediction, logprob, references, and the passages."""
    lines = [
        json.dumps(
            {
                "id": q.id,
                "question": q.text,
                "prediction": a.text,
                "logprob": a.logprob,
                "answers": list(q.answers),
                "passages": [{"id": s.passage.id, "prior": s.prior, "posterior": s.posterior} for s in a.sources],
            }
        )
        for q, a in zip(questions, answers, strict=True)
    ]
    write_text(path, "\n".join(lines) + "\n")


def write_json(path: pathlib.Path, value: Any) -> None:
    """JSON, indented, beside and renamed."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: pathlib.Path, text: str) -> None:
    """Text, beside and renamed."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, "utf-8")
    os.replace(beside, path)
