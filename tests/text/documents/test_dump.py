import bz2
import collections
import io
import os
import pathlib
import pickle
import tracemalloc

import pytest

from rag_jax.text.documents.document import cut
from rag_jax.text.documents.dump import read_articles, read_pages
from rag_jax.text.readers import ReadError, read_passages

WIKI = pathlib.Path(__file__).parent / "data" / "made_up_wiki.xml"
SIGNS = ["{{", "}}", "[[", "]]", "{|", "|}", "|-", "<ref", "</ref", "|thumb", "|right", "'''", "''", "==", "<br"]
SIGNS += ["&nbsp;", "<!--", "http://", "Category:", "File:"]


def words(start, end):
    return " ".join(f"w{number}" for number in range(start, end))


def fault(path):
    with pytest.raises(ReadError) as caught:
        list(read_passages(path))
    assert str(path) in str(caught.value)
    return str(caught.value)


def dump_of(tmp_path, content, name="dump.xml"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def one_page(fields="<title>T</title><ns>0</ns><id>1</id><revision><text>word</text></revision>", before=""):
    return f"{before}<mediawiki><page>{fields}</page></mediawiki>"


def test_only_articles_with_text_become_passages():
    passages = list(read_passages(WIKI))
    assert [passage.id for passage in passages] == ["12#0", "21#0", "21#1", "21#2", "31#0", "2000000001#0"]
    assert [passage.title for passage in passages[::3]] == ["Veln", "Long road"]
    assert passages[4].title == "Changed & again"
    assert passages[4].text == "The newer text."


def test_an_article_of_250_words_is_three_passages():
    road = [passage.text for passage in read_passages(WIKI) if passage.title == "Long road"]
    assert road == [words(0, 100), words(100, 200), words(200, 250)]


def test_nothing_of_the_markup_is_left():
    (veln,) = (passage.text for passage in read_passages(WIKI) if passage.title == "Veln")
    assert not [sign for sign in (*SIGNS, "Datei:", "Kategorie:") if sign in veln]
    assert veln == (
        "Veln (also Old Veln) is a harbour on the grey coast. It has 5 quays – three of stone. The first quay Unclosed "
        "citation was built by monks, see the account and . The second came later with its mole. It cost < 9 crowns; "
        "the tax was a year. The sign <quay> hangs there. Quays"
    )


def test_a_page_says_what_it_is():
    with WIKI.open("rb") as stream:
        pages = {page.title: page for page in read_pages(stream, "wiki.xml")}
    assert len(pages) == 11
    assert {title for title, page in pages.items() if page.redirect} == {"Old Veln", "Veln harbour"}
    assert {page.namespace for page in pages.values()} == {0, 4, 10, 14}
    assert set(pages["Veln"].hidden) >= {"medium", "datei", "kategorie", "file", "category"}
    assert pages["Q1"].model == "wikibase-item"


@pytest.mark.parametrize("streams", [1, 7])
def test_bzip2_of_one_stream_or_many_reads_as_the_plain_file(tmp_path, streams):
    raw = WIKI.read_bytes()
    size = -(-len(raw) // streams)
    packed = b"".join(bz2.compress(raw[start : start + size]) for start in range(0, len(raw), size))
    path = dump_of(tmp_path, packed, "dump.xml.bz2")
    assert list(read_passages(path)) == list(read_passages(WIKI))


def test_a_dump_is_never_in_memory():
    text = b"<text>" + b"word " * 2000 + b"</text>"
    page = b"<page><title>T</title><ns>0</ns><id>%d</id><revision>" + text + b"</revision></page>"

    class Endless(io.RawIOBase):
        """Eight megabytes of pages, made while they are read."""

        number = 0

        def read(self, size=-1):
            self.number += 1
            return b"<mediawiki>" if self.number == 1 else page % self.number if self.number < 800 else b"</mediawiki>"

    source = Endless()
    tracemalloc.start()
    count = sum(1 for _ in zip(read_pages(source, "x.xml"), range(700), strict=False))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 700
    assert peak < 2**19


@pytest.mark.parametrize("name", ["dump.xml", "dump.xml.bz2"])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_dump_cut_short_is_refused_with_its_place(tmp_path, name, part):
    noise = "".join(
        f"<page><title>P{n}</title><ns>0</ns><id>{n}</id><revision><text>{os.urandom(900).hex()}</text></revision></page>\n"
        for n in range(1, 400)
    )
    raw = f"<mediawiki>{noise}</mediawiki>".encode()
    content = bz2.compress(raw, 1) if name.endswith("bz2") else raw
    path = dump_of(tmp_path, content[: int(len(content) * part)], name)
    found = []
    with pytest.raises(ReadError, match=rf"{name}, line \d+: after the page 'P\d+' \(number \d+\): ") as caught:
        collections.deque(map(found.append, (article.id for article in read_articles(path))))
    assert found  # what is whole comes out before the fault
    assert f"'P{found[-1]}'" in str(caught.value)
    assert "broken" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "before the first page: the XML is broken or ends too early"),
        ("no XML at all", "line 1: before the first page: the XML is broken"),
        (b"\x89PNG\r\n\x00\x01", "the XML is broken"),
        (b"<mediawiki><page><title>\xff</title></page></mediawiki>", "the XML is broken"),
        ("<html><body/></html>", "starts with <html>, a dump with <mediawiki>"),
        ("<mediawiki></mediawiki>", "not one <page>"),
        ("<mediawiki><page><title>T</title>", "the XML is broken or ends too early"),
        (one_page("<title>T</title><ns>0</ns>"), "a <page> without <id>"),
        (one_page("<title>T</title><id>1</id>"), "a <page> without <ns>"),
        (one_page("<title>T</title><ns>x</ns><id>1</id>"), "whose <ns> is 'x', not a number"),
        (
            one_page("<title>T</title><ns>0</ns><id>1</id></page><page><title>U</title><ns>0</ns><id>1</id>"),
            "came before",
        ),
        (one_page("<a>" * 2000), "nested deeper"),
        (one_page("<title>T</title><ns>0</ns><id>1</id>"), "not one word of text"),
        (one_page(before='<!DOCTYPE mediawiki [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'), "refused"),
        (one_page(before='<!DOCTYPE mediawiki SYSTEM "file:///etc/passwd">'), "refused"),
    ],
)
def test_what_is_no_dump_is_refused(tmp_path, content, message):
    assert message in fault(dump_of(tmp_path, content))


