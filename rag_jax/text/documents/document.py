"""HOST. Whole documents, and how one is cut into passages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from rag_jax.types import Passage

PASSAGE_WORDS = 100  # the paper's, section 3, and DPR's


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A text before it is cut.

    Attributes:
      id: unique within its source: a page's number, a file's path.
      title: may be empty.
      text: plain text, without markup; may be empty.
    """

    id: str
    title: str
    text: str


def cut(document: Document, words: int = PASSAGE_WORDS) -> Iterator[Passage]:
    """The document's words in order, `words` to a passage; no word is in two passages and none is lost.

    A word is what stands between white space, as in DPR's collection. The last passage keeps what is left, one word or
    more: it is not filled up with words of the article's beginning or of the next article, which would make passages
    overlap. (DPR publishes no rule for it, and not the program that cut its collection.)

    Args:
      document: a text without words gives no passage.
      words: the length of a passage.

    Yields:
      Passages with the document's title, their words joined by single spaces, and the ids "<document id>#<piece>",
      pieces counted from 0. So an id depends on its own document alone: not on where the document stands in its
      source, and not on the machine that cut it.

    Raises:
      ValueError: `words` is not positive.
    """
    if words < 1:
        raise ValueError(f"a passage holds at least one word, asked for {words}")
    found = document.text.split()
    for piece, start in enumerate(range(0, len(found), words)):
        yield Passage(f"{document.id}#{piece}", document.title, " ".join(found[start : start + words]))
