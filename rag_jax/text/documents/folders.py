"""HOST. Folders of plain text and Markdown files as documents."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

from rag_jax.text.documents.document import Document
from rag_jax.text.documents.markdown import plain_text
from rag_jax.text.faults import ReadError

MARKDOWN = (".md", ".markdown")
ENDINGS = (".txt", *MARKDOWN)


def read_folder(folder: str | pathlib.Path) -> Iterator[Document]:
    """The documents of a folder and the folders in it, in the order of their paths.

    A file that ends in .txt, .md or .markdown (in any case) is a document; its id is its path from the folder, with /
    between the parts. Its title is its first heading, if it is Markdown and has one, or else its name without the
    ending. Other files are left alone, and so are hidden files and folders (a name that starts with a dot), folders
    that are links, and files without a word.

    Raises:
      FileNotFoundError: no such folder; at once.
      ReadError: when the iterator gets there: a file that is not UTF-8 or holds a NUL (it is no text then), with its
        line; a name that is not UTF-8; a folder that may not be read; not one word in all the folder.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder; check the path")
    return _documents(folder)


def _documents(folder: pathlib.Path) -> Iterator[Document]:
    empty = True
    for path in _files(folder):
        document = _document(path, path.relative_to(folder).as_posix())
        if document.text.strip():
            empty = False
            yield document
    if empty:
        raise ReadError(folder, None, f"no text in it; documents are files that end in {', '.join(ENDINGS)}")


def _files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    for entry in sorted(_entries(folder), key=lambda entry: entry.name):
        path = folder / entry.name
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(path)
        elif entry.is_file() and path.suffix.lower() in ENDINGS:
            yield path


def _entries(folder: pathlib.Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise ReadError(folder, None, f"the folder cannot be read ({error.strerror})") from error


def _document(path: pathlib.Path, id: str) -> Document:
    try:
        id.encode()
    except UnicodeEncodeError as error:
        raise ReadError(ascii(str(path)), None, "the file's name is not UTF-8; rename it") from error
    text = _text(path)
    title = ""
    if path.suffix.lower() in MARKDOWN:
        title, text = plain_text(text)
    return Document(id, title or path.stem, text)


def _text(path: pathlib.Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ReadError(path, None, f"the file cannot be read ({error.strerror})") from error
    if 0 in raw:
        fault = "holds a NUL byte, which no text does; convert it to UTF-8, or move it out of the folder"
        raise ReadError(path, raw[: raw.index(0)].count(b"\n") + 1, fault)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fault = f"not UTF-8 (byte {raw[error.start]:#04x}); convert it, or move it out of the folder"
        raise ReadError(path, raw[: error.start].count(b"\n") + 1, fault) from error
