"""HOST. The figures of a set of answers: of the generated texts, and of retrieval apart from generation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from rag_jax.evaluation.answers import exact_match, regex_match
from rag_jax.evaluation.metrics import Scores, score
from rag_jax.evaluation.pages import Pages, page_ranks, r_precisions
from rag_jax.evaluation.retrieval import answer_ranks, gold_ranks, recall
from rag_jax.types import NO_DOCUMENT, Answer, Passage, Question, Source

RECALL_AT = (1, 5)
# What the names of retrieval's figures begin with.
OF_RETRIEVAL = ("recall_at", "gold_recall_at", "page_recall_at", "r_precision", "right_without", "posterior_entropy")


def figures_of(
    questions: Sequence[Question],
    answers: Sequence[Answer],
    k: int,
    metrics: Sequence[str] = ("em", "f1"),
    regex: bool = False,
    gold: Pages | None = None,
    labels: bool = False,
) -> Scores:
    """All figures of a set of answers, with the scores of each question that they come from.

    Args:
      questions: with reference answers.
      answers: in the same order.
      k: passages a question; 0 for closed book, which has no retrieval figures.
      metrics: of the texts, by name.
      regex: the reference answers are regexes.
      gold: the gold pages of questions that have some.
      labels: the reference answers are names of classes, which are not looked for in passages.

    Returns:
      Overall: the metrics; `questions`, how many; and with retrieval those of `retrieval_figures`,
      right_without_support (of the right answers, the share that stands in no retrieved passage; not of labels) and
      the mean posterior_entropy, in nats (not with Fusion-in-Decoder). Of each question: the metrics, the ranks, and
      posterior_entropy.
    """
    predictions = {q.id: a.text for q, a in zip(questions, answers, strict=True)}
    overall, each = score(predictions, questions, metrics, regex)
    overall = overall | {"questions": len(questions)}
    if not k:
        return Scores(overall, each)
    ranked = {q.id: found_passages(a) for q, a in zip(questions, answers, strict=True)}
    retrieved = retrieval_figures(ranked, questions, k, regex, gold, labels)
    entropies = {q.id: posterior_entropy(a.sources) for q, a in zip(questions, answers, strict=True)}
    overall |= retrieved.overall
    if not labels:
        overall["right_without_support"] = _without_support(questions, predictions, retrieved, regex)
    known = [entropy for entropy in entropies.values() if entropy is not None]
    if len(known) == len(entropies):
        overall["posterior_entropy"] = _mean(known)
    return Scores(
        overall, {id_: each[id_] | retrieved.each[id_] | {"posterior_entropy": entropies[id_]} for id_ in each}
    )


def found_passages(answer: Answer) -> list[Passage]:
    """What was retrieved, best first; the null document was not."""
    return [source.passage for source in answer.sources if source.passage != NO_DOCUMENT]


def _without_support(
    questions: Sequence[Question], predictions: Mapping[str, str], retrieved: Scores, regex: bool
) -> float:
    """Of the right answers the share that stands in no retrieved passage; 0 where none is right."""
    match = regex_match if regex else exact_match
    right = [q.id for q in questions if match(predictions[q.id], q.answers)]
    alone = [id_ for id_ in right if retrieved.each[id_]["answer_rank"] is None]
    return len(alone) / len(right) if right else 0.0


def retrieval_figures(
    ranked: Mapping[str, Sequence[Passage]],
    questions: Sequence[Question],
    k: int,
    regex: bool = False,
    gold: Pages | None = None,
    labels: bool = False,
) -> Scores:
    """The figures of what was found for each question; no answer is looked at.

    Args:
      ranked: question id -> passages, best first.
      questions: the same, with reference answers.
      k: passages asked for.
      regex, gold, labels: see `figures_of`.

    Returns:
      Overall, shares from 0 to 1: recall_at_{1,5,k} (an answer stands in one of the first passages), not of labels;
      gold_recall_at_{1,5,k} where gold passages are known; r_precision and page_recall_at_{1,5,k} where gold pages are.
      Of each question: answer_rank, gold_rank, page_rank (from 1; None: not found) and r_precision.
    """
    found = min(k, max(map(len, ranked.values())))
    ks = sorted({at for at in (*RECALL_AT, found) if at <= found})
    overall: dict[str, float] = {}
    each: dict[str, dict[str, float | None]] = {question.id: {} for question in questions}

    def add(ranks: Mapping[str, int | None], rank: str, name: str) -> None:
        overall.update({f"{name}_at_{at}": share for at, share in recall(ranks, ranked, ks).items()})
        for id_, one in ranks.items():
            each[id_][rank] = one

    if not labels:
        add(answer_ranks(ranked, questions, regex), "answer_rank", "recall")
    with_gold = [question for question in questions if question.positive_ids]
    if with_gold:
        ids = {question.id: [passage.id for passage in ranked[question.id]] for question in with_gold}
        add(gold_ranks(ids, with_gold), "gold_rank", "gold_recall")
    if gold:
        precisions = r_precisions(ranked, gold)
        overall["r_precision"] = _mean(precisions.values())
        add(page_ranks(ranked, gold), "page_rank", "page_recall")
        for id_, one in precisions.items():
            each[id_]["r_precision"] = one
    return Scores(overall, each)


def posterior_entropy(sources: Sequence[Source]) -> float | None:
    """How widely an answer's origin is spread: entropy of p(z|x,y), in nats; 0 = one passage, ln k = all alike.

    For RAG-Token the mean of its tokens' entropies. 0 without a passage; None where there is no posterior.
    """
    known = [source.posterior for source in sources if source.posterior is not None]
    if len(known) < len(sources):
        return None
    by_token: list[Sequence[float]] = list(zip(*(source.token_posterior for source in sources), strict=True))
    return _mean(map(_entropy, by_token or [known]))


def _entropy(p: Iterable[float]) -> float:
    return float(sum(-one * math.log(one) for one in p if one > 0))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
