"""Laws of the document readers for any text and any bytes."""

import bz2
import io
import re
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_jax.text.documents import markdown, wikitext
from rag_jax.text.documents.dump import read_pages
from rag_jax.text.readers import ReadError, read_passages
from tests.wild_text import texts

# What XML 1.0 can hold; a carriage return is read as a line feed.
IN_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
xml_texts = texts.map(lambda text: IN_XML.sub("", text))
ENCODINGS = ["utf-8", "utf-16", "utf-7", "latin-1", "ascii", "gbk", "rot13", "idna", "base64", "unicode_escape", "none"]


def dump_of(pages, encoding="utf-8"):
    """A dump of (title, text) pairs."""
    fields = "<page><title>{}</title><ns>0</ns><id>{}</id><revision><text>{}</text></revision></page>"
    body = "".join(fields.format(escape(title), number, escape(text)) for number, (title, text) in enumerate(pages, 1))
    return f'<?xml version="1.0" encoding="{encoding}"?><mediawiki>{body}</mediawiki>'.encode()


def read(raw, name="dump.xml"):
    """Title and text of the pages before the first fault, and the fault or None."""
    found, fault = [], None
    try:
        for page in read_pages(io.BytesIO(raw), name):
            found.append((page.title, page.text))
    except ReadError as error:
        fault = error
    assert fault is None or name in str(fault)
    return found, fault


pages = st.lists(st.tuples(xml_texts, xml_texts), min_size=1, max_size=4)


@given(rows=pages, packed=st.booleans())
def test_a_dump_gives_back_every_title_and_text(rows, packed):
    raw = bz2.compress(dump_of(rows)) if packed else dump_of(rows)
    assert read(raw, "dump.xml.bz2" if packed else "dump.xml") == (rows, None)


@given(rows=pages, data=st.data(), encoding=st.sampled_from(ENCODINGS), packed=st.booleans())
def test_a_damaged_dump_is_read_or_is_one_read_error(rows, data, encoding, packed):
    raw = dump_of(rows, encoding)
    raw = bz2.compress(raw) if packed else raw
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(len(raw), start + 8)))
    damage = st.binary(max_size=8) | st.sampled_from(
        [b"<", b"<page>", b"&x;", b"&#0;", b"\0", b"</ns><ns>" + b"1" * 5000]
    )
    found, fault = read(raw[:start] + data.draw(damage) + raw[end:], "dump.xml.bz2" if packed else "dump.xml")
    assert found or fault


@given(rows=pages, data=st.data())
def test_a_cut_dump_is_never_taken_for_a_whole_one(rows, data):
    raw = bz2.compress(dump_of(rows))
    found, fault = read(raw[: data.draw(st.integers(0, len(raw) - 1))], "dump.xml.bz2")
    assert found == rows[: len(found)]
    assert fault is not None


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_dump_is_read_as_utf8_whatever_it_declares(encoding):
    assert read(dump_of([("T", "w\u00f6rd")], encoding)) == ([("T", "w\u00f6rd")], None)
    found, fault = read(dump_of([("T", "w\u00f6rd")], encoding).decode().encode("latin-1"))
    assert not found
    assert "XML is broken" in str(fault)


@given(text=texts)
def test_no_wikitext_breaks_the_parser_and_its_text_can_be_written(text):
    found = wikitext.plain_text(text)
    assert found.encode().decode() == found
    assert all(line.strip() for line in found.split("\n") if found)


@given(text=texts)
def test_no_markdown_breaks_the_parser_and_its_text_can_be_written(text):
    title, found = markdown.plain_text(text)
    assert (title + found).encode().decode() == title + found
    assert "\n" not in title


@given(contents=st.lists(texts, min_size=1, max_size=3))
def test_every_word_of_a_folder_is_in_its_passages_once_and_in_order(tmp_path, contents):
    for old in tmp_path.iterdir():
        old.unlink()
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.txt").write_bytes(content.encode())
    expected = [word for content in contents for word in content.removeprefix("\ufeff").split()]
    if "\0" in "".join(contents) or not expected:
        with pytest.raises(ReadError, match="holds a NUL" if "\0" in "".join(contents) else "no text in it"):
            list(read_passages(tmp_path))
        return
    found = list(read_passages(tmp_path))
    assert [word for passage in found for word in passage.text.split()] == expected
    assert all(len(passage.text.split()) <= 100 for passage in found)


@given(
    before=texts.filter(lambda text: "\0" not in text), bad=st.sampled_from([b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\0"])
)
def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path, before, bad):
    (tmp_path / "a.txt").write_bytes(before.encode() + bad)
    with pytest.raises(ReadError) as caught:
        list(read_passages(tmp_path))
    assert f"a.txt, line {before.count(chr(10)) + 1}: " in str(caught.value)
