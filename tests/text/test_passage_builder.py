import os

import pytest

from rag_jax.text.readers import ReadError, read_passages


@pytest.fixture(scope="module")
def builder():
    pytest.importorskip("tensorflow_datasets")
    from rag_jax.text import passage_builder

    return passage_builder


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "a.md").write_text("# Ithaca\n\n" + " ".join(f"w{n}" for n in range(250)), "utf-8")
    (folder / "b.txt").write_text("naïve café", "utf-8")
    return folder


def test_the_tfds_builder_gives_the_passages_of_any_source_in_order(builder, folder, tmp_path):
    source = builder.load(folder, tmp_path / "tfds")
    expected = list(read_passages(folder))
    assert len(source) == len(expected) == 4
    for n in (3, 0, 2, 1):
        assert {name: value.decode() for name, value in source[n].items()} == {
            "id": expected[n].id,
            "title": expected[n].title,
            "text": expected[n].text,
        }


def test_a_source_is_prepared_once_until_it_changes(builder, folder, tmp_path, monkeypatch):
    builder.load(folder, tmp_path / "tfds")
    with monkeypatch.context() as patch:
        patch.setattr(builder, "read_passages", lambda source: pytest.fail("read again"))
        assert len(builder.load(folder, tmp_path / "tfds")) == 4
    (folder / "b.txt").write_text("another text", "utf-8")
    os.utime(folder / "b.txt", ns=(1, 1))
    assert builder.load(folder, tmp_path / "tfds")[3]["text"] == b"another text"


def test_a_broken_source_leaves_no_data_set(builder, folder, tmp_path):
    (folder / "c.txt").write_bytes(b"\xff")
    for _ in range(2):
        with pytest.raises(ReadError, match=r"c\.txt, line 1: not UTF-8"):
            builder.load(folder, tmp_path / "tfds")
    with pytest.raises(FileNotFoundError, match="no such file"):
        builder.load(tmp_path / "none", tmp_path / "tfds")
