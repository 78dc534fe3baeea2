"""HOST. The hot swap (paper, section 4.5): one trained model, two indexes, and the knowledge changes with the index."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any

from rag_jax.config import Config, k_at_test
from rag_jax.evaluation.metrics import score
from rag_jax.experiment import Parts, answer_questions, encoder_source, evaluation_layout, passage_index, retriever_over
from rag_jax.text.datasets import Collection
from rag_jax.text.world_facts import EDITIONS, leader_questions, world_passages


def hot_swap(
    params: dict[str, Any], parts: Parts, config: Config, directory: str | os.PathLike[str]
) -> dict[str, dict[str, float]]:
    """Asks for every leader that changed between the editions, with each edition as the index.

    Args:
      params: the trained parameters; nothing is trained here.
      parts: sizes, tokenizers and the passage encoder.
      config: of the run.
      directory: where the editions' indexes are made.

    Returns:
      {'2016_index': {'2016_leaders': EM, '2020_leaders': EM}, '2020_index': ..., 'questions': how many}.
    """
    truths = {e: [item.question for item in leader_questions(e)] for e in EDITIONS}
    table: dict[str, Any] = {}
    for edition in EDITIONS:
        collection = Collection([item.passage for item in world_passages(edition)], (), ())
        swapped = dataclasses.replace(parts, collection=collection)
        place = pathlib.Path(directory) / f"index-{edition}"
        searched = config.index.backend, config.index.dtype
        index = passage_index(swapped, place, *searched, weights=encoder_source(config))
        questions = truths[edition]
        retriever = retriever_over(config, swapped, index, k_at_test(config), evaluation_layout(config))
        answers = answer_questions(config, parts, params, retriever, questions)
        predictions = {q.id: a.text for q, a in zip(questions, answers, strict=True)}
        matched = {e: score(predictions, truths[e], ("em",)).overall["em"] for e in EDITIONS}
        table[f"{edition}_index"] = {f"{e}_leaders": share for e, share in matched.items()}
    return table | {"questions": len(truths[EDITIONS[0]])}