def test_an_entity_is_not_expanded(tmp_path):
    assert "undefined entity" in fault(dump_of(tmp_path, one_page("<title>&b;</title>")))


def test_a_page_without_an_end_is_not_gathered(tmp_path, monkeypatch):
    monkeypatch.setattr("rag_jax.text.documents.dump.LONGEST_PAGE", 1000)
    text = "<title>T</title><ns>0</ns><id>1</id><revision><text>" + "a " * 1000 + "</text></revision>"
    assert "more than 1000 characters" in fault(dump_of(tmp_path, one_page(text)))


def test_what_is_no_archive_is_refused(tmp_path):
    assert "the bzip2 archive is broken" in fault(dump_of(tmp_path, WIKI.read_bytes(), "dump.xml.bz2"))


def test_a_dump_that_is_not_there_is_refused_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_passages(tmp_path / "none.xml.bz2")


def test_a_fault_keeps_its_place_on_its_way_between_processes():
    error = ReadError("dump.xml", 7, "broken")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path, again.line) == (str(error), "dump.xml", 7)


@pytest.mark.skipif("RAG_JAX_WIKI_DUMP" not in os.environ, reason="RAG_JAX_WIKI_DUMP names no real dump to read")
def test_nothing_of_the_markup_is_left_in_a_real_dump():
    left, articles, passages, count = dict.fromkeys(SIGNS, 0), 0, 0, 0
    for article in read_articles(os.environ["RAG_JAX_WIKI_DUMP"]):
        articles += 1
        for passage in cut(article):
            passages += 1
            count += len(passage.text.split())
            for sign in SIGNS:
                left[sign] += passage.text.count(sign)
    print(f"{articles} articles, {passages} passages, {count} words, left: {left}")
    assert passages
    assert sum(left.values()) <= passages / 10_000  # signs that an article on markup shows
