"""HOST. Passages on disk as a memory-mapped table: any row by number, any row by id, no text in memory.

A table is a directory: `records.bin` (rows end to end), `ends.npy` (where each row ends), `id_hashes.npy` and
`id_rows.npy` (the ids' hashes, sorted, and the row of each) and `table.json`. For 21 million passages that is 13 GB, of
which a reader touches the pages it asks for.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import hashlib
import io
import json
import operator
import os
import pathlib
import shutil
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from jaxtyping import Int32, Int64, UInt8, UInt64

from rag_jax.types import Passage

FORMAT = 1
MAX_ROWS = 2**31 - 1  # row numbers travel as int32
LENGTHS = struct.Struct("<II")  # a record: bytes of the id, bytes of the title, then id, title and text


class PassageTable(Sequence[Passage]):
    """Passages by row number (0..N-1) and by id. Made by `write`, `open` or `from_passages`, never changed.

    A sequence like a list, of which only what is asked for is read; `table[table.row_of(id)]` is a passage by its id.

    Attributes:
      fingerprint: sha256 over all ids, titles and texts in order, 64 hex digits; the same on disk and in memory.
    """

    def __init__(
        self,
        records: UInt8[np.ndarray, " bytes"],
        ends: Int64[np.ndarray, " N"],
        id_hashes: UInt64[np.ndarray, " N"],
        id_rows: Int32[np.ndarray, " N"],
        fingerprint: str,
    ):
        self._records, self._ends, self._id_hashes, self._id_rows = records, ends, id_hashes, id_rows
        self.fingerprint = fingerprint

    @classmethod
    def write(cls, directory: str | pathlib.Path, passages: Iterable[Passage]) -> PassageTable:
        """Streams passages into a new directory, written beside and renamed; about 40 bytes a row stay in memory.

        Raises:
          FileExistsError: something is at `directory` already.
          ValueError: no passages, or two with one id.
        """
        with written_beside(directory) as beside:
            with io.BufferedWriter(io.FileIO(beside / "records.bin", "w"), 1 << 20) as sink:
                ends, hashes, fingerprint = _write_records(passages, sink)
            id_hashes, id_rows = _index_ids(hashes, np.memmap(beside / "records.bin", np.uint8, "r"), ends)
            for name, value in (("ends", ends), ("id_hashes", id_hashes), ("id_rows", id_rows)):
                np.save(beside / f"{name}.npy", value, allow_pickle=False)
            about = {"format": FORMAT, "count": len(ends), "bytes": int(ends[-1]), "fingerprint": fingerprint}
            (beside / "table.json").write_text(json.dumps(about, indent=2) + "\n")
        return cls.open(directory)

    @classmethod
    def open(cls, directory: str | pathlib.Path) -> PassageTable:
        """Opens a table that `write` made; reads no texts.

        Raises:
          FileNotFoundError: no table there.
          ValueError: another format, or files that do not belong together; write the table again.
        """
        directory = pathlib.Path(directory)
        if not (directory / "table.json").is_file():
            raise FileNotFoundError(f"{directory}: no passage table there; make one with PassageTable.write")
        try:
            about = json.loads((directory / "table.json").read_text("utf-8"))
            if about["format"] != FORMAT:
                raise ValueError(f"format {about['format']}, this version reads {FORMAT}")
            names = ("ends", "id_hashes", "id_rows")
            ends, id_hashes, id_rows = (_load(directory / f"{name}.npy", about["count"]) for name in names)
            records = np.memmap(directory / "records.bin", np.uint8, "r")
            if not len(records) == about["bytes"] == ends[-1]:
                raise ValueError(f"records.bin has {len(records)} bytes, expected {about['bytes']}")
            return cls(records, ends, id_hashes, id_rows, about["fingerprint"])
        except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
            raise ValueError(f"{directory}: not a whole passage table ({error}); write it again") from error

    @classmethod
    def from_passages(cls, passages: Iterable[Passage]) -> PassageTable:
        """The same table in memory, for small collections; a table is given back as it is, wherever it lies.

        Raises:
          ValueError: no passages, or two with one id.
        """
        if isinstance(passages, cls):
            return passages
        sink = io.BytesIO()
        ends, hashes, fingerprint = _write_records(passages, sink)
        records = np.frombuffer(sink.getbuffer(), np.uint8)
        return cls(records, ends, *_index_ids(hashes, records, ends), fingerprint=fingerprint)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, row: int | np.integer) -> Passage: ...

    @overload
    def __getitem__(self, row: slice) -> list[Passage]: ...

    def __getitem__(self, row: int | np.integer | slice) -> Passage | list[Passage]:
        """One passage, or those of a slice.

        Raises:
          IndexError: a row outside 0..N-1. A search's -1 means no passage, so it is not the last row here.
        """
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        row = operator.index(row)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of a table of {len(self)} passages")
        return Passage(*(part.decode("utf-8") for part in _record(self._records, self._ends, row)))

    def __iter__(self) -> Iterator[Passage]:
        return (self[row] for row in range(len(self)))

    def row_of(self, id: str) -> int:
        """The row of the passage with this id.

        Raises:
          KeyError: no passage has it.
        """
        wanted = id.encode("utf-8", "surrogatepass")
        hashed = np.uint64(_hash(wanted))  # a Python int would make searchsorted convert the whole map
        at = int(np.searchsorted(self._id_hashes, hashed))
        while at < len(self) and self._id_hashes[at] == hashed:
            row = int(self._id_rows[at])
            if _record(self._records, self._ends, row)[0] == wanted:
                return row
            at += 1
        raise KeyError(f"no passage with the id {id!r}")


def _write_records(
    passages: Iterable[Passage], sink: io.BufferedIOBase
) -> tuple[Int64[np.ndarray, " N"], UInt64[np.ndarray, " N"], str]:
    digest, ends, hashes, end = hashlib.sha256(), array.array("q"), array.array("Q"), 0
    for passage in passages:
        try:
            parts = [text.encode("utf-8") for text in (passage.id, passage.title, passage.text)]
        except UnicodeEncodeError as error:
            fault = "holds half of a surrogate pair, which is no text; write the character"
            raise ValueError(f"passage {len(ends)}, {passage.id!r}, {fault}") from error
        record = b"".join((LENGTHS.pack(len(parts[0]), len(parts[1])), *parts))
        sink.write(record)
        digest.update(struct.pack("<Q", len(record)))  # so that no text can pass for two
        digest.update(record)
        end += len(record)
        ends.append(end)
        hashes.append(_hash(parts[0]))
    if not 0 < len(ends) <= MAX_ROWS:
        raise ValueError(f"a passage table holds 1 to {MAX_ROWS} passages, given {len(ends)}")
    return np.frombuffer(ends, np.int64), np.frombuffer(hashes, np.uint64), digest.hexdigest()


def _record(
    records: UInt8[np.ndarray, " bytes"], ends: Int64[np.ndarray, " N"], row: int
) -> tuple[bytes, bytes, bytes]:
    raw = records[int(ends[row - 1]) if row else 0 : int(ends[row])].tobytes()
    id_length, title_length = LENGTHS.unpack_from(raw)
    title_at = LENGTHS.size + id_length
    text_at = title_at + title_length
    return raw[LENGTHS.size : title_at], raw[title_at:text_at], raw[text_at:]


def _hash(id: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(id, digest_size=8).digest(), "little")


def _index_ids(
    hashes: UInt64[np.ndarray, " N"], records: UInt8[np.ndarray, " bytes"], ends: Int64[np.ndarray, " N"]
) -> tuple[UInt64[np.ndarray, " N"], Int32[np.ndarray, " N"]]:
    """The hashes of the ids, sorted, with the rows they belong to; the one place that sees two passages with one id."""
    rows = np.argsort(hashes, kind="stable").astype(np.int32)
    hashes = hashes[rows]
    seen: dict[bytes, int] = {}
    same = hashes[1:] == hashes[:-1]  # mostly nothing; where hashes meet, the ids decide
    for row in rows[np.flatnonzero(np.append(same, False) | np.append(False, same))].tolist():
        id = _record(records, ends, row)[0]
        if id in seen:
            raise ValueError(f"two passages have the id {id.decode()!r}: rows {seen[id]} and {row}; ids must be unique")
        seen[id] = row
    return hashes, rows


def _load(path: pathlib.Path, count: int) -> np.ndarray:
    value = np.load(path, mmap_mode="r", allow_pickle=False)
    if value.shape != (count,):
        raise ValueError(f"{path.name} has the shape {value.shape}, expected ({count},)")
    return value


@contextlib.contextmanager
def written_beside(directory: str | pathlib.Path, replace: bool = False) -> Iterator[pathlib.Path]:
    """Gives an empty directory beside `directory` and, if the block ends well, puts it in place in one step.

    If the block raises, what was written goes and what stood at `directory` stays.

    Raises:
      FileExistsError: something is at `directory` and `replace` is False.
    """
    directory = pathlib.Path(directory).resolve()
    exists_already = FileExistsError(
        f"{directory}: exists already; choose another place, remove it, or overwrite it (--overwrite)"
    )
    if os.path.lexists(directory) and not replace:
        raise exists_already
    directory.parent.mkdir(parents=True, exist_ok=True)
    beside = directory.with_name(f".{directory.name}.{os.getpid()}-{os.urandom(4).hex()}")
    beside.mkdir()
    try:
        yield beside
        if not os.path.lexists(directory):
            os.rename(beside, directory)
        elif replace:
            _exchange(beside, directory)
        else:
            raise exists_already
    finally:
        shutil.rmtree(beside, ignore_errors=True)  # the failed new one, or the old one after an exchange


def _exchange(new: pathlib.Path, old: pathlib.Path) -> None:
    """Swaps two directories: one system call on Linux; elsewhere two renames, between which there is no `old`."""
    libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    call = getattr(libc, "renameat2", None)
    if call is not None and call(here, os.fsencode(new), here, os.fsencode(old), exchange) == 0:
        return
    away = new.with_name(new.name + "-old")
    os.rename(old, away)
    try:
        os.rename(new, old)
    except OSError:
        os.rename(away, old)
        raise
    os.rename(away, new)
