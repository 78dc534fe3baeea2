"""HOST. The generator's input as Hugging Face's RAG joins it, for its checkpoints: passage first, question last.

Ours, `rag_jax.rag.source`, keeps the question whole and as the user wrote it. Here, as in `RagRetriever`:

- the text is `title / text // question`, tokenized as one, and cut on the right: a long passage removes the question;
- the question is what the question tower's ids say: an uncased vocabulary lower-cases and re-spaces it;
- a double quote around the title goes, and two spaces become one.

One thing is not as there: a text that spells a special token, "<pad>" for instance, is tokenized as the letters it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from rag_jax.text.tokens import Tokenizers
from rag_jax.types import Passage

MAX_LENGTH = 300  # RagConfig.max_combined_length


@dataclasses.dataclass(frozen=True)
class HfFormat:
    """What a checkpoint's config.json says on joining.

    Attributes:
      title_sep: between title and text.
      doc_sep: between text and question.
      prefix: before the title; released BARTs have a space here.
    """

    title_sep: str = " / "
    doc_sep: str = " // "
    prefix: str = ""


RAG_FORMAT = HfFormat()


def joined_text(question: str, passage: Passage, form: HfFormat = RAG_FORMAT) -> str:
    """One source as text."""
    title = passage.title.removeprefix('"').removesuffix('"')
    joined = form.prefix + title + form.title_sep + passage.text + form.doc_sep + question
    return joined.replace("  ", " ")


def hf_compat_sources(
    tokenizers: Tokenizers,
    questions: Int[np.ndarray, "B Q"],
    passages: Sequence[Sequence[Passage | None]],
    max_length: int = MAX_LENGTH,
    form: HfFormat = RAG_FORMAT,
) -> Int[np.ndarray, "B K S"]:
    """`<s> title / text // question </s>` for every pair, int32 ids of the generator, padded to `max_length`.

    Args:
      tokenizers: the question's reads `questions` back, the source's makes the ids.
      questions: ids for the question tower, special tokens and padding included.
      passages: K for every question; None where none was found, which gives a source without title and text.
      max_length: S, special tokens included. What goes beyond it is cut on the right.
      form: see `HfFormat`.

    Raises:
      ValueError: no room for a token between <s> and </s>.
    """
    if max_length < 3:
        raise ValueError(f"max_length={max_length} has no room for a token between <s> and </s>")
    asked = tokenizers.question.batch_decode(questions.tolist(), skip_special_tokens=True)
    nothing = Passage("", "", "")
    texts = [joined_text(q, z or nothing, form) for q, row in zip(asked, passages, strict=True) for z in row]
    t = tokenizers.source
    out = np.full((len(texts), max_length), t.pad_token_id, np.int32)
    for row, ids in zip(out, tokenizers.source_texts(texts), strict=True):
        framed = [t.bos_token_id, *ids[: max_length - 2], t.eos_token_id]
        row[: len(framed)] = framed
    return out.reshape(len(passages), len(passages[0]) if passages else 0, max_length)
