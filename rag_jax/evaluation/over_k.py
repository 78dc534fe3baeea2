"""HOST. How many passages help: recall at every k, and answers of one run at several k (the paper's figure 3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rag_jax.config import Config, finalise, k_at_test
from rag_jax.evaluation.figures import found_passages
from rag_jax.evaluation.retrieval import answer_recall, gold_recall
from rag_jax.experiment import Parts, answer_questions
from rag_jax.rag.retrieve import ClosedBook, Retriever
from rag_jax.types import Answer, Passage, Question


def recall_over_k(
    questions: Sequence[Question],
    ranked: Sequence[Sequence[Passage]],
    ks: Sequence[int] | None = None,
    regex: bool = False,
    labels: bool = False,
) -> list[dict[str, Any]]:
    """Recall at several k, shares from 0 to 1.

    Args:
      questions: those without answers do not count for 'answer', those without gold passages not for 'gold'.
      ranked: for each question its passages, best first.
      ks: what to cut at; past the longest ranking recall stays as it is there. None: every k up to that.
      regex: answers are regexes, see `has_answer`.
      labels: answers are names of classes, which are not looked for in passages.

    Returns:
      A row {'k', 'answer', 'gold'} for each k, without what no question counts for; no rows where nothing was
      retrieved, or none counts at all.
    """
    longest = max(map(len, ranked), default=0)
    if not longest:
        return []
    ks = range(1, longest + 1) if ks is None else ks
    pairs = list(zip(questions, ranked, strict=True))
    answered = {q: passages for q, passages in pairs if q.answers and not labels}
    known = {q: [passage.id for passage in passages] for q, passages in pairs if q.positive_ids}
    found = {}
    if any(answered.values()):
        found["answer"] = answer_recall(_by_id(answered), answered, _within(ks, answered), regex)
    if any(known.values()):
        found["gold"] = gold_recall(_by_id(known), known, _within(ks, known))
    return [{"k": k} | {name: at[min(k, max(at))] for name, at in found.items()} for k in ks if found]


def _by_id(ranked: Mapping[Question, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    return {question.id: ranking for question, ranking in ranked.items()}


def _within(ks: Sequence[int], ranked: Mapping[Question, Sequence[Any]]) -> list[int]:
    """The ks, with the longest ranking in place of those past it."""
    longest = max(map(len, ranked.values()))
    return sorted({min(k, longest) for k in ks})


def figures_over_k(
    config: Config,
    parts: Parts,
    params: dict[str, Any],
    retriever: Retriever | ClosedBook,
    questions: Sequence[Question],
    answers: Sequence[Answer],
    measure: Callable[[Sequence[Answer], int], Mapping[str, float]],
    *,
    ks: Sequence[int] = (),
    decodings: Sequence[str] = (),
) -> dict[str, list[dict[str, Any]]]:
    """Tables over k of one run: one model, one open index.

    Args:
      config: the run's, final.
      parts, params, retriever, questions: see `answer_questions`. Closed book has no k, and no tables.
      answers: those to the questions as the configuration says; they are not searched for again.
      measure: gives the figures of answers that k passages were read for.
      ks: passages a question; none = the configuration's, if `decodings` are given.
      decodings: 'thorough', 'fast', for RAG-Sequence, which has both; none = the configuration's.

    Returns:
      'recall_over_k': see there, of the answers with the most passages. 'em_over_k', where `ks` or `decodings` are
      given: rows {'k', 'decoding' (for RAG-Sequence), and the figures}.
    """
    if isinstance(retriever, ClosedBook):
        return {}
    k_alone = k_at_test(config)
    own, widest = (k_alone, config.eval.decoding), (k_alone, answers)
    rows: list[dict[str, Any]] = []
    if config.variant != "sequence":
        decodings = ()
    for k in ks or [k_alone] * bool(decodings):
        for decoding in decodings or [config.eval.decoding]:
            found = answers
            if (k, decoding) != own:
                asked = dataclasses.replace(config.eval, k=k, decoding=decoding)
                changed = finalise(dataclasses.replace(config, eval=asked))
                found = answer_questions(changed, parts, params, retriever.with_k(k), questions)
            how = {"decoding": decoding} if config.variant == "sequence" else {}
            rows.append({"k": k, **how, **measure(found, k)})
            widest = max(widest, (k, found), key=lambda pair: pair[0])
    ranked = [found_passages(answer) for answer in widest[1]]
    d = config.data
    recalled = recall_over_k(questions, ranked, regex=d.regex_answers, labels=bool(d.labels))
    tables = {"recall_over_k": recalled, "em_over_k": rows}
    return {name: table for name, table in tables.items() if table}


def headline(figures: Mapping[str, Any]) -> str:
    """The name of the figure that stands for a run: the first."""
    return next(iter(figures))


def em_points(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """The headline figure over k at test: a series of points for each run, or for each of its decodings.

    Args:
      runs: name -> figures. What has no table 'em_over_k' gives no series.
    """
    series: dict[str, list[tuple[int, float]]] = {}
    for run, figures in runs.items():
        rows = figures.get("em_over_k", ())
        several = len({row.get("decoding") for row in rows}) > 1
        for row in rows:
            name = f"{run}, {row['decoding']}" if several else run
            series.setdefault(name, []).append((row["k"], row[headline(figures)]))
    return series
