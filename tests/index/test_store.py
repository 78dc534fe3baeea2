import dataclasses
import json
import os
import shutil

import numpy as np
import pytest

from rag_jax.index import backends, manifest, store
from rag_jax.index.backends import measure_recall
from rag_jax.index.exact import ExactSearcher
from rag_jax.index.manifest import IndexMismatch
from rag_jax.index.scann import ScannSettings
from rag_jax.index.store import build_index, open_index
from rag_jax.text.table import PassageTable
from rag_jax.types import Passage

pytest.importorskip("scann", reason="ScaNN has wheels for Linux only")

COUNT, DIM = 60, 8
ENCODER, OTHER = "e" * 64, "0" * 64
PASSAGES = [Passage(f"p{n}", f"Title {n}", f"text {n}") for n in range(COUNT)]
TREE = ScannSettings(leaves=4, leaves_to_search=4, dims_per_block=2, reorder=20)


@pytest.fixture
def vectors(rng):
    return rng.standard_normal((COUNT, DIM), np.float32)


@pytest.fixture
def queries(rng):
    return rng.standard_normal((5, DIM), np.float32)


def build(directory, vectors, passages=PASSAGES, **options):
    return build_index(directory, passages, vectors, **({"encoder_fingerprint": ENCODER} | options))


@pytest.mark.parametrize(("backend", "settings"), [("exact", None), ("scann", None), ("scann", TREE)])
def test_an_index_opens_as_it_was_built_and_may_be_moved(tmp_path, vectors, queries, backend, settings):
    built = build(tmp_path / "a" / "index", vectors, backend=backend, settings=settings)
    shutil.move(tmp_path / "a", tmp_path / "b")
    index = open_index(tmp_path / "b" / "index", encoder_fingerprint=ENCODER)
    assert isinstance(index.vectors, np.memmap)
    np.testing.assert_array_equal(index.vectors, vectors)
    assert list(index.passages) == PASSAGES
    np.testing.assert_array_equal(index.search(queries, 7), ExactSearcher(vectors).search(queries, 7))
    np.testing.assert_array_equal(index.search(queries, 7), built.search(queries, 7))


def test_the_manifest_says_what_the_index_is(tmp_path, vectors):
    build(tmp_path / "i", vectors, settings=TREE)
    content = json.loads((tmp_path / "i" / "manifest.json").read_text())
    assert content["created_by"].startswith("rag-jax")
    assert content["recall"] == {"k": 10, "queries": COUNT, "source": "vectors", "value": 1.0}
    assert content["parameters"] == dataclasses.asdict(TREE)
    assert content["passages"] == PassageTable.from_passages(PASSAGES).fingerprint
    expected = {
        "format": 1,
        "metric": "dot_product",
        "dtype": "float32",
        "count": COUNT,
        "dim": DIM,
        "encoder": ENCODER,
    }
    assert expected.items() <= content.items()
    assert content["backend"] == "scann"
    assert "vectors.npy" in content["files"]


def test_vectors_are_on_disk_once(tmp_path, vectors):
    build(tmp_path / "i", vectors)
    assert os.path.samefile(tmp_path / "i" / "vectors.npy", tmp_path / "i" / "backend" / "dataset.npy")


def test_a_table_and_double_vectors_are_taken_too(tmp_path, vectors):
    index = build(tmp_path / "i", vectors.astype(np.float64), PassageTable.write(tmp_path / "t", PASSAGES))
    assert index.vectors.dtype == np.float32
    assert index.passages.row_of("p7") == 7


def test_another_encoder_is_refused_with_what_to_do(tmp_path, vectors):
    build(tmp_path / "i", vectors)
    with pytest.raises(
        IndexMismatch, match=r"encoder has the fingerprint 000000.*rebuild the index, or load the encoder"
    ):
        open_index(tmp_path / "i", encoder_fingerprint=OTHER)
    assert len(open_index(tmp_path / "i").passages) == COUNT


def test_other_passages_are_refused_with_what_to_do(tmp_path, vectors):
    build(tmp_path / "i", vectors)
    with pytest.raises(IndexMismatch, match="embed these passages and rebuild the index"):
        open_index(tmp_path / "i", passages_fingerprint=OTHER)


def flip_last_byte(path):
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.unlink()  # not through a hard link into another file
    path.write_bytes(raw)


FILES = ["vectors.npy", "passages/records.bin", "passages/id_rows.npy", "backend/dataset.npy", "backend/searcher.json"]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_refused(tmp_path, vectors, name):
    build(tmp_path / "i", vectors)
    flip_last_byte(tmp_path / "i" / name)
    with pytest.raises(IndexMismatch, match=f"{name} is corrupted; rebuild the index, or copy it again"):
        open_index(tmp_path / "i")


def test_large_files_are_read_whole_unless_told_otherwise(tmp_path, vectors, monkeypatch):
    monkeypatch.setattr(manifest, "SMALL_FILE", 100)
    build(tmp_path / "i", vectors, backend="exact")
    flip_last_byte(tmp_path / "i" / "vectors.npy")
    assert open_index(tmp_path / "i", verify_large=False).manifest.count == COUNT
    with pytest.raises(IndexMismatch, match=r"vectors\.npy is corrupted"):
        open_index(tmp_path / "i")


