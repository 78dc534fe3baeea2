"""HOST. From questions to batches: encode, search, fetch the passages' vectors and tokens.

An index of vectors answers with row numbers only. Scores are computed again on device from the stored vectors, so that
they are exact and carry a gradient to the question encoder. An index of words (BM25) gives the scores as well.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from rag_jax.index import (
    NO_PASSAGE,
    Baseline,
    DeviceSearcher,
    DeviceSettings,
    Index,
    device_index,
    device_rows,
    embed,
)
from rag_jax.index.device import DeviceIndex
from rag_jax.models.bert import Bert, BertConfig
from rag_jax.rag.device_retrieve import Resident, columns
from rag_jax.rag.source import bucket
from rag_jax.sharding import ONE_DEVICE, Layout, first_alone, local_rows
from rag_jax.text.hf_compat_input import RAG_FORMAT, HfFormat, hf_compat_sources
from rag_jax.text.token_rows import FoundPassages, Role, passage_rows
from rag_jax.text.tokens import Tokenizers
from rag_jax.types import Batch, Passage


@functools.partial(jax.jit, static_argnums=0, static_argnames="layout")
def encode(
    config: BertConfig, params: Any, tokens: Int[Array, "B L"], layout: Layout = ONE_DEVICE
) -> Float[Array, "B D"]:
    """Vectors of token rows by one tower, float32. Compiled once for each shape."""
    with layout.rows_stay():
        return Bert(config).apply({"params": layout.ready(params)}, tokens)


def embed_passages(
    config: BertConfig, params: Any, tokenizers: Tokenizers, passages: Sequence[Passage], batch_size: int = 128
) -> Float[np.ndarray, "N D"]:
    """The passage tower over a collection, in its order."""
    rows = tokenizers.passages(passages)
    return embed(functools.partial(encode, config, params), rows, pad_id=config.pad_id, batch_size=batch_size)


class Hits(NamedTuple):
    """What was found for B questions.

    Attributes:
      rows: [B,K] row numbers, -1 where there is no passage.
      scores: float32 [B,K], logits of p(z|x); None: q.d, from the vectors.
      null_document: whether the last place is the null document's. Its row is -1, its score is not known yet.
    """

    rows: Int[np.ndarray, "B K"]
    scores: Float[np.ndarray, "B K"] | None = None
    null_document: bool = False

    def with_null_document(self) -> Hits:
        """The same with a place for the null document at the end."""
        beside = ((0, 0), (0, 1))
        scores = None if self.scores is None else np.pad(self.scores, beside)
        return Hits(np.pad(self.rows, beside, constant_values=NO_PASSAGE), scores, True)


class Retriever:
    """Finds the k passages for each question of a batch and fetches what the step needs of them.

    Args:
      index: an open index, or what stands for one in an ablation.
      tokenizers: of every role.
      k: passages a question, at least 1. More than the index holds is legal: the places left over are not valid.
      layout: where questions are encoded. Of several processes each encodes and searches for its own rows.
      encoded_in_step: batches hold `encoder_passages`, for a passage encoder that is trained.
      null_document: whether there is an empty passage beside the k, with a place of its own behind them.
    """

    resident: Resident | None = None  # what a step retrieves from by itself

    def __init__(
        self,
        index: Index | Baseline,
        tokenizers: Tokenizers,
        k: int,
        layout: Layout = ONE_DEVICE,
        encoded_in_step: bool = False,
        null_document: bool = False,
    ):
        self.index, self.k, self.tokenizers, self.layout = index, k, tokenizers, layout
        self.encoded_in_step, self.null_document = encoded_in_step, null_document
        self.pad_id = tokenizers.source.pad_token_id

    def with_k(self, k: int) -> Retriever:
        """The same index and what was read of it, with another number of passages a question."""
        other = copy.copy(self)
        other.k = k
        if self.resident is not None:
            other.resident = dataclasses.replace(self.resident, k=k)
        return other

    @functools.cached_property
    def tokens(self) -> Int[np.ndarray, "N P"] | FoundPassages:
        """All passages for the generator, computed once; `FoundPassages` is put here where questions come singly."""
        return self.tokenizers.source_passages(list(self.index.passages))

    @functools.cached_property
    def encoder_tokens(self) -> Int[np.ndarray, "N P"]:
        """All passages for the passage encoder, computed once."""
        return self.tokenizers.passages(list(self.index.passages))

    def take_index(self, index: Index) -> None:
        """Goes over to another index of the same passages in the same order."""
        self.index = index

    def encode_ahead(self, config: BertConfig, params: Any, questions: Int[np.ndarray, "B Q"]) -> jax.Array | None:
        """The vectors [B,D] that `find` will search with, still being computed; None where it needs none from here.

        `params` may be what a step that still runs will leave: the device encodes behind it, and the host goes on.
        """
        if self.index.searches_texts or self.resident is not None:
            return None
        return encode(config, params, self.layout.rows(questions), layout=self.layout)

    def find(
        self,
        config: BertConfig,
        params: Any,
        questions: Int[np.ndarray, "B Q"],
        texts: Sequence[str],
        vectors: jax.Array | None = None,
    ) -> Hits:
        """The best passages: for the vectors of `questions`, or for `texts` where the index searches by words.

        Args:
          config: sizes of the question encoder.
          params: its parameters; anything where the index searches by words.
          questions: token rows.
          texts: the same questions.
          vectors: [B,D], what `encode_ahead` gave for them; None: they are encoded now.
        """
        if self.index.searches_texts:
            return Hits(*self.index.search_texts(texts, self.k))
        if vectors is None:
            vectors = encode(config, params, self.layout.rows(questions), layout=self.layout)
        return Hits(self.index.search(local_rows(vectors), self.k))

    def batch(
        self,
        hits: Hits,
        question: Int[np.ndarray, "B Q"],
        source_question: Int[np.ndarray, "B L"],
        target: Int[np.ndarray, "B T"] | None = None,
        weight: Float[np.ndarray, "B"] | None = None,
    ) -> Batch:
        """The batch for these hits. Its shapes do not depend on what was found: only `source_width` does."""
        source_question, passages = self._sources(hits, question, source_question)
        valid, scores = _prior(hits)
        vectors = self.vectors(hits.rows)
        given = question, source_question, passages, vectors, valid, target, weight, scores
        more: dict[str, Any] = {
            "null_document": hits.null_document,
            "encoder_passages": self.encoder_passages(hits.rows),
        }
        return Batch(*given, **more)

    def _sources(
        self, hits: Hits, question: Int[np.ndarray, "B Q"], source_question: Int[np.ndarray, "B L"]
    ) -> tuple[Int[np.ndarray, "B L"], Int[np.ndarray, "B K P"]]:
        """What the step joins: the question and the passages, as the generator reads them."""
        found = hits.rows >= 0
        passages = np.where(found[..., None], self.tokens[np.where(found, hits.rows, 0)], self.pad_id)
        return source_question, passages

    def encoder_passages(self, rows: Int[np.ndarray, "B K"]) -> Int[np.ndarray, "B K P"] | None:
        """These rows' passages for the passage encoder, if steps encode them; row 0's where there is none."""
        return self.encoder_tokens[np.maximum(rows, 0)] if self.encoded_in_step else None

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
      layout, encoded_in_step, null_document: see `Retriever`.
    """

    def __init__(
        self,
        index: Index | Baseline,
        tokenizers: Tokenizers,
        k: int,
        max_source: int,
        form: HfFormat = RAG_FORMAT,
        layout: Layout = ONE_DEVICE,
        encoded_in_step: bool = False,
        null_document: bool = False,
    ):
        super().__init__(index, tokenizers, k, layout, encoded_in_step, null_document)
        self.max_source, self.form = max_source, form

    def _sources(
        self, hits: Hits, question: Int[np.ndarray, "B Q"], source_question: Int[np.ndarray, "B L"]
    ) -> tuple[Int[np.ndarray, "B 0"], Int[np.ndarray, "B K S"]]:
        """No question, and whole sources in the place of passages, as wide as the longest needs in steps of 32."""
        passages = [[self.index.passages[int(i)] if i >= 0 else None for i in row] for row in hits.rows]
        sources = hf_compat_sources(self.tokenizers, question, passages, self.max_source, self.form)
        longest = int((sources != self.pad_id).sum(-1).max())
        return source_question[:, :0], sources[..., : bucket(longest, 32, self.max_source)]


