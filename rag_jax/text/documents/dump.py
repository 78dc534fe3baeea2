"""HOST. Wikipedia's pages-articles dumps: XML, plain or bzip2 (one stream or many), read page by page.

A dump is never in memory: expat hands over one page at a time. Reading a file runs no code from it and expands nothing:
a document type, where XML declares its entities, is refused, and a dump has none.
"""

from __future__ import annotations

import bz2
import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Protocol, runtime_checkable
from xml.parsers import expat

from rag_jax.text.documents.document import Document
from rag_jax.text.documents.wikitext import HIDDEN_NAMESPACES, plain_text
from rag_jax.text.faults import ReadError, SeenIds

ENDINGS = (".xml", ".xml.bz2")
BLOCK = 1 << 18  # bytes given to expat at a time
LONGEST_PAGE = 1 << 26  # characters; Wikipedia's own bound is two million bytes
LONGEST_NUMBER = 18  # digits
# MediaWiki's numbers for the namespaces media, file and category; each wiki names them in its language.
_HIDDEN = ("-2", "6", "14")
_PAGE = "mediawiki/page"
_FIELDS = {
    f"{_PAGE}/title": "title",
    f"{_PAGE}/ns": "ns",
    f"{_PAGE}/id": "id",
    f"{_PAGE}/revision/model": "model",
    f"{_PAGE}/revision/text": "text",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A page of a wiki, as its dump holds it.

    Attributes:
      id: the page's number, which it keeps from dump to dump.
      title: with the namespace's name, if it has one.
      namespace: 0 for articles.
      redirect: whether the page only points to another.
      model: what the text is; "wikitext" for articles.
      text: the source of the last revision in the dump.
      hidden: names of this wiki's file, media and category namespaces, in lower case.
    """

    id: str
    title: str
    namespace: int
    redirect: bool
    model: str
    text: str
    hidden: tuple[str, ...] = HIDDEN_NAMESPACES


def read_articles(path: str | pathlib.Path) -> Iterator[Document]:
    """The articles of a dump in the dump's order, as plain text. Lists and disambiguation pages are articles too.

    Raises:
      FileNotFoundError: no such file.
      ReadError: when the iterator gets there: a broken archive, broken XML or XML that is no dump, a page number that
        came before, no page at all. The message names the last page that was whole.
    """
    path = pathlib.Path(path)
    with path.open("rb") as stream:
        for page in read_pages(stream, str(path)):
            document = article(page)
            if document is not None:
                yield document


def article(page: Page) -> Document | None:
    """The plain text of an article; None for redirects, other namespaces and pages that are not wikitext."""
    if page.namespace != 0 or page.redirect or page.model != "wikitext":
        return None
    return Document(page.id, page.title, plain_text(page.text, page.hidden))


@runtime_checkable
class Readable(Protocol):
    """What a dump is read from: an open file, or a stream of Beam's."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


def read_pages(stream: Readable, name: str) -> Iterator[Page]:
    """All pages of a dump, in its order.

    Args:
      stream: the file's bytes; read to its end, not closed.
      name: the file's name, for messages; one that ends in .bz2 says that the bytes are compressed.

    Raises:
      ReadError: as `read_articles`.
    """
    # BZ2File's declared files can seek too, which reading forwards never does.
    source = bz2.BZ2File(stream) if name.endswith(".bz2") else stream  # type: ignore[call-overload]
    # read1 gives what is there, so that the pages before a break in the archive still come out.
    read = getattr(source, "read1", source.read)
    pages = _Pages()
    fault, block = None, b"-"
    while block and fault is None:
        try:
            block = read(BLOCK)
            pages.parser.Parse(block, not block)
        except (EOFError, OSError) as error:
            fault = f"the bzip2 archive is broken ({error}); download or copy it again"
        except expat.ExpatError as error:
            fault = f"the XML is broken or ends too early ({expat.errors.messages[error.code]}); download it again"
        except _Fault as error:
            fault = str(error)
        yield from pages.take()
    if fault is None and not pages.last:
        fault = "not one <page> in it; check that it is a dump of pages"
    if fault is not None:
        place = f"after the page {pages.last}" if pages.last else "before the first page"
        raise ReadError(name, pages.parser.CurrentLineNumber, f"{place}: {fault}")


class _Fault(Exception):
    """XML that is well formed and still no dump."""


class _Pages:
    """What expat calls: keeps the few fields of the page that is open, and the pages that are done until taken."""

    def __init__(self) -> None:
        self.last = ""  # the last whole page, for messages
        self._path = ""
        self._open: list[str] | None = None  # the open field's text, and how long it is
        self._length = 0
        self._fields: dict[str, list[str]] = {}
        self._redirect, self._seen = False, SeenIds()
        self._done: list[Page] = []
        self._hidden = dict.fromkeys(HIDDEN_NAMESPACES)
        self._names_hidden = False
        # A dump is UTF-8, and any other encoding that a file declares would be looked up among all of Python's codecs.
        self.parser = expat.ParserCreate("UTF-8")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype

    def take(self) -> list[Page]:
        done, self._done = self._done, []
        return done

    def _doctype(self, *_: object) -> None:
        raise _Fault("a document type, which could declare entities without end; a dump has none, so it is refused")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._path and name != "mediawiki":
            raise _Fault(f"the XML starts with <{name[:40]}>, a dump with <mediawiki>; give a pages-articles dump")
        self._path = f"{self._path}/{name}" if self._path else name
        if len(self._path) > 1000:
            raise _Fault("elements nested deeper than any dump has them")
        self._open = None
        if self._path == _PAGE:
            self._fields, self._redirect = {}, False
        elif self._path == f"{_PAGE}/redirect":
            self._redirect = True
        elif self._path in _FIELDS:
            self._open = self._fields[_FIELDS[self._path]] = []  # a later revision takes the place of an earlier one
            self._length = 0
        self._names_hidden = name == "namespace" and attributes.get("key") in _HIDDEN

    def _characters(self, data: str) -> None:
        if self._open is not None:
            self._length += len(data)
            if self._length > LONGEST_PAGE:
                raise _Fault(f"a field of more than {LONGEST_PAGE} characters; a <text> or <page> does not end")
            self._open.append(data)
        elif self._names_hidden:
            self._hidden[data.lower()] = None

    def _end(self, name: str) -> None:
        if self._path == _PAGE:
            self._done.append(self._page())
        self._path = self._path.rpartition("/")[0]
        self._open, self._names_hidden = None, False

    def _page(self) -> Page:
        fields = {name: "".join(parts) for name, parts in self._fields.items()}
        missing = [name for name in ("title", "ns", "id") if name not in fields]
        if missing:
            raise _Fault(f"a <page> without <{missing[0]}>; dumps since format 0.6 (2012) have one")
        for name, digits in (("id", fields["id"]), ("ns", fields["ns"].removeprefix("-"))):
            if not (digits.isascii() and digits.isdigit() and len(digits) <= LONGEST_NUMBER):
                raise _Fault(f"a <page> whose <{name}> is {fields[name][:40]!r}, not a number")
        if self._seen.add(fields["id"]):
            raise _Fault(f"the page number {fields['id']} came before; a dump has each page once")
        text = fields.get("text", "")
        self.last = f"{fields['title'][:80]!r} (number {fields['id']})"
        return Page(
            id=fields["id"],
            title=fields["title"],
            namespace=int(fields["ns"]),
            # Pages made by import can lack the element.
            redirect=self._redirect or text.lstrip()[:9].upper() == "#REDIRECT",
            model=fields.get("model", "wikitext"),
            text=text,
            hidden=tuple(self._hidden),
        )
