"""HOST. Passages added, replaced and deleted, and whole indexes swapped.

Each change makes a new index beside the old one and puts it in place in one step: a process that is killed leaves the
old index or the new one, and open readers keep the old one. Vectors that exist are copied, never made again; the
backend is built again, as ScaNN's own changes can put its rows out of step with the passages.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32

from rag_jax.index.backends import backend_named
from rag_jax.index.lock import changing
from rag_jax.index.manifest import MANIFEST, IndexMismatch, Manifest, read_manifest
from rag_jax.index.protocol import check_vectors
from rag_jax.index.store import Index, open_index, slices, write_index
from rag_jax.text.table import written_beside
from rag_jax.types import Passage

Embed = Callable[[Sequence[Passage]], Float[np.ndarray, "n D"]]
RECALL_K = 10


def add_passages(
    directory: str | pathlib.Path,
    passages: Iterable[Passage],
    embed: Embed | None,
    *,
    encoder_fingerprint: str,
    replace: bool = False,
) -> Index:
    """Adds passages behind the last row, in their order; only they are embedded.

    Args:
      directory: the index.
      passages: at least one, with ids of their own; held in memory.
      embed: the index's passage encoder; may be None where the backend searches texts.
      encoder_fingerprint: of that encoder.
      replace: a passage whose id is there already takes the row of the old one, instead of being refused.

    Raises:
      FileNotFoundError: no index there.
      IndexMismatch: another encoder, or a damaged index.
      ValueError: no passages, an id that is there already or comes twice, vectors that cannot be indexed.
    """
    new = list(passages)
    if not new:
        raise ValueError("no passages to add")
    with changing(directory):
        old = open_index(directory, encoder_fingerprint=encoder_fingerprint)
        rows = _rows_of(old, [passage.id for passage in new])
        if rows and not replace:
            raise ValueError(f"{_few(rows)}: in the index already; leave them out, or ask to replace them")
        if len({passage.id for passage in new}) < len(new):
            raise ValueError("a passage id comes twice among the passages to add; ids must be unique")
        vectors = np.zeros((len(new), 0), np.float32)
        if not old.searches_texts:
            if embed is None:
                raise ValueError(
                    f"the {old.manifest.backend} backend searches vectors: new passages need their encoder"
                )
            vectors = np.asarray(embed(new))
            check_vectors(vectors, "new vectors")
            if vectors.shape != (len(new), old.manifest.dim):
                raise ValueError(f"the encoder gives {vectors.shape} for {len(new)} passages of {old.manifest.dim}")
        replaced = {rows[passage.id]: number for number, passage in enumerate(new) if passage.id in rows}
        fresh = [number for number, passage in enumerate(new) if passage.id not in rows]
        kept = (new[replaced[row]] if row in replaced else passage for row, passage in enumerate(old.passages))
        return _rewrite(
            old,
            itertools.chain(kept, (new[number] for number in fresh)),
            itertools.chain(_with_rows(old.vectors, replaced, vectors), [vectors[fresh]]),
            len(old.passages) + len(fresh),
        )


def delete_passages(directory: str | pathlib.Path, ids: Collection[str]) -> Index:
    """Deletes passages; the others keep their order and move up. No encoder is needed.

    Raises:
      FileNotFoundError: no index there.
      IndexMismatch: a damaged index.
      ValueError: no ids, ids that are not in the index, or all of them.
    """
    ids = set(ids)
    if not ids:
        raise ValueError("no passage ids to delete")
    with changing(directory):
        old = open_index(directory)
        rows = _rows_of(old, ids)
        if missing := sorted(ids - rows.keys()):
            raise ValueError(f"{_few(missing)}: not in the index, so nothing was deleted")
        keep = np.ones(len(old.passages), bool)
        keep[list(rows.values())] = False
        if not keep.any():
            raise ValueError("an index holds at least one passage; to be rid of them all, remove its directory")
        left = (old.passages[int(row)] for row in np.flatnonzero(keep))
        return _rewrite(old, left, _kept(old.vectors, keep), int(keep.sum()))


def swap_index(
    directory: str | pathlib.Path, source: str | pathlib.Path, *, encoder_fingerprint: str | None = None
) -> Index:
    """Puts the index at `source` in the place of the one at `directory`, or where there is none yet.

    `source` stays where it is: its files, which nobody changes in place, are linked on one file system and else copied.

    Args:
      directory: the place that readers look at.
      source: the index to put there; every file's checksum is compared on the way.
      encoder_fingerprint: what the new index must have been made by; None: what made the index in place.

    Raises:
      FileNotFoundError: no index at `source`.
      FileExistsError: what is at `directory` is no index.
      IndexMismatch: a damaged source, or one that another encoder made.
      ValueError: both are the same directory.
    """
    directory, source = pathlib.Path(directory), pathlib.Path(source)
    read_manifest(source)
    if directory.exists() and not (directory / MANIFEST).is_file():
        raise FileExistsError(f"{directory}: exists and is no index, so it is not replaced; choose another place")
    if directory.exists() and os.path.samefile(directory, source):
        raise ValueError(f"{directory} and {source} are one directory")
    with changing(directory):
        if directory.exists():
            _check_same_kind(read_manifest(directory), read_manifest(source), source)
            encoder_fingerprint = encoder_fingerprint or read_manifest(directory).encoder or None
        with written_beside(directory, replace=True) as beside:
            shutil.copytree(source, beside, copy_function=_link_or_copy, dirs_exist_ok=True)
            try:  # after the copy: what is put in place is what was checked
                open_index(beside, encoder_fingerprint=encoder_fingerprint)
            except IndexMismatch as error:
                raise IndexMismatch(str(error).replace(str(beside), str(source))) from error
        return open_index(directory, verify_large=False)


def _check_same_kind(old: Manifest, new: Manifest, source: pathlib.Path) -> None:
    """Refuses an index whose readers would have to ask otherwise: with texts instead of vectors, or with vectors."""
    if backend_named(old.backend).texts != backend_named(new.backend).texts:
        raise IndexMismatch(
            f"{source}: a {new.backend} index cannot take the place of a {old.backend} index, as one searches "
            f"texts and the other vectors; rebuild it as {old.backend}, or remove the index in place first"
        )


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)


def _rewrite(old: Index, passages: Iterable[Passage], blocks: Iterable[np.ndarray], count: int) -> Index:
    """The index again with other rows, everything else as it was made."""
    manifest = old.manifest
    return write_index(
        old.directory,
        passages,
        blocks,
        shape=(count, manifest.dim),
        encoder_fingerprint=manifest.encoder,
        backend=manifest.backend,
        settings=backend_named(manifest.backend).for_another_count(manifest.parameters, manifest.count, count),
        recall_k=manifest.recall.k if manifest.recall else RECALL_K,
        recall_queries=None,
        overwrite=True,
        made_with=manifest.made_with,
    )


def _rows_of(index: Index, ids: Iterable[str]) -> dict[str, int]:
    """id -> row, of those that the index holds."""
    found = {}
    for id in ids:
        try:
            found[id] = index.passages.row_of(id)
        except KeyError:
            continue
    return found


def _with_rows(
    vectors: Float32[np.ndarray, "N D"], replaced: dict[int, int], new: Float[np.ndarray, "n D"]
) -> Iterator[Float32[np.ndarray, "m D"]]:
    """Slices of the old vectors, with `new` in the rows that are replaced: row -> row of `new`."""
    if not vectors.shape[1]:
        return
    rows = np.array(sorted(replaced), np.int64)
    start = 0
    for block in slices(vectors):
        here = rows[(rows >= start) & (rows < start + len(block))]
        if len(here):
            block = np.array(block)
            block[here - start] = new[[replaced[row] for row in here.tolist()]]
        start += len(block)
        yield block


def _kept(vectors: Float32[np.ndarray, "N D"], keep: Bool[np.ndarray, " N"]) -> Iterator[Float32[np.ndarray, "m D"]]:
    """Slices of the vectors that are kept."""
    if not vectors.shape[1]:
        return
    start = 0
    for block in slices(vectors):
        yield block[keep[start : start + len(block)]]
        start += len(block)


def _few(ids: Iterable[Any]) -> str:
    names = [repr(id) for id in itertools.islice(ids, 6)]
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