@pytest.mark.parametrize("name", FILES)
def test_a_cut_or_missing_file_is_refused(tmp_path, vectors, name):
    build(tmp_path / "i", vectors)
    path = tmp_path / "i" / name
    raw = path.read_bytes()
    path.unlink()
    with pytest.raises(IndexMismatch, match=f"{name} is missing"):
        open_index(tmp_path / "i", verify_large=False)
    path.write_bytes(raw[:-1])
    with pytest.raises(IndexMismatch, match=rf"{name} has \d+ bytes, expected \d+"):
        open_index(tmp_path / "i", verify_large=False)


def edit(directory, **changes):
    path = directory / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "format 2 of 'rag-jax"),
        ({"count": COUNT + 1}, "the manifest says"),
        ({"dim": DIM + 1}, "the manifest says"),
        ({"passages": OTHER}, "the manifest says 000000"),
        ({"metric": "squared_l2"}, "searches dot_product"),
        ({"dtype": "int8"}, "over float32"),
        ({"backend": "faiss"}, "no index backend 'faiss'; choose from bm25, device, exact, scann"),
        ({"files": {"../manifest.json": [1, OTHER]}}, r"\.\./manifest.json is missing"),
        ({"files": 3}, "not a manifest"),
        ({"recall": None}, "not a manifest"),
        ({"colour": "blue"}, "not a manifest"),
    ],
)
def test_a_manifest_that_disagrees_with_its_files_is_refused(tmp_path, vectors, changes, message):
    build(tmp_path / "i", vectors)
    edit(tmp_path / "i", **changes)
    with pytest.raises(IndexMismatch, match=message):
        open_index(tmp_path / "i")


def test_where_there_is_no_index_the_message_says_how_to_make_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no index there.*rag-jax index build"):
        open_index(tmp_path)


@pytest.mark.parametrize("target", [(store, "write_manifest"), (store, "inventory"), (store, "measure_recall")])
def test_a_build_that_is_killed_leaves_the_old_index(tmp_path, vectors, queries, monkeypatch, target):
    old = build(tmp_path / "i", vectors).search(queries, 3)

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(*target, killed)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "i", vectors[::-1].copy(), overwrite=True)
    np.testing.assert_array_equal(open_index(tmp_path / "i").search(queries, 3), old)
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_an_open_index_keeps_answering_while_it_is_replaced(tmp_path, vectors, queries):
    reader = build(tmp_path / "i", vectors)
    before = reader.search(queries, 3)
    fewer = build(tmp_path / "i", vectors[:20], PASSAGES[:20], overwrite=True, encoder_fingerprint=OTHER)
    np.testing.assert_array_equal(reader.search(queries, 3), before)
    assert list(reader.passages) == PASSAGES
    np.testing.assert_array_equal(reader.vectors, vectors)
    assert (len(fewer.passages), fewer.manifest.encoder) == (20, OTHER)
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_what_is_in_the_way_is_never_removed_unasked(tmp_path, vectors):
    build(tmp_path / "i", vectors)
    with pytest.raises(FileExistsError, match="exists already"):
        build(tmp_path / "i", vectors)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1").touch()
    with pytest.raises(FileExistsError, match="is no index"):
        build(tmp_path / "thesis", vectors, overwrite=True)
    assert (tmp_path / "thesis" / "chapter1").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"passages": PASSAGES[:-1]}, "59 passages and 60 vectors"),
        ({"passages": [*PASSAGES[:-1], PASSAGES[0]]}, "'p0': rows 0 and 59"),
        ({"backend": "faiss"}, "choose from bm25, device, exact, scann"),
        ({"backend": "exact", "settings": TREE}, "no settings"),
        ({"settings": {"leaves": 3}}, "takes ScannSettings"),
        ({"settings": dataclasses.replace(TREE, leaves=61)}, r"ScannSettings\.leaves = 61"),
        ({"recall_k": 0}, "k must be 1 or more"),
        ({"recall_queries": np.ones((0, DIM), np.float32)}, "no query"),
    ],
)
def test_what_cannot_be_built_is_refused_and_leaves_nothing(tmp_path, vectors, options, message):
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "i", vectors, **options)
    assert not list(tmp_path.iterdir())


def test_recall_counts_what_is_found(vectors, queries):
    class Rigged:
        def search(self, queries, k):
            rows = ExactSearcher(vectors).search(queries, k)
            rows[:, k // 2 :] = -1
            return rows

    assert measure_recall(Rigged(), vectors, queries, 10) == 0.5
    assert measure_recall(ExactSearcher(vectors), vectors, queries, COUNT + 5) == 1.0


def test_recall_takes_the_double_of_a_passage_for_the_passage(vectors, queries):
    class OtherHalf:
        def search(self, queries, k):
            return (ExactSearcher(doubled).search(queries, k) + COUNT) % (2 * COUNT)

    doubled = np.concatenate([vectors, vectors])
    assert measure_recall(OtherHalf(), doubled, queries, 1) == 1.0


def test_recall_of_given_queries_says_so(tmp_path, vectors, queries):
    recall = build(tmp_path / "i", vectors, recall_queries=queries, recall_k=3).manifest.recall
    assert (recall.k, recall.queries, recall.source, recall.value) == (3, 5, "queries", 1.0)


def test_every_backend_is_tested_here():
    assert set(backends.BACKENDS) == {"bm25", "device", "exact", "scann"}
