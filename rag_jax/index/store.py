"""HOST. An index as a directory: manifest.json, vectors.npy, the passages and the backend's own files.

It is written beside its place and renamed into it in one step, so a reader meets the old index or the new one, whole.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int32

from rag_jax.index.backends import VECTORS, backend_named, measure_recall
from rag_jax.index.lock import changing
from rag_jax.index.manifest import (
    MANIFEST,
    IndexMismatch,
    Manifest,
    Recall,
    inventory,
    read_manifest,
    state_of,
    this_program,
    verify_files,
    write_manifest,
)
from rag_jax.index.protocol import Found, Searcher, TextSearcher, check_queries, check_vectors
from rag_jax.text.table import PassageTable, written_beside
from rag_jax.types import Passage

PASSAGES = "passages"
RECALL_QUERIES = 256


@dataclasses.dataclass(frozen=True)
class Index:
    """An open index: N passages, their vectors, and a way to search them. Row r of one is row r of the others.

    Attributes:
      directory: where it was opened.
      manifest: what it holds and what made it.
      passages: N passages.
      vectors: [N, D] float32, memory-mapped, read-only; D = 0 where the backend searches texts.
      searcher: the backend.
    """

    directory: pathlib.Path
    manifest: Manifest
    passages: PassageTable
    vectors: Float32[np.ndarray, "N D"]
    searcher: Searcher | TextSearcher

    @property
    def searches_texts(self) -> bool:
        """Whether to ask with `search_texts` (bm25); else with vectors."""
        return backend_named(self.manifest.backend).texts

    def search(self, queries: Float[np.ndarray, "B D"], k: int) -> Int32[np.ndarray, "B k"]:
        """Rows of the k passages with the largest inner product; see `Searcher.search`.

        Raises:
          ValueError: the backend searches texts, queries of another width or not finite, or k below 1.
        """
        if self.searches_texts or not isinstance(self.searcher, Searcher):
            raise ValueError(f"the {self.manifest.backend} backend searches texts: call search_texts")
        return self.searcher.search(queries, k)

    def search_scored(self, queries: Float[np.ndarray, "B D"], k: int) -> Found:
        """As `search`, with the inner products of the stored vectors in float32, by which the rows are ordered.

        Raises:
          ValueError: as `search`.
        """
        rows = self.search(queries, k)
        vectors = self.vectors[np.where(rows >= 0, rows, 0)]
        scores = np.einsum("bd,bkd->bk", np.asarray(queries, np.float32), vectors)
        scores = np.where(rows >= 0, scores, -np.inf).astype(np.float32)
        order = np.argsort(-scores, axis=1, kind="stable")
        return Found(np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1))

    def search_texts(self, texts: Sequence[str], k: int) -> Found:
        """Rows of the k passages that fit the texts best, with the scores; see `TextSearcher.search_texts`.

        Raises:
          ValueError: the backend searches vectors, or k below 1.
        """
        if not self.searches_texts or not isinstance(self.searcher, TextSearcher):
            raise ValueError(f"the {self.manifest.backend} backend searches vectors: embed the texts and call search")
        return self.searcher.search_texts(texts, k)


def build_index(
    directory: str | pathlib.Path,
    passages: PassageTable | Iterable[Passage],
    vectors: Float[np.ndarray, "N D"] | None,
    *,
    encoder_fingerprint: str,
    backend: str = "scann",
    settings: Any = None,
    recall_k: int = 10,
    recall_queries: Float[np.ndarray, "B D"] | None = None,
    overwrite: bool = False,
    made_with: dict[str, Any] | None = None,
) -> Index:
    """Builds an index, puts it at `directory` in one step, and opens it. Other writers of the same index wait.

    Args:
      directory: what to make. Until the last step it does not exist or, with `overwrite`, holds the old index.
      passages: N passages in the order of `vectors`; copied.
      vectors: the passages' embeddings, stored as float32; may be memory-mapped. A backend that searches texts takes
        none (None) and leaves given ones alone.
      encoder_fingerprint: `embeddings.fingerprint` of the parameters that made them.
      backend: a name in `BACKENDS`.
      settings: the backend's own (`ScannSettings`); None derives them from N.
      recall_k: neighbours to measure recall with.
      recall_queries: embedded questions to measure it with; None takes some of the vectors.
      overwrite: whether to replace the index at `directory`.
      made_with: see `Manifest`.

    Raises:
      FileExistsError: something is there, and it is no index or `overwrite` is False.
      ValueError: vectors that cannot be indexed, another number of passages than vectors, duplicate ids, an unknown
        backend, settings out of range.
    """
    if backend_named(backend).texts:
        vectors = None
    else:
        check_vectors(np.zeros((0, 0), np.float32) if vectors is None else vectors)
    with changing(directory):
        return write_index(
            directory,
            passages,
            [] if vectors is None else slices(vectors),
            shape=(0, 0) if vectors is None else vectors.shape,
            encoder_fingerprint=encoder_fingerprint,
            backend=backend,
            settings=settings,
            recall_k=recall_k,
            recall_queries=recall_queries,
            overwrite=overwrite,
            made_with=made_with,
        )


def write_index(
    directory: str | pathlib.Path,
    passages: PassageTable | Iterable[Passage],
    blocks: Iterable[Float[np.ndarray, "n D"]],
    *,
    shape: tuple[int, int],
    encoder_fingerprint: str,
    backend: str,
    settings: Any,
    recall_k: int,
    recall_queries: Float[np.ndarray, "B D"] | None,
    overwrite: bool,
    made_with: dict[str, Any] | None,
) -> Index:
    """`build_index` for a caller that holds the lock (`lock.changing`).

    Args:
      blocks: checked vectors, block by block, so that no more than one lies in memory; `shape` = (N, D) of all.
        Neither counts for a backend that searches texts.
      directory, passages, encoder_fingerprint, backend, settings, recall_k, recall_queries, overwrite, made_with:
        as there.

    Raises:
      FileExistsError, ValueError: as there.
    """
    directory = pathlib.Path(directory)
    chosen = backend_named(backend)
    chosen.check_settings(settings)
    check_place(directory, overwrite)
    with written_beside(directory, replace=overwrite) as beside:
        table = PassageTable.write(beside / PASSAGES, passages)
        if chosen.texts:
            stored = np.zeros((len(table), 0), np.float32)
        elif len(table) != shape[0]:
            raise ValueError(f"{len(table)} passages and {shape[0]} vectors; embed these passages again")
        else:
            stored = _write_vectors(beside / VECTORS, blocks, shape)
        searcher = chosen.build(stored, table, settings)
        chosen.save(searcher, beside)
        manifest = Manifest(
            count=len(table),
            dim=stored.shape[1],
            passages=table.fingerprint,
            encoder="" if chosen.texts else encoder_fingerprint,
            backend=backend,
            parameters=chosen.parameters(searcher),
            recall=_recall(searcher, stored, recall_queries, recall_k) if isinstance(searcher, Searcher) else None,
            files=inventory(beside),
            created_by=this_program(),
            made_with=made_with or {},
        )
        write_manifest(beside, manifest)
    return open_index(directory, encoder_fingerprint=encoder_fingerprint, verify_large=False)


def check_place(directory: pathlib.Path, overwrite: bool) -> None:
    """Refuses a place where no index may be put, before any work is done for it.

    Raises:
      FileExistsError: something is there, and it is no index or `overwrite` is False.
    """
    if directory.exists() and not (directory / MANIFEST).is_file():
        raise FileExistsError(
            f"{directory}: exists already and is no index (no {MANIFEST}), so it is never overwritten; choose another "
            "place, or move it away"
        )
    if directory.exists() and not overwrite:
        raise FileExistsError(f"{directory}: exists already; choose another place, or overwrite it (--overwrite)")


def open_index(
    directory: str | pathlib.Path,
    *,
    encoder_fingerprint: str | None = None,
    passages_fingerprint: str | None = None,
    verify_large: bool = True,
) -> Index:
    """Opens an index that `build_index` made, and refuses one that is damaged or made for something else.

    It may be replaced meanwhile: then the new one is opened, never a part of each. What is open stays as it is, until
    it is opened again, whatever happens to the directory.

    Args:
      directory: the index.
      encoder_fingerprint: of the passage encoder at hand; None accepts any. A backend that searches texts has none.
      passages_fingerprint: of the passages that are expected; None accepts any.
      verify_large: whether files above 64 MiB are read whole for their checksum, a second or so for each GB. Sizes and
        shapes are compared in any case.

    Raises:
      FileNotFoundError: no index there.
      IndexMismatch: another format, another encoder or other passages than expected, or damaged files.
      ImportError: the backend's library is not installed.
    """
    directory = pathlib.Path(directory)
    while True:
        before = state_of(directory)
        try:
            index = _open(directory, encoder_fingerprint, passages_fingerprint, verify_large)
        except Exception:  # each library has its own for files that are gone in the middle
            if state_of(directory) == before:
                raise
        else:  # one state, with the checksums in its manifest, means one set of files
            if state_of(directory) == before:
                return index


def _open(directory: pathlib.Path, encoder: str | None, passages: str | None, verify_large: bool) -> Index:
    manifest = read_manifest(directory)
    if encoder is not None and manifest.encoder and encoder != manifest.encoder:
        raise IndexMismatch(
            f"{directory}: the encoder has the fingerprint {encoder[:12]}, the vectors were made by "
            f"{manifest.encoder[:12]}; embed the passages with this encoder and rebuild the index, or load "
            "the encoder that made it"
        )
    if passages is not None and passages != manifest.passages:
        raise IndexMismatch(
            f"{directory}: the passages have the fingerprint {passages[:12]}, the index was built over "
            f"{manifest.passages[:12]}; embed these passages and rebuild the index"
        )
    verify_files(directory, manifest.files, verify_large)
    try:
        chosen = backend_named(manifest.backend)
        table = PassageTable.open(directory / PASSAGES)
        if chosen.texts:
            vectors = np.zeros((len(table), 0), np.float32)
        else:
            vectors = np.load(directory / VECTORS, mmap_mode="r", allow_pickle=False)
        _check_parts(manifest, table, vectors)
        searcher = chosen.load(directory, vectors, chosen.restored(manifest.parameters))
    except (ValueError, TypeError, OSError, EOFError, RuntimeError) as error:  # the last one is ScaNN's
        raise IndexMismatch(f"{directory}: {error}; rebuild the index") from error
    return Index(directory, manifest, table, vectors, searcher)


def slices(vectors: Float[np.ndarray, "N D"]) -> Iterator[Float[np.ndarray, "n D"]]:
    """Vectors in slices of some 64 MiB: a memory-mapped array may be larger than memory."""
    step = max(1, (1 << 24) // vectors.shape[1])
    return (vectors[start : start + step] for start in range(0, len(vectors), step))


def _recall(
    searcher: Searcher, vectors: Float32[np.ndarray, "N D"], queries: Float[np.ndarray, "B D"] | None, k: int
) -> Recall:
    queries, source = _recall_queries(queries, vectors, k)
    return Recall(k, round(measure_recall(searcher, vectors, queries, k), 4), len(queries), source)


def _recall_queries(
    queries: Float[np.ndarray, "B D"] | None, vectors: Float[np.ndarray, "N D"], k: int
) -> tuple[Float32[np.ndarray, "B D"], str]:
    """What to measure recall with, and where it comes from: "queries" that were given, or stored "vectors"."""
    source = "vectors" if queries is None else "queries"
    if queries is None:
        queries = np.asarray(vectors[np.unique(np.linspace(0, len(vectors) - 1, RECALL_QUERIES).astype(np.int64))])
    queries = check_queries(queries, k, vectors.shape[1])
    if not len(queries):
        raise ValueError("recall_queries holds no query; leave it out to measure with stored vectors")
    return queries, source


def _check_parts(manifest: Manifest, table: PassageTable, vectors: np.ndarray) -> None:
    if vectors.shape != (manifest.count, manifest.dim) or vectors.dtype != np.float32:
        expected = (manifest.count, manifest.dim)
        raise ValueError(f"{VECTORS} holds {vectors.dtype} {vectors.shape}, the manifest says float32 {expected}")
    if len(table) != manifest.count:
        raise ValueError(f"{len(table)} passages, the manifest says {manifest.count}")
    if table.fingerprint != manifest.passages:
        raise ValueError(f"passages {table.fingerprint[:12]}, the manifest says {manifest.passages[:12]}")


def _write_vectors(
    path: pathlib.Path, blocks: Iterable[Float[np.ndarray, "n D"]], shape: tuple[int, int]
) -> Float32[np.ndarray, "N D"]:
    """Writes .npy as float32 block by block, and maps it."""
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    end = 0
    for block in blocks:
        out[end : end + len(block)] = block
        end += len(block)
    if end != shape[0]:
        raise ValueError(f"{end} vectors for {shape[0]} rows")
    out.flush()
    return np.load(path, mmap_mode="r", allow_pickle=False)
