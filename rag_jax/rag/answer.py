"""HOST. Questions in, answers with their sources out: retrieval, decoding and the texts around them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from rag_jax.rag.decode import Decoded, decode_sequence, decode_token
from rag_jax.rag.loss import batch_prior, batch_source
from rag_jax.rag.model import Architecture
from rag_jax.rag.retrieve import ClosedBook, Retriever, source_width
from rag_jax.text.tokens import Tokenizers, trim
from rag_jax.types import Answer, Batch, Source

DECODERS = {"sequence": decode_sequence, "token": decode_token}


@functools.partial(jax.jit, static_argnames=("arch", "variant", "width", "max_tokens"))
def decode_batch(
    params: Any, arch: Architecture, batch: Batch, *, variant: str, width: int, max_tokens: int
) -> tuple[jax.Array, Decoded]:
    """The prior [B,K] as log-probabilities and the decoded answers of one batch. Compiled once for each width."""
    prior = batch_prior(params, arch, batch)
    source, mask = batch_source(arch, batch, width)
    return prior, DECODERS[variant](params["generator"], arch.generator, source, mask, prior, max_tokens)


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
) -> Iterator[Answer]:
    """Answers in the order of the questions, a batch at a time.

    Args:
      params: {'question_encoder', 'generator'}; for `ClosedBook` the generator alone.
      arch: sizes.
      tokenizers: of both models.
      retriever: the index with its k, or none.
      questions: as the user wrote them.
      variant: 'sequence' (thorough decoding) or 'token'.
      batch_size: questions at a time; the last batch is filled up, so one shape serves all.
      max_source: the longest source in tokens; passages lose their tails to fit.
    """
    if not questions:
        return
    pad = arch.generator.pad_id
    asked = trim(tokenizers.questions(questions), arch.question_encoder.pad_id, 8)
    source_asked = trim(tokenizers.source_questions(questions), pad, 8)
    for start in range(0, len(questions), batch_size):
        count = min(batch_size, len(questions) - start)
        # The last batch repeats its last question instead of being a new shape.
        take = np.minimum(np.arange(start, start + batch_size), start + count - 1)
        rows = retriever.rows(arch.question_encoder, params.get("question_encoder"), asked[take])
        batch = retriever.batch(rows, asked[take], source_asked[take])
        width = source_width(batch, pad, max_source)
        prior, decoded = jax.device_get(
            decode_batch(params, arch, batch, variant=variant, width=width, max_tokens=tokenizers.max_target)
        )
        for i in range(count):
            yield Answer(
                text=tokenizers.text(decoded.tokens[i]),
                logprob=float(decoded.logprob[i]),
                sources=_sources(retriever, rows[i], prior[i], decoded.posterior[i]),
            )


def _sources(
    retriever: Retriever | ClosedBook, rows: np.ndarray, prior: np.ndarray, posterior: np.ndarray
) -> tuple[Source, ...]:
    """The passages of one question, best prior first; the approximate index's own order does not count."""
    if isinstance(retriever, ClosedBook):
        return ()
    found = [
        Source(retriever.index.passages[row], float(np.exp(p)), float(q))
        for row, p, q in zip(rows, prior, posterior, strict=True)
        if row >= 0
    ]
    return tuple(sorted(found, key=lambda source: -source.prior))
