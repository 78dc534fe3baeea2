"""HOST. Everything that can be computed again about an index, compared with what it says."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from rag_jax.index.backends import measure_recall
from rag_jax.index.change import Embed
from rag_jax.index.manifest import inventory
from rag_jax.index.protocol import Searcher, check_queries, check_vectors
from rag_jax.index.store import PASSAGES, Index, open_index
from rag_jax.text.table import PassageTable

SAMPLE = 64
RECALL_SLACK = 0.02  # other queries than those of the build
COSINE = 0.999  # two devices, or two batch sizes, round differently


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
      name: what.
      fault: what is wrong and what to do; "" when all is well.
    """

    name: str
    fault: str = ""


def verify_index(
    directory: str | pathlib.Path, embed: Embed | None = None, encoder_fingerprint: str | None = None
) -> tuple[Check, ...]:
    """Reads the whole index and recomputes its checksums, counts, fingerprint, ids and recall.

    The passage table is written again into a temporary directory, which takes as much room as the table.

    Args:
      directory: the index.
      embed: the passage encoder, to embed a sample again and compare; None leaves that out.
      encoder_fingerprint: of that encoder.

    Raises:
      FileNotFoundError: no index there.
    """
    directory = pathlib.Path(directory)
    checks: list[Check] = []
    opened: list[Index] = []

    def open_it() -> str:
        opened.append(open_index(directory, encoder_fingerprint=encoder_fingerprint))
        return ""

    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: no index there")
    checks.append(Check("manifest, checksums of all files, row counts, fingerprints", _fault(open_it)))
    if opened:
        index = opened[0]
        for name, look in _looks(index, embed):
            checks.append(Check(name, _fault(look)))
    return tuple(checks)


def _fault(look: Callable[[], str]) -> str:
    """What a check says, or the message of the error that it ran into; a missing index is the caller's."""
    try:
        return look()
    except FileNotFoundError:
        raise
    except (ValueError, OSError, ImportError) as error:
        return str(error)


def _looks(index: Index, embed: Embed | None) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "no further files", lambda: _further_files(index)
    yield "passages, their order and their ids, written again", lambda: _passages(index)
    if index.searches_texts:
        return
    yield "finite vectors", lambda: _finite(index)
    yield f"recall with {SAMPLE} stored vectors", lambda: _recall(index)
    if embed is not None:
        yield f"vectors of {SAMPLE} passages, embedded again", lambda: _vectors(index, embed)


def _further_files(index: Index) -> str:
    present = {p.relative_to(index.directory).as_posix() for p in index.directory.rglob("*") if p.is_file()}
    further = sorted(present - index.manifest.files.keys() - {"manifest.json"})
    return f"files that the manifest does not name: {', '.join(further[:5])}; remove them" if further else ""


def _passages(index: Index) -> str:
    with tempfile.TemporaryDirectory() as place:
        again = PassageTable.write(pathlib.Path(place) / PASSAGES, iter(index.passages))
        files = inventory(pathlib.Path(place))
    if again.fingerprint != index.manifest.passages:
        return "the passages have another fingerprint than the manifest says; rebuild the index"
    differ = [name for name, found in files.items() if index.manifest.files.get(name) != found]
    return f"{', '.join(differ)} is not what these passages make; rebuild the index" if differ else ""


def _sample(index: Index) -> np.ndarray:
    return np.unique(np.linspace(0, len(index.passages) - 1, SAMPLE).astype(np.int64))


def _finite(index: Index) -> str:
    check_vectors(index.vectors)
    return ""


def _recall(index: Index) -> str:
    said = index.manifest.recall
    if said is None or not isinstance(index.searcher, Searcher):
        return "the manifest names no recall; rebuild the index"
    queries = check_queries(np.asarray(index.vectors[_sample(index)]), said.k, index.manifest.dim)
    rows = index.search(queries, said.k)
    if rows.max() >= len(index.passages):
        return f"the search gives row {rows.max()} of {len(index.passages)} passages; rebuild the index"
    found = measure_recall(index.searcher, index.vectors, queries, said.k)
    if found < said.value - RECALL_SLACK:
        return f"recall {found:.3f} at {said.k}, {said.value:.3f} when it was built; rebuild the index"
    return ""


def _vectors(index: Index, embed: Embed) -> str:
    rows = _sample(index)
    stored = np.asarray(index.vectors[rows], np.float64)
    again = np.asarray(embed([index.passages[row] for row in rows]), np.float64)
    if again.shape != stored.shape:
        return f"the encoder gives vectors of {again.shape[1]}, the index holds {stored.shape[1]}; rebuild the index"
    norms = np.linalg.norm(stored, axis=1) * np.linalg.norm(again, axis=1)
    cosines = (stored * again).sum(axis=1) / np.maximum(norms, 1e-30)
    if (cosines < COSINE).any():
        row = int(rows[np.argmin(cosines)])
        return f"the vector of row {row} ({index.passages[row].id!r}) is not that of its passage; rebuild the index"
    return ""
