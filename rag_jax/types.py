"""HOST and DEVICE. The records and pytrees that cross package borders.

Axis names used in every shape annotation: B questions, K passages per question, Q question tokens, P passage tokens,
S source tokens (question and passage joined), T target tokens, V vocabulary, D embedding, N rows of an index.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Passage:
    """One retrievable passage of text (paper, section 2.2: a document z).

    Attributes:
      id: the source's own identifier, unique within a collection.
      title: the title of the document that the passage was cut from; may be empty.
      text: the passage itself, about 100 words.
    """

    id: str
    title: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One question x with its reference answers y.

    Attributes:
      id: unique within a set; metrics and predictions are matched by it, never by line order.
      text: the question as the user wrote it.
      answers: the accepted answers, any of which counts; empty when there is no reference.
      positive_ids: ids of the passages that are known to hold the answer ("gold"); may be empty.
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    positive_ids: tuple[str, ...] = ()
