"""HOST. Q-BLEU-1 (Nema and Khapra 2018, arXiv 1808.10192): could a generated question be answered? For Jeopardy.

    Q-BLEU-1 = delta * answerability + (1 - delta) * BLEU-1
    answerability = sum over kinds i of  w_i * 2 p_i r_i / (p_i + r_i)

p_i is BLEU-1 of the prediction's words of kind i against the reference's, r_i the other way round; a kind of which one
side has no word adds 0, so that the best score of a text without a question word is below 1. The rule and how kinds are
told apart are those of the authors' script, which published figures come from, and the weights are those that the paper
learned on SQuAD, which RAG's Q-BLEU-1 is tuned on:

| kind | weight | its words |
|---|---|---|
| named entity | 0.41 | begin with a capital; not the question word that the text begins with |
| content | 0.36 | all that are none of the other kinds |
| question type | 0.20 | who, what, ...; after what and which the next word too, which says what is asked for |
| function | 0.03 | `FUNCTION_WORDS`; one with a capital is counted as an entity too |

delta = 0.66. Words are `generation.words` without punctuation; the script has Stanford's tokenizer for them.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence

from rag_jax.evaluation.generation import words

DELTA = 0.66
WEIGHTS = {"entity": 0.41, "content": 0.36, "question type": 0.20, "function": 0.03}

_QUESTION_WORDS = frozenset(["what", "which", "why", "who", "whom", "whose", "where", "when", "how"])
_TAKE_THE_NEXT = ("what", "which")
FUNCTION_WORDS = frozenset(
    word
    for group in (
        "a an the",
        "i me my myself we our ours ourselves you your yours yourself yourselves",
        "he him his himself she her hers herself it its itself they them their theirs themselves",
        "this that these those all any both each few more most other some such own same no",
        "am is are was were be been being have has had having do does did doing can will should",
        "about above after against at before below between by during for from in into of off on out over through to",
        "under until up with",
        "and or nor but if because as while than so not only",
        "again further then once here there down now just too very",
        "s t don",  # pieces of it's and don't
    )
    for word in group.split()
)


def q_bleu1(prediction: str, references: Sequence[str]) -> float:
    """The best Q-BLEU-1 with any reference, from 0 to 1."""
    return max(_score(_spoken(prediction), _spoken(reference)) for reference in references)


def _score(prediction: Sequence[str], reference: Sequence[str]) -> float:
    ours, theirs = kinds(prediction), kinds(reference)
    answerability = sum(weight * _overlap(ours[kind], theirs[kind]) for kind, weight in WEIGHTS.items())
    return DELTA * answerability + (1 - DELTA) * _bleu1(_lower(prediction), _lower(reference))


def kinds(spoken: Sequence[str]) -> dict[str, list[str]]:
    """The words of a text by the kinds of `WEIGHTS`, in lower case; a word may be of two."""
    lower = _lower(spoken)
    asking = [word in _QUESTION_WORDS for word in lower]
    asked = [place > 0 and lower[place - 1] in _TAKE_THE_NEXT for place in range(len(lower))]
    capital = [word[0].isupper() for word in spoken]
    of_type = [one or other for one, other in zip(asking, asked, strict=True)]
    function = [word in FUNCTION_WORDS for word in lower]
    entity = [has and not (place == 0 and asking[0]) for place, has in enumerate(capital)]
    content = [not any(others) for others in zip(capital, of_type, function, strict=True)]
    chosen = {"entity": entity, "content": content, "question type": of_type, "function": function}
    return {kind: [word for word, yes in zip(lower, which, strict=True) if yes] for kind, which in chosen.items()}


def _spoken(text: str) -> list[str]:
    """The words of a text, as written, without punctuation."""
    return [word for word in words(text, lower=False) if any(map(str.isalnum, word))]


def _lower(spoken: Sequence[str]) -> list[str]:
    return [word.lower() for word in spoken]


def _overlap(ours: Sequence[str], theirs: Sequence[str]) -> float:
    precision, recall = _bleu1(ours, theirs), _bleu1(theirs, ours)
    return 2 * precision * recall / (precision + recall) if precision else 0.0


def _bleu1(ours: Sequence[str], theirs: Sequence[str]) -> float:
    """The share of `ours` that is in `theirs`, repeats counted once each, times the brevity penalty."""
    if not ours:
        return 0.0
    shared = (collections.Counter(ours) & collections.Counter(theirs)).total()
    return shared / len(ours) * math.exp(min(0.0, 1 - len(theirs) / len(ours)))
