"""HOST. Texts that a model cannot read or write whole are refused: nothing is cut without a word."""

from __future__ import annotations

from collections.abc import Sequence

from rag_jax.text.tokens import Tokenizers


def check_questions(texts: Sequence[str], tokenizers: Tokenizers) -> None:
    """Refuses empty questions, and those that are longer than question encoder or generator are to read.

    Raises:
      ValueError: the first such question, its tokens and how many there may be; or one that is not Unicode.
    """
    most = tokenizers.max_question
    _check("question", texts, tokenizers, "question", most, 2)
    _check("question", texts, tokenizers, "source", most, 0)


def check_answers(texts: Sequence[str], tokenizers: Tokenizers) -> None:
    """Refuses empty answers, and those that are longer than the generator is to write.

    Raises:
      ValueError: as `check_questions`.
    """
    _check("answer", texts, tokenizers, "target", tokenizers.max_target, 1)


def _check(kind: str, texts: Sequence[str], tokenizers: Tokenizers, role: str, most: int, specials: int) -> None:
    field = {"question": "data.max_question_tokens", "answer": "data.max_target_tokens"}[kind]
    for text in texts:
        if not text.strip():
            raise ValueError(f"the {kind} is empty")
        count = tokenizers.count(role, text) + specials
        if count > most:
            raise ValueError(
                f"the {kind} has {count} tokens and the limit is {most}: shorten it, or load the model with "
                f"settings={{{field!r}: {count}}}"
            )
