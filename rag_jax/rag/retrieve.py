"""HOST. From questions to batches: encode, search, fetch the passages' vectors and tokens.

The index answers with row numbers only. Scores are computed again on device from the stored vectors, so that they are
exact and carry a gradient to the question encoder.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from rag_jax.index import Index, embed
from rag_jax.models.bert import Bert, BertConfig
from rag_jax.rag.source import SPECIALS, bucket
from rag_jax.text.hf_compat_input import RAG_FORMAT, HfFormat, hf_compat_sources
from rag_jax.text.tokens import Tokenizers
from rag_jax.types import Batch, Passage


@functools.partial(jax.jit, static_argnums=0)
def encode(config: BertConfig, params: Any, tokens: jax.Array) -> jax.Array:
    """Vectors of token rows by one tower, float32 [B,D]. Compiled once for each shape."""
    return Bert(config).apply({"params": params}, tokens)


def embed_passages(
    config: BertConfig, params: Any, tokenizers: Tokenizers, passages: Sequence[Passage], batch_size: int = 128
) -> Float[np.ndarray, "N D"]:
    """The passage tower over a collection, in its order."""
    rows = tokenizers.passages(passages)
    return embed(functools.partial(encode, config, params), rows, pad_id=config.pad_id, batch_size=batch_size)


class Retriever:
    """Finds the k passages for each question of a batch and fetches what the step needs of them.

    Args:
      index: an open index.
      tokenizers: of every role.
      k: passages a question, at least 1. More than the index holds is legal: the places left over are not valid.
    """

    def __init__(self, index: Index, tokenizers: Tokenizers, k: int):
        self.index, self.k, self.tokenizers = index, k, tokenizers
        self.pad_id = tokenizers.source.pad_token_id

    @functools.cached_property
    def tokens(self) -> Int[np.ndarray, "N P"]:
        """All passages for the generator, computed once."""
        return self.tokenizers.source_passages(list(self.index.passages))

    def rows(self, config: BertConfig, params: Any, questions: Int[np.ndarray, "B Q"]) -> Int[np.ndarray, "B K"]:
        """Row numbers of the best passages under the question encoder as it is now; -1 where there is none."""
        return self.index.search(np.asarray(encode(config, params, questions)), self.k)

    def batch(
        self,
        rows: Int[np.ndarray, "B K"],
        question: Int[np.ndarray, "B Q"],
        source_question: Int[np.ndarray, "B L"],
        target: Int[np.ndarray, "B T"] | None = None,
        weight: Float[np.ndarray, "B"] | None = None,
    ) -> Batch:
        """The batch for these rows. Its shapes do not depend on what was found: only `source_width` does."""
        valid = rows >= 0
        place = np.where(valid, rows, 0)
        passages = np.where(valid[..., None], self.tokens[place], self.pad_id)
        return Batch(question, source_question, passages, self.vectors(rows), valid, target, weight)

    def vectors(self, rows: Int[np.ndarray, "B K"]) -> Float[np.ndarray, "B K D"]:
        """The stored vectors of these rows, float32; zero where there is no passage."""
        valid = rows >= 0
        return np.where(valid[..., None], self.index.vectors[np.where(valid, rows, 0)], 0.0).astype(np.float32)


class HfCompatRetriever(Retriever):
    """As `Retriever`, but question and passage are joined as text, as Hugging Face's RAG does it: on the host.

    Args:
      index, tokenizers, k: see `Retriever`.
      max_source: the longest source in tokens; what goes beyond it is cut, the question first.
      form: how the checkpoint joins.
    """

    def __init__(self, index: Index, tokenizers: Tokenizers, k: int, max_source: int, form: HfFormat = RAG_FORMAT):
        super().__init__(index, tokenizers, k)
        self.max_source, self.form = max_source, form

    def batch(
        self,
        rows: Int[np.ndarray, "B K"],
        question: Int[np.ndarray, "B Q"],
        source_question: Int[np.ndarray, "B L"],
        target: Int[np.ndarray, "B T"] | None = None,
        weight: Float[np.ndarray, "B"] | None = None,
    ) -> Batch:
        """A batch with whole sources in the place of passages, as wide as the longest needs in steps of 32."""
        passages = [[self.index.passages[int(i)] if i >= 0 else None for i in row] for row in rows]
        sources = hf_compat_sources(self.tokenizers, question, passages, self.max_source, self.form)
        longest = int((sources != self.pad_id).sum(-1).max())
        sources = sources[..., : bucket(longest, 32, self.max_source)]
        return Batch(question, source_question[:, :0], sources, self.vectors(rows), rows >= 0, target, weight)


class ClosedBook:
    """The stand-in without retrieval: one empty passage a question, so the generator sees the question alone."""

    k = 1

    def __init__(self, dim: int, pad_id: int):
        self.dim, self.pad_id = dim, pad_id

    def rows(self, config: BertConfig, params: Any, questions: Int[np.ndarray, "B Q"]) -> Int[np.ndarray, "B 1"]:
        """Row 0 for every question: the empty passage."""
        return np.zeros((len(questions), 1), np.int32)

    def batch(
        self,
        rows: Int[np.ndarray, "B 1"],
        question: Int[np.ndarray, "B Q"],
        source_question: Int[np.ndarray, "B L"],
        target: Int[np.ndarray, "B T"] | None = None,
        weight: Float[np.ndarray, "B"] | None = None,
    ) -> Batch:
        """A batch whose passages are empty."""
        passages = np.full((len(rows), 1, 1), self.pad_id, np.int32)
        vectors = np.zeros((len(rows), 1, self.dim), np.float32)
        return Batch(question, source_question, passages, vectors, rows >= 0, target, weight)


def source_width(batch: Batch, pad_id: int, most: int) -> int:
    """The static source width for a batch: what its longest pair needs, in steps of 32, at most `most`.

    `most` gives way to the questions, which are never cut. Sources that are joined already have their width.
    """
    if not batch.source_question.shape[1]:
        return batch.passages.shape[-1]
    longest = batch.source_question.shape[1]
    asked = (batch.source_question != pad_id).sum(-1)
    read = (batch.passages != pad_id).sum(-1).max(-1)
    needed = int((asked + read).max()) + SPECIALS
    return max(longest + SPECIALS, bucket(needed, 32, most))
