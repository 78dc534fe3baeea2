"""HOST. Passages and questions from files: DPR's psgs_w100.tsv and JSON lines, plain or gzipped.

Passages also come from documents, which are cut: Wikipedia's dumps and folders of text. Nothing is skipped, guessed or
repaired: the first fault is a `ReadError` that names the file, the line and what to do. The files of the paper's tasks
are read by `rag_jax.text.tasks`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

from rag_jax.text.documents.document import Document, cut
from rag_jax.text.faults import ReadError as ReadError
from rag_jax.text.records import Record, csv_rows, ending, existing, json_lines, short, unique
from rag_jax.types import Passage, Question

TSV_HEADER = ["id", "text", "title"]


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
    path = existing(path)
    if path.name.endswith((".xml", ".xml.bz2")):
        from rag_jax.text.documents.dump import read_articles

        return _pieces(path, read_articles(path))
    readers: dict[str, Callable[[pathlib.Path], Iterator[tuple[int | None, Passage]]]] = {
        ".tsv": _tsv_passages,
        ".jsonl": _json_passages,
    }
    if ending(path) not in readers:
        fault = f"passages are read from {' or '.join(readers)} (or with .gz), documents from .xml or .xml.bz2"
        raise ReadError(path, None, f"{fault}; convert or rename it")
    return unique(path, readers[ending(path)](path), "passage")


def read_questions(path: str | pathlib.Path) -> tuple[Question, ...]:
    """All questions of a JSON lines file (`.jsonl` or `.jsonl.gz`; the ending is not checked), in the file's order.

    Fields: `id`; `question`; `answers` (a list) or `answer` (a string or a list); `positive_ids` (a list), optional.
    Ids may be strings or integers. Other fields are left alone.

    Raises:
      FileNotFoundError: no such file.
      ReadError: a missing or ill-typed field, a duplicate id, not UTF-8, broken JSON, an empty question file.
    """
    path = existing(path)
    rows = ((record.line, _question(record)) for record in json_lines(path))
    return tuple(unique(path, rows, "question"))


def _pieces(path: pathlib.Path, documents: Iterator[Document]) -> Iterator[Passage]:
    """The documents' passages. Each document has an id of its own already, and so has each piece."""
    empty = True
    for document in documents:
        for passage in cut(document):
            empty = False
            yield passage
    if empty:
        raise ReadError(path, None, "not one word of text in its documents; check that it is the right source")


def _tsv_passages(path: pathlib.Path) -> Iterator[tuple[int | None, Passage]]:
    header_seen = False
    for line, row in csv_rows(path):
        if not header_seen:
            if row != TSV_HEADER:
                fault = f"the header must be {TSV_HEADER}, tab-separated, found {short(row)}; add it as the first line"
                raise ReadError(path, line, fault)
            header_seen = True
            continue
        if len(row) != len(TSV_HEADER):
            fault = (
                f"{len(row)} column(s) where id, text, title make 3; quote fields that hold a tab, a quote or a newline"
            )
            raise ReadError(path, line, fault)
        if not row[0].strip():
            raise ReadError(path, line, "the id is empty; give every passage its own")
        yield line, Passage(id=row[0], text=row[1], title=row[2])


def _json_passages(path: pathlib.Path) -> Iterator[tuple[int | None, Passage]]:
    for record in json_lines(path):
        title = record.text("title", hint='; write "title": "" for a passage without one')
        yield record.line, Passage(record.id(), title, record.text("text"))


def _question(record: Record) -> Question:
    fields, text = record.fields, record.words("question")
    if "answers" in fields and "answer" in fields:
        raise record.fault("both 'answers' and 'answer'; keep one of them")
    if "answers" not in fields and "answer" not in fields:
        raise record.fault(f"missing field 'answers' (found {short(list(fields))}); write \"answers\": [] for none")
    name = "answers" if "answers" in fields else "answer"
    answers = [fields[name]] if name == "answer" and isinstance(fields[name], str) else fields[name]
    positive_ids = fields.get("positive_ids")
    return Question(
        id=record.id(),
        text=text,
        answers=record.strings(name, answers),
        positive_ids=record.strings("positive_ids", [] if positive_ids is None else positive_ids, numbers=True),
    )
