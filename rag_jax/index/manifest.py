"""HOST. The manifest of an index directory: what it holds, what made it, and the checksums of its files."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pathlib
import typing
from typing import Any

FORMAT = 1
METRIC = "dot_product"
DTYPE = "float32"
MANIFEST = "manifest.json"
MAX_PASSAGE_TOKENS = "max_passage_tokens"  # in `made_with`: what passages were cut to before they were embedded
SMALL_FILE = 64 << 20  # bytes; larger files are read whole only when all are to be verified


class IndexMismatch(ValueError):
    """An index that is damaged, or that does not belong to the passages, encoder or program at hand.

    The message says what to rebuild.
    """


@dataclasses.dataclass(frozen=True)
class Recall:
    """Share of the exact k nearest that the backend found at build time, averaged over some queries.

    Attributes:
      k: neighbours asked for.
      value: 0 to 1.
      queries: how many were tried.
      source: "queries" that the caller gave, or "vectors": stored vectors, which flatter a backend.
    """

    k: int
    value: float
    queries: int
    source: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of manifest.json.

    Attributes:
      count: N, rows of vectors and of passages.
      dim: D; 0 where there are no vectors.
      passages: fingerprint of the passage table.
      encoder: fingerprint of the parameters that made the vectors; "" for a backend that searches texts.
      backend: its name.
      parameters: what the backend was built with.
      recall: measured at build time; None where nothing is approximate, as in a search by texts.
      files: size in bytes and sha256 of every other file, by path from the directory.
      format: version of the layout.
      metric: dot_product.
      dtype: of the stored vectors.
      created_by: program and version.
      made_with: what the builder noted, to embed further passages the same way: the name of the weights, for instance.
    """

    count: int
    dim: int
    passages: str
    encoder: str
    backend: str
    parameters: dict[str, Any]
    recall: Recall | None
    files: dict[str, tuple[int, str]]
    format: int = FORMAT
    metric: str = METRIC
    dtype: str = DTYPE
    created_by: str = ""
    made_with: dict[str, Any] = dataclasses.field(default_factory=dict)


def this_program() -> str:
    """'rag-jax 0.1.0', or without a number when it runs uninstalled."""
    try:
        return f"rag-jax {importlib.metadata.version('rag-jax')}"
    except importlib.metadata.PackageNotFoundError:
        return "rag-jax"


def write_manifest(directory: pathlib.Path, manifest: Manifest) -> None:
    """Writes manifest.json, the last file of an index to be written."""
    text = json.dumps(dataclasses.asdict(manifest), indent=2, sort_keys=True)
    (directory / MANIFEST).write_text(text + "\n", "utf-8")


def state_of(directory: pathlib.Path) -> tuple[bytes, int, int] | None:
    """What differs whenever the index at a place has been replaced, by itself too; None where there is none.

    The manifest as it stands, and which directory it lies in. The manifest alone is not enough: of an index that goes
    and comes back meanwhile it says nothing, and neither is the directory's number, which the system gives again.
    """
    try:
        place = directory.stat()
        return (directory / MANIFEST).read_bytes(), place.st_ino, place.st_ctime_ns
    except OSError:
        return None


def read_manifest(directory: pathlib.Path) -> Manifest:
    """Reads manifest.json.

    Raises:
      FileNotFoundError: no index there.
      IndexMismatch: another format, or not a manifest.
    """
    path = directory / MANIFEST
    if not path.is_file():
        taken = "what is there is never overwritten: move it away or choose another place, then " * directory.exists()
        raise FileNotFoundError(
            f"{directory}: no index there (no {MANIFEST}); {taken}make one: rag-jax index build SOURCE {directory}"
        )
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != FORMAT:
            raise IndexMismatch(
                f"{directory}: format {content['format']!r} of {content.get('created_by')!r}; this version reads "
                f"{FORMAT}: rebuild the index"
            )
        content["recall"] = Recall(**content["recall"]) if content["dim"] else None
        content["files"] = {name: (int(size), str(digest)) for name, (size, digest) in content["files"].items()}
        manifest = Manifest(**content)
        _check_types(manifest)
    except IndexMismatch:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IndexMismatch(f"{path}: not a manifest ({error!r}); rebuild the index, or copy it again") from error
    if (manifest.metric, manifest.dtype) != (METRIC, DTYPE):
        raise IndexMismatch(
            f"{path}: {manifest.metric} over {manifest.dtype}, this version searches {METRIC} over {DTYPE}"
        )
    return manifest


def _check_types(record: Manifest | Recall) -> None:
    """Refuses, with a TypeError, fields of other types than those declared; what is inside a dict is its reader's."""
    for name, declared in typing.get_type_hints(type(record)).items():
        value = getattr(record, name)
        kind = dict if typing.get_origin(declared) is dict else declared
        if not isinstance(value, int | float if kind is float else kind):
            raise TypeError(f"{name} is {value!r}")
        if isinstance(value, Recall):
            _check_types(value)


def inventory(directory: pathlib.Path) -> dict[str, tuple[int, str]]:
    """Size and sha256 of every file under a directory, by its path from there. Reads each one whole."""
    return {name: (path.stat().st_size, _sha256(path)) for name, path in _files(directory).items()}


def verify_files(directory: pathlib.Path, files: dict[str, tuple[int, str]], large_too: bool) -> None:
    """Compares the files with an `inventory` of them. Further files are left alone.

    Raises:
      IndexMismatch: a file that is missing, of another size, or of other content; without `large_too` the content of
        files above `SMALL_FILE` is not looked at.
    """
    present = _files(directory)  # names in a manifest are looked up here and never opened, wherever they point
    hashed: dict[tuple[int, int], str] = {}  # a hard link is read once
    for name, (size, digest) in files.items():
        if name not in present:
            raise IndexMismatch(f"{directory}: {name} is missing; rebuild the index, or copy it again")
        found = present[name].stat()
        if found.st_size != size:
            raise IndexMismatch(
                f"{directory}: {name} has {found.st_size} bytes, expected {size}; rebuild the index, or copy it again"
            )
        if large_too or size <= SMALL_FILE:
            inode = (found.st_dev, found.st_ino)
            hashed[inode] = hashed.get(inode) or _sha256(present[name])
            if hashed[inode] != digest:
                raise IndexMismatch(f"{directory}: {name} is corrupted; rebuild the index, or copy it again")


def _files(directory: pathlib.Path) -> dict[str, pathlib.Path]:
    paths = (pathlib.Path(folder) / name for folder, _, names in os.walk(directory) for name in names)
    found = {path.relative_to(directory).as_posix(): path for path in paths}
    found.pop(MANIFEST, None)
    return dict(sorted(found.items()))


def _sha256(path: pathlib.Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
