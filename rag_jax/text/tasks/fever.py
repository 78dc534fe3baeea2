"""HOST. FEVER (Thorne et al. 2018) and FeverSymmetric (Schuster et al. 2019): claims, and what is known about them.

In FeverSymmetric every claim stands twice, with two sentences of evidence of which one supports and one refutes it:
over all its evidence the label does not follow from the claim, so nobody is right about more than half of the pairs.
"""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Iterator

from rag_jax.text.records import Record, json_lines, short
from rag_jax.types import Passage, Question

LABELS = ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")


def questions(path: pathlib.Path) -> Iterator[tuple[int | None, Question]]:
    """(line, claim) of `train.jsonl` and its like, each with its label, where the file tells it, as its answer."""
    for record in json_lines(path):
        answers = (_label(record, "label"),) if "label" in record.fields else ()
        yield record.line, Question(record.id(), record.words("claim", "claim"), answers)


def symmetric_questions(path: pathlib.Path) -> Iterator[tuple[int | None, Question]]:
    """(line, claim) of `fever_symmetric_dev.jsonl` and its like; the positive passage is the pair's own evidence."""
    for record in json_lines(path):
        label = _label(record, "label" if "label" in record.fields else "gold_label")
        yield record.line, Question(record.id(), record.words("claim", "claim"), (label,), (_evidence(record).id,))


def symmetric_passages(path: pathlib.Path) -> Iterator[tuple[int | None, Passage]]:
    """(line, sentence of evidence), each once. It has no id of its own: its passage's is made from its text."""
    seen = set()
    for record in json_lines(path):
        passage = _evidence(record)
        if passage.id not in seen:
            seen.add(passage.id)
            yield record.line, passage


def _label(record: Record, name: str) -> str:
    label = record.text(name)
    if label not in LABELS:
        raise record.fault(f"{name!r} must be one of {', '.join(LABELS)}, not {short(label)}; mend it")
    return label


def _evidence(record: Record) -> Passage:
    name = "evidence" if "evidence" in record.fields else "evidence_sentence"  # as the set's first version had it
    text = record.words(name, "evidence")
    return Passage(f"evidence-{hashlib.sha256(text.encode()).hexdigest()[:16]}", "", text)
