"""HOST. Records of text files, each with its place: JSON lines, JSON arrays, csv rows; plain or gzipped.

Nothing is skipped, guessed or repaired: the first fault is a `ReadError` that names the file, the line and what to do.
"""

from __future__ import annotations

import codecs
import csv
import dataclasses
import gzip
import io
import json
import pathlib
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rag_jax.text.faults import ReadError, SeenIds
from rag_jax.types import Passage, Question

Row = TypeVar("Row", Passage, Question)
LONGEST_FIELD = 1 << 24  # characters; csv's own bound of 131,072 is shorter than some undivided articles
CHUNK = 1 << 16  # characters of an array that are looked at first; a record that is longer doubles them
_NO_SPACE = re.compile(r"[^ \t\n\r]")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, each of whose fields is there once: of two with one name json would take the last, in silence."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice!r} comes twice in one object")
    return fields


_DECODER = json.JSONDecoder(object_pairs_hook=_each_once)


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """The fields of one record, with its file and the line that it starts on.

    Attributes:
      place: where in the file, for messages, if there is no line or the record lies inside of another.
    """

    path: pathlib.Path
    line: int | None
    fields: dict[str, Any]
    place: str = ""

    def fault(self, text: str) -> ReadError:
        """The error to raise: what is wrong with this record, and what to do."""
        return ReadError(self.path, self.line, self.place + text)

    def get(self, name: str, hint: str = "; add it") -> Any:
        """A field that has to be there."""
        if name not in self.fields:
            raise self.fault(f"missing field {name!r} (found {short(list(self.fields))}){hint}")
        return self.fields[name]

    def text(self, name: str, hint: str = "; add it") -> str:
        """A string, perhaps empty."""
        value = self.get(name, hint)
        if not isinstance(value, str):
            raise self.fault(f"{name!r} must be a string, not {short(value)}")
        return self.strings(name, [value])[0]

    def words(self, name: str, noun: str = "question") -> str:
        """A string with something in it."""
        value = self.text(name)
        if not value.strip():
            raise self.fault(f"the {noun} is empty; write it or remove the line")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        return self.strings(name, self.get(name))

    def id(self, name: str = "id") -> str:
        """A string or an integer, as people write ids, with something in it."""
        (value,) = self.strings(name, [self.get(name)], numbers=True)
        if not value.strip():
            raise self.fault(f"the {name} is empty; give every line its own")
        return value

    def strings(self, name: str, values: Any, numbers: bool = False) -> tuple[str, ...]:
        """These values of the field `name` as strings that UTF-8 can hold; with `numbers` also integers."""
        if not isinstance(values, list):
            raise self.fault(f"{name!r} must be a list of strings, not {short(values)}")
        found = []
        for value in values:
            if not isinstance(value, str) and not (numbers and isinstance(value, int) and not isinstance(value, bool)):
                raise self.fault(f"{name!r} must hold strings, not {short(value)}; quote it")
            text = str(value)
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise self.fault(f"{name!r} holds half of a surrogate pair (\\ud...); write the character") from error
            found.append(text)
        return tuple(found)

    def inner(self, name: str, values: Any) -> list[Record]:
        """These values, which stand in the field `name`, as records on the same line."""
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise self.fault(f"{name!r} must be a list of objects, not {short(values)}")
        places = (f"{self.place}{name}[{number}]: " for number in range(len(values)))
        return [dataclasses.replace(self, fields=v, place=p) for v, p in zip(values, places, strict=True)]


def existing(path: str | pathlib.Path) -> pathlib.Path:
    """The path of a file that is there.

    Raises:
      FileNotFoundError: it is not.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file or folder'}; check the path"
        )
    return path


def ending(path: pathlib.Path) -> str:
    """'.json' of 'test.json' and of 'test.json.gz'."""
    return pathlib.PurePath(path.name.removesuffix(".gz")).suffix


def lines(path: pathlib.Path) -> Iterator[str]:
    """Physical lines with their ends, decoded one by one so that a bad byte has a line number."""
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        fault = f"not UTF-8 (byte {error.start + 1} of the line); convert the file to UTF-8"
        raise ReadError(path, number, fault) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ReadError(path, number + 1, f"the gzip archive is broken ({error}); download or copy it again") from error


def pieces(path: pathlib.Path) -> Iterator[str]:
    """The text in pieces, wherever its lines end: some files of gigabytes are one line."""
    decoder, line = codecs.getincrementaldecoder("utf-8-sig")(), 1
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            while raw := stream.read(CHUNK):
                piece = decoder.decode(raw)
                yield piece
                line += piece.count("\n")
            yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        line += error.object.count(b"\n", 0, error.start)
        raise ReadError(path, line, "not UTF-8 in this line; convert the file to UTF-8") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ReadError(path, line, f"the gzip archive is broken ({error}); download or copy it again") from error


def csv_rows(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
    """(line, columns) of every row of a tab-separated file that is quoted as by csv; blank lines are none."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    taken: list[str] = []  # the physical lines of the row being read

    def taking() -> Iterator[str]:
        for line in lines(path):
            taken.append(line)
            yield line

    reader = csv.reader(taking(), delimiter="\t")
    start = 1
    while True:
        start, taken[:] = start + len(taken), []
        try:
            row = next(reader, None)
        except csv.Error as error:
            fault = f"the row that starts here is not csv ({error}); close its quotes, and double those inside a field"
            raise ReadError(path, start, fault) from error
        if row is None:
            return
        if len(taken) > 1 and _quote_stays_open(taken):
            raise ReadError(path, start, "a quoted field that starts in this row never ends; double the quotes in it")
        if row:
            yield start, row


