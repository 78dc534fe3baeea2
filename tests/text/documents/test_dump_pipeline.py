import bz2
import pathlib

import pytest

from rag_jax.text.readers import read_passages

pytest.importorskip("apache_beam", reason="apache_beam is not installed; it is the extra `beam`")

from rag_jax.text.documents import dump_pipeline

WIKI = pathlib.Path(__file__).parent / "data" / "made_up_wiki.xml"


def passages_by_beam(tmp_path, dumps, *options):
    dump_pipeline.main(["--dumps", *map(str, dumps), f"--output={tmp_path}/out", "--runner=DirectRunner", *options])
    joined = tmp_path / "passages.jsonl"
    joined.write_bytes(b"".join(path.read_bytes() for path in sorted(tmp_path.glob("out-*.jsonl"))))
    return list(read_passages(joined))


def by_id(passages):
    return sorted(passages, key=lambda passage: passage.id)


def test_the_pipeline_gives_the_passages_of_the_plain_path(tmp_path):
    dump = tmp_path / "dump.xml.bz2"
    raw = WIKI.read_bytes()
    dump.write_bytes(bz2.compress(raw[:3000]) + bz2.compress(raw[3000:]))
    found = passages_by_beam(tmp_path, [dump], "--shards=3")
    assert len(list(tmp_path.glob("out-*-of-00003.jsonl"))) == 3
    assert by_id(found) == by_id(read_passages(WIKI))


def test_the_parts_of_a_dump_give_the_passages_of_the_whole(tmp_path):
    head, *pages = WIKI.read_text("utf-8").split("  <page>")
    for part in range(3):
        body = "".join("  <page>" + page for page in pages[part::3]).removesuffix("</mediawiki>\n")
        (tmp_path / f"part{part}.xml").write_text(f"{head}{body}</mediawiki>\n", "utf-8")
    found = passages_by_beam(tmp_path, [tmp_path / "part*.xml"])
    assert by_id(found) == by_id(read_passages(WIKI))


def test_a_broken_dump_stops_the_pipeline_with_its_place(tmp_path):
    dump = tmp_path / "dump.xml"
    dump.write_bytes(WIKI.read_bytes()[:-200])
    with pytest.raises(Exception, match=r"dump\.xml, line \d+: after the page .* ends too early"):
        passages_by_beam(tmp_path, [dump])


def test_a_dump_that_is_not_there_stops_the_pipeline(tmp_path):
    with pytest.raises(Exception, match=r"none-\*\.xml: no such dump"):
        passages_by_beam(tmp_path, [tmp_path / "none-*.xml"])