class DeviceRetriever(Retriever):
    """Puts an index on the devices, for steps that retrieve by themselves (`rag_jax.rag.device_retrieve`).

    Args:
      index: of vectors; its own copy on a device, if it has one, is given up.
      tokenizers, k: see `Retriever`.
      settings: how vectors lie on the devices and are searched.
      layout: over whose mesh they are cut by rows.
      encoded_in_step: the passages for the passage encoder lie on the devices too, see `Retriever`.
      null_document: see `Retriever`.

    Attributes:
      resident: what the step reads.

    Raises:
      ValueError: an index of words, or settings that cannot be used.
    """

    index: Index
    resident: Resident

    def __init__(
        self,
        index: Index,
        tokenizers: Tokenizers,
        k: int,
        settings: DeviceSettings,
        layout: Layout = ONE_DEVICE,
        encoded_in_step: bool = False,
        null_document: bool = False,
    ):
        super().__init__(index, tokenizers, k, layout, encoded_in_step, null_document)
        if index.searches_texts:
            raise ValueError(f"the {index.manifest.backend} backend searches texts, which a step on devices has not")
        self.settings = settings
        tokens, longest = self._tokens("source")
        encoder_tokens = self._tokens("passage")[0] if encoded_in_step else None
        self.resident = Resident(self._vectors(index), tokens, k, longest, encoder_tokens)

    def take_index(self, index: Index) -> None:
        """Goes over to another index of the same passages; never are both on the devices."""
        super().take_index(index)
        rest = {name: getattr(self.resident, name) for name in ("tokens", "k", "longest", "encoder_tokens")}
        del self.resident  # and with it the old vectors
        self.resident = Resident(index=self._vectors(index), **rest)

    @property
    def _mesh(self) -> Mesh | None:
        return None if self.layout.alone else self.layout.placed_on

    def _vectors(self, index: Index) -> DeviceIndex:
        if isinstance(index.searcher, DeviceSearcher):
            index.searcher.release()
        return device_index(index.vectors, self.settings, self._mesh, checked=True)

    def _tokens(self, role: Role) -> tuple[jax.Array, int]:
        """All passages for a role on the devices, and how many tokens a row has without what fills it up."""
        place = self.index.directory.with_name(f"{self.index.directory.name}.tokens")
        read = functools.partial(passage_rows, place, self.index.passages, self.tokenizers, role)
        first_alone(read)  # it writes the file; then all find it
        rows = read()
        rows = rows if rows.dtype == np.uint16 else rows.view(np.uint32)
        return device_rows(rows, self._mesh, columns=columns(rows.shape[1])), rows.shape[1]


