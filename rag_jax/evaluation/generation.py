"""HOST. Scores of generated texts, from 0 to 1: BLEU-1, ROUGE-L, labels, distinct trigrams. Q-BLEU-1: `question_bleu`.

Words are mteval-v13a's in lower case, as sacrebleu cuts them, and punctuation counts. MS MARCO's own script lowers the
case and counts punctuation too, but its words are spaCy's, and its ROUGE-L is an F that gives recall the weight 1.44
(beta = 1.2): published figures are of this kind, not of this very rule.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Sequence
from typing import Any


def bleu1(prediction: str, references: Sequence[str]) -> float:
    """BLEU-1 of one text: the share of its words that are in a reference, less where it is shorter than the nearest."""
    return corpus_bleu1([prediction], [references])


def corpus_bleu1(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """BLEU-1 (Papineni et al. 2002) of a corpus by sacrebleu, n-grams of one word: counts are summed over all texts.

    Args:
      predictions: what was generated, at least one.
      references: of each prediction, at least one; how many may differ.
    """
    most = max(map(len, references))
    # One list for each place; None where a text has fewer. sacrebleu takes '' for no reference at all.
    places = [[given[i] or " " if i < len(given) else None for given in references] for i in range(most)]
    return _bleu().corpus_score(list(predictions), places).score / 100


def rouge_l(prediction: str, references: Sequence[str]) -> float:
    """ROUGE-L (Lin 2004) of one text by rouge-score: F1 of the longest common subsequence, the best of the references.

    No stemming. Its words are runs of a-z and 0-9 in lower case; letters with accents part words there.
    """
    return float(_rouge().score_multi(list(references), prediction)["rougeL"].fmeasure)


def is_label(prediction: str, labels: Sequence[str]) -> bool:
    """Whether a label was generated: as it is written, but for case and space around it."""
    return prediction.strip().casefold() in {label.strip().casefold() for label in labels}


def majority_class(labels: Iterable[Sequence[str]]) -> float:
    """The accuracy of always giving the commonest label: its share among the first labels of all questions."""
    counts = collections.Counter(given[0].strip().casefold() for given in labels)
    return max(counts.values()) / counts.total()


def distinct_trigrams(texts: Iterable[str]) -> float:
    """The share of distinct trigrams among all of them, over all texts (the paper's section 4.5, table 5).

    0 where no text has three words.
    """
    found = [trigram for text in texts for trigram in _trigrams(words(text))]
    return len(set(found)) / len(found) if found else 0.0


def words(text: str, lower: bool = True) -> list[str]:
    """'The U.S., again' -> ['the', 'u', '.', 's', '.', ',', 'again']; see the module's docstring for the rule."""
    return _tokenizer()((text.lower() if lower else text).rstrip()).split()


def _trigrams(found: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return zip(found, found[1:], found[2:], strict=False)


# Both libraries are slow to import, and most evaluations need neither.
@functools.cache
def _bleu() -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(lowercase=True, tokenize="13a", max_ngram_order=1, smooth_method="none")


@functools.cache
def _tokenizer() -> Any:
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    return Tokenizer13a()


@functools.cache
def _rouge() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"])
