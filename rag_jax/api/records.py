"""HOST. What a `Rag` gives back: records that show themselves in a terminal and in a notebook."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from rag_jax.api import html, terminal
from rag_jax.types import Answer, Passage


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Answered(Answer):
    """An answer that shows itself: printed it is a table, in a notebook a table with bars and a heat map.

    The record that the library passes around, `rag_jax.types.Answer`, stays plain; this is the same with a view. Its
    tokens are as one reads them, each with the space that it begins with.

    Attributes:
      question: as it was asked.
    """

    question: str = ""

    def title(self) -> tuple[str, ...]:
        """The lines above the sources: question, answer and log p(y|x)."""
        return self.question, self.text, f"log p(y|x) {self.logprob:.3f}"

    def __rich__(self) -> terminal.Shown:
        return terminal.shown(self.title(), self.sources)

    def __repr__(self) -> str:
        return terminal.as_text(self.__rich__())

    def _repr_html_(self) -> str:
        return html.answer_html(self.title(), self.sources, self.tokens)


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Scored(Answered):
    """How probable a given answer is, under both of the paper's models (section 2.1).

    `logprob` is the one of the model's own variant. Of every source `posterior` is RAG-Sequence's p(z|x,y), and
    `token_posterior` RAG-Token's p(z|x,y_<=t).

    Attributes:
      sequence: RAG-Sequence's log p(y|x).
      token: RAG-Token's.
    """

    sequence: float = 0.0
    token: float = 0.0

    def title(self) -> tuple[str, ...]:
        """As of an answer, with both of its log p(y|x)."""
        return (
            self.question,
            self.text,
            f"log p(y|x) {self.sequence:.3f} as RAG-Sequence, {self.token:.3f} as RAG-Token",
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Retrieved:
    """A passage that was found for a question.

    Attributes:
      passage: id, title and text.
      score: the logit of p(z|x): q.d (paper, section 2.2), or BM25's.
      prior: p(z|x) among the passages found with it.
    """

    passage: Passage
    score: float
    prior: float


def as_passages(given: Iterable[str | Passage], name: Callable[[int, str], str]) -> list[Passage]:
    """Passages, and texts as passages without a title.

    Args:
      given: texts or passages.
      name: (number from 1, text) -> the id of a text.
    """
    items = [given] if isinstance(given, str | Passage) else given
    return [
        item if isinstance(item, Passage) else Passage(name(number, item), "", item)
        for number, item in enumerate(items, 1)
    ]
