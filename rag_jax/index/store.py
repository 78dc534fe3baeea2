"""HOST. An index as a directory: manifest.json, vectors.npy, the passages and the backend's own files.

It is written beside its place and renamed into it in one step, so a reader meets the old index or the new one, whole.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int32

from rag_jax.index.backends import VECTORS, backend_named, measure_recall
from rag_jax.index.manifest import (
    MANIFEST,
    IndexMismatch,
    Manifest,
    Recall,
    inventory,
    read_manifest,
    this_program,
    verify_files,
    write_manifest,
)
from rag_jax.index.protocol import Searcher, check_queries, check_vectors
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
      vectors: [N, D] float32, memory-mapped, read-only.
      searcher: the backend.
    """

    directory: pathlib.Path
    manifest: Manifest
    passages: PassageTable
    vectors: Float32[np.ndarray, "N D"]
    searcher: Searcher

    def search(self, queries: Float[np.ndarray, "B D"], k: int) -> Int32[np.ndarray, "B k"]:
        """Rows of the k passages with the largest inner product; see `Searcher.search`."""
        return self.searcher.search(queries, k)


def build_index(
    directory: str | pathlib.Path,
    passages: PassageTable | Iterable[Passage],
    vectors: Float[np.ndarray, "N D"],
    *,
    encoder_fingerprint: str,
    backend: str = "scann",
    settings: Any = None,
    recall_k: int = 10,
    recall_queries: Float[np.ndarray, "B D"] | None = None,
    overwrite: bool = False,
) -> Index:
    """Builds an index, puts it at `directory` in one step, and opens it.

    Args:
      directory: what to make. Until the last step it does not exist or, with `overwrite`, holds the old index.
      passages: N passages in the order of `vectors`; copied.
      vectors: the passages' embeddings, stored as float32; may be memory-mapped.
      encoder_fingerprint: `embeddings.fingerprint` of the parameters that made them.
      backend: "scann" or "exact".
      settings: the backend's own (`ScannSettings`); None derives them from N.
      recall_k: neighbours to measure recall with.
      recall_queries: embedded questions to measure it with; None takes some of the vectors.
      overwrite: whether to replace the index at `directory`.

    Raises:
      FileExistsError: something is there, and it is no index or `overwrite` is False.
      ValueError: vectors that cannot be indexed, another number of passages than vectors, duplicate ids, an unknown
        backend, settings out of range.
    """
    directory = pathlib.Path(directory)
    chosen = backend_named(backend)
    if directory.exists() and not (directory / MANIFEST).is_file():
        raise FileExistsError(f"{directory}: exists and is no index, so it is not overwritten; choose another place")
    with written_beside(directory, replace=overwrite) as beside:
        check_vectors(vectors)
        recall_queries, source = _recall_queries(recall_queries, vectors, recall_k)
        table = PassageTable.write(beside / PASSAGES, passages)
        count, dim = vectors.shape
        if len(table) != count:
            raise ValueError(f"{len(table)} passages and {count} vectors; embed these passages again")
        stored = _write_vectors(beside / VECTORS, vectors)
        searcher = chosen.build(stored, settings)
        parameters = chosen.save(searcher, beside)
        recall = measure_recall(searcher, stored, recall_queries, recall_k)
        manifest = Manifest(
            count=count,
            dim=dim,
            passages=table.fingerprint,
            encoder=encoder_fingerprint,
            backend=backend,
            parameters=parameters,
            recall=Recall(recall_k, round(recall, 4), len(recall_queries), source),
            files=inventory(beside),
            created_by=this_program(),
        )
        write_manifest(beside, manifest)
    return open_index(directory, encoder_fingerprint=encoder_fingerprint, verify_large=False)


def open_index(
    directory: str | pathlib.Path,
    *,
    encoder_fingerprint: str | None = None,
    passages_fingerprint: str | None = None,
    verify_large: bool = True,
) -> Index:
    """Opens an index that `build_index` made, and refuses one that is damaged or made for something else.

    Args:
      directory: the index.
      encoder_fingerprint: of the passage encoder at hand; None accepts any.
      passages_fingerprint: of the passages that are expected; None accepts any.
      verify_large: whether files above 64 MiB are read whole for their checksum, a second or so for each GB. Sizes and
        shapes are compared in any case.

    Raises:
      FileNotFoundError: no index there.
      IndexMismatch: another format, another encoder or other passages than expected, or damaged files.
      ImportError: the backend's library is not installed.
    """
    directory = pathlib.Path(directory)
    manifest = read_manifest(directory)
    if encoder_fingerprint is not None and encoder_fingerprint != manifest.encoder:
        raise IndexMismatch(
            f"{directory}: the encoder has the fingerprint {encoder_fingerprint[:12]}, the vectors were made by "
            f"{manifest.encoder[:12]}; embed the passages with this encoder and rebuild the index, or load "
            "the encoder that made it"
        )
    if passages_fingerprint is not None and passages_fingerprint != manifest.passages:
        raise IndexMismatch(
            f"{directory}: the passages have the fingerprint {passages_fingerprint[:12]}, the index was built over "
            f"{manifest.passages[:12]}; embed these passages and rebuild the index"
        )
    verify_files(directory, manifest.files, verify_large)
    try:
        table = PassageTable.open(directory / PASSAGES)
        vectors = np.load(directory / VECTORS, mmap_mode="r", allow_pickle=False)
        _check_parts(manifest, table, vectors)
        searcher = backend_named(manifest.backend).load(directory, vectors)
    except (ValueError, OSError, EOFError) as error:
        raise IndexMismatch(f"{directory}: {error}; rebuild the index") from error
    return Index(directory, manifest, table, vectors, searcher)


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


def _write_vectors(path: pathlib.Path, vectors: Float[np.ndarray, "N D"]) -> Float32[np.ndarray, "N D"]:
    """Writes .npy as float32 in slices, and maps it."""
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=vectors.shape)
    step = max(1, (1 << 24) // vectors.shape[1])
    for start in range(0, len(vectors), step):
        out[start : start + step] = vectors[start : start + step]
    out.flush()
    return np.load(path, mmap_mode="r", allow_pickle=False)
