"""HOST. An index over vectors that somebody else computed, once they prove to be those of the encoder at hand."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jaxtyping import Float

from rag_jax.index.backends import VECTORS, backend_named
from rag_jax.index.change import RECALL_K, Embed
from rag_jax.index.dpr_embeddings import place_embeddings
from rag_jax.index.lock import changing
from rag_jax.index.store import PASSAGES, Index, check_place, slices, write_index
from rag_jax.text.table import PassageTable
from rag_jax.types import Passage

CHECKED = 8  # passages that are embedded again
LEAST_COSINE = 0.98  # other hardware, float16 or another limit of tokens leave more than this; other weights do not


def build_with_embeddings(
    directory: str | pathlib.Path,
    passages: Iterable[Passage],
    pairs: Iterable[tuple[str, Float[np.ndarray, " D"]]],
    embed: Embed,
    *,
    encoder_fingerprint: str,
    backend: str = "scann",
    settings: Any = None,
    overwrite: bool = False,
    made_with: dict[str, Any] | None = None,
    started: Callable[[int], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Index:
    """Builds an index over given vectors and puts it at `directory` in one step.

    Some passages are embedded again: questions are searched with the encoder that the manifest names, so the vectors
    must be that encoder's.

    Args:
      directory: what to make; see `build_index`. Meanwhile the work lies in `.NAME.importing` beside it.
      passages: N passages, streamed to disk.
      pairs: (id, vector) of each of them, in any order; see `place_embeddings`.
      embed: the encoder that made the vectors.
      encoder_fingerprint: of that encoder.
      backend, overwrite, made_with: see `build_index`.
      settings: see `build_index`; or a function N -> settings.
      started: called with N once the passages are read.
      progress: called with (vectors read, N) after each.

    Raises:
      FileExistsError: something is at `directory`, and it is no index or `overwrite` is False; before any work.
      ValueError: as `place_embeddings` and `build_index`; a backend without vectors; vectors of another encoder.
    """
    directory = pathlib.Path(directory)
    if backend_named(backend).texts:
        raise ValueError(f"the {backend} backend searches texts: it takes no embeddings")
    with changing(directory):
        check_place(directory, overwrite)
        work = directory.resolve().with_name(f".{directory.resolve().name}.importing")
        work.mkdir()
        try:
            table = PassageTable.write(work / PASSAGES, passages)
            if started is not None:
                started(len(table))
            if progress is not None:
                pairs = _counted(pairs, len(table), progress)
            vectors = place_embeddings(table, pairs, work / VECTORS)
            _check_encoder(table, vectors, embed)
            return write_index(
                directory,
                table,
                slices(vectors),
                shape=vectors.shape,
                encoder_fingerprint=encoder_fingerprint,
                backend=backend,
                settings=settings(len(table)) if callable(settings) else settings,
                recall_k=RECALL_K,
                recall_queries=None,
                overwrite=overwrite,
                made_with=made_with,
            )
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _counted(pairs: Iterable[Any], count: int, progress: Callable[[int, int], None]) -> Iterable[Any]:
    progress(0, count)
    for done, pair in enumerate(pairs, start=1):
        yield pair
        progress(done, count)


def _check_encoder(table: PassageTable, vectors: Float[np.ndarray, "N D"], embed: Embed) -> None:
    """Compares the vectors of a few passages with what the encoder gives for them."""
    rows = np.unique(np.linspace(0, len(table) - 1, CHECKED).astype(int)).tolist()
    again = np.asarray(embed([table[row] for row in rows]), np.float32)
    given = np.asarray(vectors[rows])
    if again.shape != given.shape:
        raise ValueError(f"the embeddings have {given.shape[1]} dimensions, the encoder gives {again.shape[1]}")
    lengths = np.linalg.norm(given, axis=1) * np.linalg.norm(again, axis=1)
    cosines = (given * again).sum(1) / np.maximum(lengths, 1e-30)
    worst = int(np.argmin(cosines))
    if not cosines[worst] >= LEAST_COSINE:
        raise ValueError(
            f"the embedding of passage {table[rows[worst]].id!r} and what this encoder gives for it have the cosine "
            f"{cosines[worst]:.3f}; give the weights of the encoder that made the embeddings"
        )
