"""HOST. Questions in, answers with their sources out: retrieval, decoding and the texts around them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from rag_jax.rag.decode import Decoded, decode_sequence, decode_together, decode_token
from rag_jax.rag.device_retrieve import Resident, retrieve
from rag_jax.rag.labels import decode_labels
from rag_jax.rag.loss import batch_prior, batch_source, check_variant
from rag_jax.rag.model import Architecture
from rag_jax.rag.retrieve import ClosedBook, Retriever, make_batch
from rag_jax.rag.rules import DecodeOptions
from rag_jax.rag.shapes import to_devices
from rag_jax.sharding import ONE_DEVICE, Layout
from rag_jax.text.tokens import Tokenizers, trim
from rag_jax.types import NO_DOCUMENT, Alternative, Answer, Batch, Passage, Source


@functools.partial(jax.jit, static_argnames=("arch", "variant", "width", "options", "fast", "labels", "layout"))
def decode_batch(
    params: Any,
    arch: Architecture,
    batch: Batch,
    key: jax.Array | None = None,
    resident: Resident | None = None,
    *,
    variant: str,
    width: int,
    options: DecodeOptions,
    fast: bool = False,
    labels: tuple[int, ...] = (),
    layout: Layout = ONE_DEVICE,
) -> tuple[jax.Array | None, jax.Array, Decoded]:
    """The prior [B,K] as log-probabilities and the decoded answers of one batch. One program for each bucket.

    With `resident` the passages are found here, and their rows [B,K] come first; else None does. Over a mesh every
    device decodes its own rows of the batch. With `labels`, token ids, an answer is one of these.

    Raises:
      ValueError: another variant.
    """
    check_variant(variant)
    with layout.rows_stay():
        params = layout.ready(params)
        rows = None
        if resident is not None:
            batch, rows = retrieve(resident, arch, params["question_encoder"], batch)
        prior = batch_prior(params, arch, batch)
        source, mask = batch_source(arch, batch, width)
        together = variant == "fid"
        if together:
            mask &= batch.valid[..., None]
        given = params["generator"], arch.generator, source, mask
        if labels:
            return rows, prior, decode_labels(*given, prior, labels, slots=batch.slots, together=together)
        if together:
            return rows, prior, decode_together(*given, options, key, slots=batch.slots, parts=layout.parts)
        if variant == "token":
            return rows, prior, decode_token(*given, prior, options, key, slots=batch.slots, parts=layout.parts)
        found = decode_sequence(*given, prior, options, key, slots=batch.slots, fast=fast, parts=layout.parts)
        return rows, prior, found


def answer(
    params: Any,
    arch: Architecture,
    tokenizers: Tokenizers,
    retriever: Retriever | ClosedBook,
    questions: Sequence[str],
    *,
    variant: str,
    batch_size: int = 32,
    max_source: int = 160,
    options: DecodeOptions | None = None,
    fast: bool = False,
    labels: Sequence[str] = (),
    seed: int = 0,
    layout: Layout = ONE_DEVICE,
    one_shape: bool = False,
) -> Iterator[Answer]:
    """Answers in the order of the questions, a batch at a time.

    Of several processes each retrieves and decodes its own rows of every batch, and all yield all answers.

    Args:
      params: {'question_encoder', 'generator'}, and 'null_document' where the retriever has one; the generator alone
        for `ClosedBook` and where texts are searched.
      arch: sizes.
      tokenizers: of every role.
      retriever: the index with its k, or none.
      questions: as the user wrote them. An empty one is answered too, from whatever passages lie nearest to it; of a
        very long one the first tokens count (`Tokenizers.max_question`, with a warning).
      variant: 'sequence', 'token' or 'fid'.
      batch_size: questions at a time; the last batch is filled up, so one shape serves all. Over a mesh the next
        multiple of the devices that cut it.
      max_source: the longest source in tokens; passages lose their tails to fit.
      options: the search; greedy up to the target's limit by default.
      fast: RAG-Sequence counts a passage only for the answers in its own beam; else decoding is thorough.
      labels: words of one token each; the answer is the likeliest of them, without a search.
      seed: of sampling.
      layout: where the parameters lie.
      one_shape: one program for all questions, see `to_devices`; for a retriever that finds passages on the host.

    Raises:
      ValueError: one text instead of several, or one that is not Unicode (half of a surrogate pair in it).
    """
    if isinstance(questions, str):
        raise ValueError("questions are several texts, given one string; one question is [text]")
    if not questions:
        return
    options = options or DecodeOptions(max_new_tokens=tokenizers.max_target)
    how = {"variant": variant, "options": options, "fast": fast, "labels": tokenizers.labels(labels)}
    pad = tokenizers.source.pad_token_id
    asked, source_asked = question_rows(tokenizers, questions, tokenizers.max_question if one_shape else 8)
    batch_size = -(-batch_size // layout.parts) * layout.parts
    mine = layout.my_rows(batch_size)
    for start in range(0, len(questions), batch_size):
        count = min(batch_size, len(questions) - start)
        # The last batch repeats its last question instead of being a new shape.
        take = np.minimum(start + mine, start + count - 1)
        texts = [questions[i] for i in take]
        encoder = arch.question_encoder, params.get("question_encoder")
        batch, rows = make_batch(retriever, *encoder, asked[take], source_asked[take], texts)
        batch, width = to_devices(batch, pad, max_source, layout, resident=retriever.resident, one_shape=one_shape)
        key = jax.random.fold_in(jax.random.key(seed), start) if options.do_sample else None
        where = {"resident": retriever.resident, "layout": layout}
        found, prior, decoded = decode_batch(params, arch, batch, key, width=width, **where, **how)
        found = found if rows is None else layout.rows(rows)
        rows, prior, decoded = layout.to_host((found, prior, decoded))
        for i in range(count):
            yield _answer(tokenizers, retriever, rows[i], prior[i], jax.tree.map(lambda x, i=i: x[i], decoded))


def question_rows(
    tokenizers: Tokenizers, questions: Sequence[str], multiple: int
) -> tuple[Int[np.ndarray, "B Q"], Int[np.ndarray, "B L"]]:
    """Questions for the question encoder and for the generator, both as wide as a multiple of `multiple`."""
    asked = trim(tokenizers.questions(questions), tokenizers.question.pad_token_id, multiple)
    return asked, trim(tokenizers.source_questions(questions), tokenizers.source.pad_token_id, multiple)


def _answer(
    tokenizers: Tokenizers, retriever: Retriever | ClosedBook, rows: np.ndarray, prior: np.ndarray, decoded: Decoded
) -> Answer:
    """One question's answer; `decoded` is its row, with the alternatives behind the best."""
    ids = decoded.tokens[0][decoded.tokens[0] != tokenizers.target.pad_token_id]
    by_token = None if decoded.token_posterior is None else decoded.token_posterior[0][:, : len(ids)]
    posterior = None if decoded.posterior is None else decoded.posterior[0]
    others = zip(decoded.tokens[1:], decoded.logprob[1:], strict=True)
    return Answer(
        text=tokenizers.text(ids),
        logprob=float(decoded.logprob[0]),
        sources=sources_of(retriever, rows, prior, posterior, by_token),
        tokens=tuple(tokenizers.target.convert_ids_to_tokens(ids.tolist())),
        alternatives=tuple(Alternative(tokenizers.text(t), float(p)) for t, p in others if p > -np.inf),
    )


def sources_of(
    retriever: Retriever | ClosedBook,
    rows: np.ndarray,
    prior: np.ndarray,
    posterior: np.ndarray | None,
    by_token: np.ndarray | None,
) -> tuple[Source, ...]:
    """The passages of one question, best prior first; the approximate index's own order does not count.

    The null document is one of them, where there is one.

    Args:
      retriever: which found them.
      rows: [K] its rows, -1 where there is none.
      prior: [K], as log-probabilities.
      posterior: [K]; None: nobody knows.
      by_token: [K,T] for RAG-Token.
    """
    if isinstance(retriever, ClosedBook):
        return ()
    passages: list[Passage | None] = [retriever.index.passages[row] if row >= 0 else None for row in rows]
    if retriever.null_document:
        passages[-1] = NO_DOCUMENT
    found = [
        Source(
            passage,
            float(np.exp(prior[i])),
            None if posterior is None else float(posterior[i]),
            () if by_token is None else tuple(map(float, by_token[i])),
        )
        for i, passage in enumerate(passages)
        if passage is not None
    ]
    return tuple(sorted(found, key=lambda source: -source.prior))
