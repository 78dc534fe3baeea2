"""HOST. A build that goes on where it was killed: vectors are kept shard by shard until the index stands."""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jaxtyping import Float32

from rag_jax.index.backends import VECTORS, backend_named
from rag_jax.index.change import RECALL_K, Embed
from rag_jax.index.lock import changing, clear_remains
from rag_jax.index.manifest import MAX_PASSAGE_TOKENS
from rag_jax.index.protocol import check_vectors
from rag_jax.index.store import PASSAGES, Index, check_place, slices, write_index
from rag_jax.text.table import PassageTable
from rag_jax.types import Passage

SHARD_ROWS = 4096
JOB = "job.json"
DONE = "done.txt"


def build_resumable(
    directory: str | pathlib.Path,
    passages: Iterable[Passage],
    embed: Embed | None,
    *,
    encoder_fingerprint: str,
    backend: str = "scann",
    settings: Any = None,
    recall_k: int = RECALL_K,
    overwrite: bool = False,
    made_with: dict[str, Any] | None = None,
    shard_rows: int = SHARD_ROWS,
    started: Callable[[int], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Index:
    """Embeds passages, builds their index and puts it at `directory` in one step.

    Until then the work lies in `.NAME.building` beside the directory. A second call with the same passages, the same
    encoder and the same limit of tokens takes over the shards whose checksums hold and embeds the rest; with others it
    begins anew.

    Args:
      directory: what to make; see `build_index`.
      passages: read once, streamed to disk.
      embed: the passage encoder; None where the backend searches texts.
      encoder_fingerprint: of that encoder.
      backend, recall_k, overwrite: see `build_index`.
      made_with: see `Manifest`; its "max_passage_tokens" tells shards apart whose passages were cut otherwise.
      settings: see `build_index`; or a function N -> settings, as N is known only when the passages are read.
      shard_rows: passages that a kill can cost.
      started: called with N once the passages are read.
      progress: called with (rows done, N) after each shard; the first call counts those that were taken over.

    Raises:
      FileExistsError: something is at `directory`, and it is no index or `overwrite` is False; before any work.
      ValueError: as `build_index`.
    """
    directory = pathlib.Path(directory)
    chosen = backend_named(backend)
    if embed is None and not chosen.texts:
        raise ValueError(f"the {backend} backend searches vectors: the passages need an encoder")
    if shard_rows < 1:
        raise ValueError(f"shard_rows must be 1 or more, not {shard_rows}")
    with changing(directory):
        check_place(directory, overwrite)
        work = directory.resolve().with_name(f".{directory.resolve().name}.building")
        work.mkdir(exist_ok=True)
        # The table is written again each time: reading the passages is the one sure way to know that they are the same.
        shutil.rmtree(work / PASSAGES, ignore_errors=True)
        clear_remains(work / PASSAGES)  # whoever is killed while the table is written leaves it under another name
        table = PassageTable.write(work / PASSAGES, passages)
        if started is not None:
            started(len(table))
        if callable(settings):
            settings = settings(len(table))
        chosen.check_settings(settings)
        vectors = np.zeros((len(table), 0), np.float32)
        if embed is not None and not chosen.texts:
            job = {
                "passages": table.fingerprint,
                "encoder": encoder_fingerprint,
                MAX_PASSAGE_TOKENS: (made_with or {}).get(MAX_PASSAGE_TOKENS),
                "shard_rows": shard_rows,
            }
            vectors = _embed_shards(work, table, embed, job, progress)
        index = write_index(
            directory,
            table,
            [] if chosen.texts else slices(vectors),
            shape=vectors.shape,
            encoder_fingerprint=encoder_fingerprint,
            backend=backend,
            settings=settings,
            recall_k=recall_k,
            recall_queries=None,
            overwrite=overwrite,
            made_with=made_with,
        )
        shutil.rmtree(work, ignore_errors=True)
        return index


def _embed_shards(
    work: pathlib.Path,
    table: PassageTable,
    embed: Embed,
    job: dict[str, Any],
    progress: Callable[[int, int], None] | None,
) -> Float32[np.ndarray, "N D"]:
    """The passages' vectors, memory-mapped in the work directory, from kept shards and new ones."""
    kept = _kept_shards(work, len(table), job)
    vectors = np.load(work / VECTORS, mmap_mode="r+", allow_pickle=False) if kept else None
    rows, count = job["shard_rows"], len(table)
    done = sum(min(rows, count - number * rows) for number in kept)
    if progress is not None:
        progress(done, count)
    with (work / DONE).open("a", encoding="ascii") as journal:
        for number in range(-(-count // rows)):
            if number in kept:
                continue
            span = range(number * rows, min(number * rows + rows, count))
            new = np.asarray(embed([table[row] for row in span]), np.float32)
            check_vectors(new, "vectors")
            if vectors is None:
                shape = (count, new.shape[1])
                vectors = np.lib.format.open_memmap(work / VECTORS, mode="w+", dtype=np.float32, shape=shape)
            if new.shape != (len(span), vectors.shape[1]):
                raise ValueError(f"the encoder gives {new.shape} for {len(span)} passages of {vectors.shape[1]}")
            vectors[span.start : span.stop] = new
            vectors.flush()
            # The line comes after the rows. Were it torn, or the rows lost with the power, the checksum would tell.
            journal.write(f"{number} {_checksum(new)}\n")
            journal.flush()
            done += len(span)
            if progress is not None:
                progress(done, count)
    return np.load(work / VECTORS, mmap_mode="r", allow_pickle=False)


def _kept_shards(work: pathlib.Path, count: int, job: dict[str, Any]) -> set[int]:
    """Numbers of the shards that are there and whole. Where the work is that of another job, it is cleared."""
    try:
        if json.loads((work / JOB).read_text("utf-8")) != job:
            raise ValueError("another job")
        vectors = np.load(work / VECTORS, mmap_mode="r", allow_pickle=False)
        if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != count:
            raise ValueError("another shape")
        lines = (work / DONE).read_text("ascii").split("\n")
    except (ValueError, OSError, EOFError):
        for name in (JOB, DONE, VECTORS):
            (work / name).unlink(missing_ok=True)
        (work / JOB).write_text(json.dumps(job) + "\n")
        return set()
    kept, rows = set(), job["shard_rows"]
    for line in lines:
        number, _, checksum = line.partition(" ")
        if number.isdigit() and _checksum(vectors[int(number) * rows : int(number) * rows + rows]) == checksum:
            kept.add(int(number))
    (work / DONE).write_text("".join(f"{n} {_checksum(vectors[n * rows : n * rows + rows])}\n" for n in sorted(kept)))
    return kept


def _checksum(rows: Float32[np.ndarray, "n D"]) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()
