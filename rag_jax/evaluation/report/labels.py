"""HOST. Figures by the names that people know, with what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LABELS = {
    "em": ("EM", "exact match: the answer is an accepted one, after normalisation"),
    "f1": ("F1", "overlap of words with the nearest accepted answer"),
    "regex": ("regex", "the answer matches an accepted regex"),
    "bleu1": ("BLEU-1", "precision of words, with a penalty for short answers"),
    "qbleu1": ("Q-BLEU-1", "BLEU-1 weighted towards the words that make a question answerable"),
    "rouge_l": ("ROUGE-L", "longest common run of words, gaps allowed"),
    "accuracy": ("accuracy", "the label is the right one"),
    "distinct_trigrams": ("distinct trigrams", "different runs of three words, as a share of all"),
    "majority_class": ("commonest label", "accuracy of answering the commonest label always"),
    "questions": ("questions", ""),
    "r_precision": ("R-precision", "of the first R pages found, R a question's gold pages, the share that is gold"),
    "posterior_entropy": ("posterior entropy", "how widely the answers' origin is spread, in nats"),
    "right_without_support": ("right unsupported", "of the right answers, those that stand in no retrieved passage"),
}
_PATTERNS = (
    (r"recall_at_(\d+)", "answer in {}", "questions with an accepted answer in one of the first {} passages"),
    (r"gold_recall_at_(\d+)", "gold in {}", "questions with a passage known to hold the answer among the first {}"),
    (r"page_recall_at_(\d+)", "page in {}", "questions with all their gold pages among the first {}"),
)


def label(name: str) -> str:
    """'gold_recall_at_5' -> 'gold in 5'; a figure without a name of its own is called as it is stored."""
    return _label(name)[0]


def notes(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """(label, meaning) of those figures that have one."""
    return tuple(pair for pair in map(_label, names) if pair[1])


def _label(name: str) -> tuple[str, str]:
    for pattern, short, long in _PATTERNS:
        if match := re.fullmatch(pattern, name):
            return short.format(match[1]), long.format(match[1])
    return _LABELS.get(name, (name.replace("_", " "), ""))
