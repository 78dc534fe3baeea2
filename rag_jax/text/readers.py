"""HOST. Passages and questions from files: DPR's psgs_w100.tsv and JSON lines, plain or gzipped.

Passages also come from documents, which are cut: Wikipedia's dumps and folders of text. Nothing is skipped, guessed or
repaired: the first fault is a `ReadError` that names the file, the line and what to do.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rag_jax.text.documents.document import Document, cut
from rag_jax.text.faults import ReadError as ReadError
from rag_jax.text.faults import SeenIds
from rag_jax.types import Passage, Question

TSV_HEADER = ["id", "text", "title"]
Row = TypeVar("Row", Passage, Question)
LONGEST_FIELD = 1 << 24  # characters; csv's own bound of 131,072 is shorter than some undivided articles


def read_passages(path: str | pathlib.Path) -> Iterator[Passage]:
    """Passages one by one, in the source's order, without holding the source in memory.

    Args:
      path: `.tsv` with the header id, text, title, tab-separated and quoted as by csv (DPR's psgs_w100.tsv), or
        `.jsonl` with the fields id, title, text; either may end in `.gz`. Or documents, which `documents.cut` cuts into
        passages of 100 words: a Wikipedia dump, `.xml` or `.xml.bz2`; a folder of `.txt` and `.md` files.

    Raises:
      FileNotFoundError: no such file or folder; at once.
      ReadError: an unknown ending (at once) or, when the iterator gets there, a wrong number of columns, a missing
        header or field, a duplicate id, text that is not UTF-8, broken JSON or XML, a broken archive, no passages at
        all.
    """
    # Only documents need the parsers of wikitext and Markdown.
    if pathlib.Path(path).is_dir():
        from rag_jax.text.documents.folders import read_folder

        return _pieces(pathlib.Path(path), read_folder(path))
    path = _existing(path)
    if path.name.endswith((".xml", ".xml.bz2")):
        from rag_jax.text.documents.dump import read_articles

        return _pieces(path, read_articles(path))
    readers: dict[str, Callable[[pathlib.Path], Iterator[tuple[int, Passage]]]] = {
        ".tsv": _tsv_passages,
        ".jsonl": _json_passages,
    }
    ending = pathlib.PurePath(path.name.removesuffix(".gz")).suffix
    if ending not in readers:
        fault = f"passages are read from {' or '.join(readers)} (or with .gz), documents from .xml or .xml.bz2"
        raise ReadError(path, None, f"{fault}; convert or rename it")
    return _unique(path, readers[ending](path), "passage")


def read_questions(path: str | pathlib.Path) -> tuple[Question, ...]:
    """All questions of a JSON lines file (`.jsonl` or `.jsonl.gz`; the ending is not checked), in the file's order.

    Fields: `id`; `question`; `answers` (a list) or `answer` (a string or a list); `positive_ids` (a list), optional.
    Ids may be strings or integers. Other fields are left alone.

    Raises:
      FileNotFoundError: no such file.
      ReadError: a missing or ill-typed field, a duplicate id, not UTF-8, broken JSON, an empty question file.
    """
    path = _existing(path)
    rows = ((line, _question(path, line, record)) for line, record in _json_records(path))
    return tuple(_unique(path, rows, "question"))


def _pieces(path: pathlib.Path, documents: Iterator[Document]) -> Iterator[Passage]:
    """The documents' passages. Each document has an id of its own already, and so has each piece."""
    empty = True
    for document in documents:
        for passage in cut(document):
            empty = False
            yield passage
    if empty:
        raise ReadError(path, None, "not one word of text in its documents; check that it is the right source")


def _existing(path: str | pathlib.Path) -> pathlib.Path:
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; check the path")
    return path


def _lines(path: pathlib.Path) -> Iterator[str]:
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


def _tsv_passages(path: pathlib.Path) -> Iterator[tuple[int, Passage]]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    taken: list[str] = []  # the physical lines of the row being read
    reader = csv.reader((taken.append(line) or line for line in _lines(path)), delimiter="\t")
    start, header_seen = 1, False
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
        if not row:  # a blank line
            continue
        if not header_seen:
            if row != TSV_HEADER:
                fault = f"the header must be {TSV_HEADER}, tab-separated, found {_short(row)}; add it as the first line"
                raise ReadError(path, start, fault)
            header_seen = True
            continue
        if len(row) != len(TSV_HEADER):
            fault = (
                f"{len(row)} column(s) where id, text, title make 3; quote fields that hold a tab, a quote or a newline"
            )
            raise ReadError(path, start, fault)
        if not row[0].strip():
            raise ReadError(path, start, "the id is empty; give every passage its own")
        yield start, Passage(id=row[0], text=row[1], title=row[2])


def _quote_stays_open(lines: list[str]) -> bool:
    """Whether these lines, a row, end inside quotes. csv itself takes the end of the file for the closing quote."""
    try:
        list(csv.reader(io.StringIO("".join(lines), newline=""), delimiter="\t", strict=True))
    except csv.Error as error:
        return "unexpected end of data" in str(error)
    return False


def _json_records(path: pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=_record)
        except (ValueError, RecursionError) as error:
            raise ReadError(path, number, f"broken JSON ({error}); write one object a line") from error
        if not isinstance(record, dict):
            raise ReadError(path, number, f"not a JSON object but {_short(record)}; write one object a line")
        yield number, record


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, each of whose fields is there once: of two with one name json would take the last, in silence."""
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the field {next(name for name in names if names.count(name) > 1)!r} comes twice in one object"
        )
    return record


def _json_passages(path: pathlib.Path) -> Iterator[tuple[int, Passage]]:
    for line, record in _json_records(path):
        title = _text(path, line, record, "title", hint='; write "title": "" for a passage without one')
        yield line, Passage(_id(path, line, record), title, _text(path, line, record, "text"))


def _question(path: pathlib.Path, line: int, record: dict[str, Any]) -> Question:
    text = _text(path, line, record, "question")
    if not text.strip():
        raise ReadError(path, line, "the question is empty; write it or remove the line")
    if "answers" in record and "answer" in record:
        raise ReadError(path, line, "both 'answers' and 'answer'; keep one of them")
    if "answers" not in record and "answer" not in record:
        raise ReadError(
            path, line, f"missing field 'answers' (found {_short(list(record))}); write \"answers\": [] for none"
        )
    name = "answers" if "answers" in record else "answer"
    answers = [record[name]] if name == "answer" and isinstance(record[name], str) else record[name]
    positive_ids = record.get("positive_ids")
    return Question(
        id=_id(path, line, record),
        text=text,
        answers=_texts(path, line, name, answers),
        positive_ids=_texts(path, line, "positive_ids", [] if positive_ids is None else positive_ids, numbers=True),
    )


def _field(path: pathlib.Path, line: int, record: dict[str, Any], name: str, hint: str = "; add it") -> Any:
    if name not in record:
        raise ReadError(path, line, f"missing field {name!r} (found {_short(list(record))}){hint}")
    return record[name]


def _id(path: pathlib.Path, line: int, record: dict[str, Any]) -> str:
    (value,) = _texts(path, line, "id", [_field(path, line, record, "id")], numbers=True)
    if not value.strip():
        raise ReadError(path, line, "the id is empty; give every line its own")
    return value


def _text(path: pathlib.Path, line: int, record: dict[str, Any], name: str, hint: str = "; add it") -> str:
    value = _field(path, line, record, name, hint)
    if not isinstance(value, str):
        raise ReadError(path, line, f"{name!r} must be a string, not {_short(value)}")
    return _texts(path, line, name, [value])[0]


def _texts(path: pathlib.Path, line: int, name: str, values: Any, numbers: bool = False) -> tuple[str, ...]:
    """Strings that UTF-8 can hold; with `numbers` also integers, as people write ids."""
    if not isinstance(values, list):
        raise ReadError(path, line, f"{name!r} must be a list of strings, not {_short(values)}")
    found = []
    for value in values:
        if not isinstance(value, str) and not (numbers and isinstance(value, int) and not isinstance(value, bool)):
            raise ReadError(path, line, f"{name!r} must hold strings, not {_short(value)}; quote it")
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ReadError(
                path, line, f"{name!r} holds half of a surrogate pair (\\ud...); write the character"
            ) from error
        found.append(text)
    return tuple(found)


def _unique(path: pathlib.Path, rows: Iterator[tuple[int, Row]], kind: str) -> Iterator[Row]:
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


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