class ClosedBook:
    """The stand-in without retrieval: one empty passage a question, so the generator sees the question alone."""

    k = 1
    resident = None
    null_document = False

    def __init__(self, pad_id: int):
        self.pad_id = pad_id

    def encode_ahead(self, config: BertConfig, params: Any, questions: Int[np.ndarray, "B Q"]) -> None:
        """There is nothing to search with."""

    def find(
        self,
        config: BertConfig,
        params: Any,
        questions: Int[np.ndarray, "B Q"],
        texts: Sequence[str],
        vectors: jax.Array | None = None,
    ) -> Hits:
        """Row 0 for every question: the empty passage, whose prior is 1 whatever its score.

        Nothing of what a `Retriever` looks at is read, `vectors` [B,D] neither.
        """
        return Hits(np.zeros((len(questions), 1), np.int32), np.zeros((len(questions), 1), np.float32))

    def batch(
        self,
        hits: Hits,
        question: Int[np.ndarray, "B Q"],
        source_question: Int[np.ndarray, "B L"],
        target: Int[np.ndarray, "B T"] | None = None,
        weight: Float[np.ndarray, "B"] | None = None,
    ) -> Batch:
        """A batch whose passages are empty."""
        count = len(hits.rows)
        passages = np.full((count, 1, 1), self.pad_id, np.int32)
        vectors = np.zeros((count, 1, 0), np.float32)
        return Batch(question, source_question, passages, vectors, hits.rows >= 0, target, weight, hits.scores)


def _prior(hits: Hits) -> tuple[Bool[np.ndarray, "B K"], Float[np.ndarray, "B K"] | None]:
    """Which places count, and the given scores with zeros in the others.

    The null document's always counts. Without one, where words find nothing for a question, its first place counts,
    with the empty passage that stands there: a prior over no passage would be NaN.
    """
    found = hits.rows >= 0
    valid = found.copy()
    valid[:, -1] |= hits.null_document
    valid[:, 0] |= ~valid.any(1)
    return valid, None if hits.scores is None else np.where(found, hits.scores, 0.0).astype(np.float32)


def make_batch(
    retriever: Retriever | ClosedBook,
    config: BertConfig,
    params: Any,
    question: Int[np.ndarray, "B Q"],
    source_question: Int[np.ndarray, "B L"],
    texts: Sequence[str],
    target: Int[np.ndarray, "B T"] | None = None,
    weight: Float[np.ndarray, "B"] | None = None,
    vectors: jax.Array | None = None,
) -> tuple[Batch, Int[np.ndarray, "B K"] | None]:
    """Finds passages on the host and makes the batch of them; or leaves both to the step, if that retrieves by itself.

    Args:
      retriever: where from.
      config, params: of the question encoder.
      question, source_question, texts: the questions, for the encoder, the generator and a search by words.
      target, weight: see `Batch`.
      vectors: [B,D], what `Retriever.encode_ahead` gave for the questions, if it was asked.

    Returns:
      The batch, and the rows that were found; None where the step will find them.
    """
    null = retriever.null_document
    if retriever.resident is not None:
        return Batch(question, source_question, target=target, weight=weight, null_document=null), None
    hits = retriever.find(config, params, question, texts, vectors)
    hits = hits.with_null_document() if null else hits
    return retriever.batch(hits, question, source_question, target, weight), hits.rows