def _quote_stays_open(lines: list[str]) -> bool:
    """Whether these lines, a row, end inside quotes. csv itself takes the end of the file for the closing quote."""
    try:
        list(csv.reader(io.StringIO("".join(lines), newline=""), delimiter="\t", strict=True))
    except csv.Error as error:
        return "unexpected end of data" in str(error)
    return False


def json_lines(path: pathlib.Path) -> Iterator[Record]:
    """The object on every line; blank lines are none."""
    for number, line in enumerate(lines(path), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line, object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as error:
            raise ReadError(path, number, f"broken JSON ({error}); write one object a line") from error
        if not isinstance(fields, dict):
            raise ReadError(path, number, f"not a JSON object but {short(fields)}; write one object a line")
        yield Record(path, number, fields)


def json_object(path: pathlib.Path) -> Record:
    """The one object that a file is; all of it in memory."""
    text = "".join(lines(path))  # its own faults name their lines
    try:
        fields = json.loads(text, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        raise ReadError(path, error.lineno, f"broken JSON ({error.msg}); download or write the file again") from error
    except (ValueError, RecursionError) as error:
        raise ReadError(path, None, f"broken JSON ({error}); download or write the file again") from error
    if not isinstance(fields, dict):
        raise ReadError(path, None, f"not a JSON object but {short(fields)}; check that it is the right file")
    return Record(path, None, fields)


def json_array(path: pathlib.Path) -> Iterator[Record]:
    """The objects of the one array that a file is, without holding the file in memory: DPR's have gigabytes."""
    text = _Unread(path)
    if text.next() != "[":
        raise ReadError(path, text.line, "not a JSON array of objects; check that it is the right file")
    text.take(1)
    first = True
    while (mark := text.next()) != "]":
        if not first:
            if mark != ",":
                raise ReadError(path, text.line, "broken JSON (no comma or ] after an object); write the file again")
            text.take(1)
            text.next()
        line = text.line
        fields = text.value()
        if not isinstance(fields, dict):
            raise ReadError(path, line, f"not a JSON object but {short(fields)}; write an array of objects")
        yield Record(path, line, fields)
        first = False
    text.take(1)
    if text.next():
        raise ReadError(path, text.line, "text after the end of the array; write one array a file")


class _Unread:
    """The text of a file from a place on, read as far as it was needed.

    Attributes:
      line: where that place is.
    """

    def __init__(self, path: pathlib.Path):
        self.path, self.line = path, 1
        self._stream, self._text, self._at = pieces(path), "", 0

    def next(self) -> str:
        """The next character that is no space, which it goes to; '' at the end."""
        while True:
            found = _NO_SPACE.search(self._text, self._at)
            self.take((found.start() if found else len(self._text)) - self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read(CHUNK):
                return ""

    def take(self, count: int) -> None:
        """Goes on by so many characters that have been read."""
        self.line += self._text.count("\n", self._at, self._at + count)
        self._at += count

    def value(self) -> Any:
        """The JSON value that starts here."""
        wanted = CHUNK
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._may_go_on(error) and self._read(wanted):
                    wanted *= 2
                    continue
                line = self.line + self._text.count("\n", self._at, error.pos)
                fault = f"broken JSON ({error.msg}); download or write the file again"
                raise ReadError(self.path, line, fault) from error
            except (ValueError, RecursionError) as error:
                raise ReadError(self.path, self.line, f"broken JSON ({error}); write the file again") from error
            self.take(end - self._at)
            return value

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        """Whether the fault may be no more than that the text, as far as it was read, ends here."""
        return "Unterminated string" in error.msg or error.pos >= len(self._text.rstrip()) - len("\\u0000\\u0000")

    def _read(self, count: int) -> bool:
        """Reads at least `count` characters more; whether there were any."""
        kept, more = self._text[self._at :], []
        while count > 0 and (piece := next(self._stream, None)) is not None:
            more.append(piece)
            count -= len(piece)
        self._text, self._at = "".join([kept, *more]), 0
        return bool(more)


def unique(path: pathlib.Path, rows: Iterable[tuple[int | None, Row]], kind: str) -> Iterator[Row]:
    """Passes rows on, at least one, each with an id of its own."""
    seen = SeenIds()
    empty = True
    for line, row in rows:
        if seen.add(row.id):
            raise ReadError(
                path, line, f"the id {row.id!r} came before; give every {kind} its own, or remove one of the two"
            )
        empty = False
        yield row
    if empty:
        raise ReadError(path, None, f"an empty {kind} file: not one {kind} in it; check that it was written to the end")


def short(value: Any) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
