import os
import threading

import numpy as np
import pytest

from rag_jax.index.bm25 import Bm25Settings
from rag_jax.index.change import add_passages, delete_passages, swap_index
from rag_jax.index.device_searcher import DeviceSettings
from rag_jax.index.live import LiveIndex
from rag_jax.index.manifest import IndexMismatch
from rag_jax.index.scann import ScannSettings
from rag_jax.index.store import build_index, open_index
from rag_jax.types import Passage

ENCODER, OTHER = "e" * 64, "0" * 64


def passages(first, last, word=""):
    return [Passage(f"p{n}", f"Title {n}", f"text {n}{word}") for n in range(first, last)]


def embed(some):
    rows = [np.frombuffer(f"{p.id} {p.text}".encode().ljust(24)[:24], np.uint8) for p in some]
    return np.stack(rows).astype(np.float32)


def build(directory, some, backend="exact", encoder=ENCODER, **options):
    vectors = None if backend == "bm25" else embed(some)
    return build_index(directory, some, vectors, encoder_fingerprint=encoder, backend=backend, **options)


def add(directory, some, **options):
    return add_passages(directory, some, embed, **({"encoder_fingerprint": ENCODER} | options))


def holds(index, expected):
    assert list(index.passages) == expected
    np.testing.assert_array_equal(index.vectors, embed(expected))
    return True


OLD = passages(0, 20)


@pytest.fixture
def place(tmp_path):
    build(tmp_path / "i", OLD, made_with={"weights": "world"})
    return tmp_path / "i"


def test_added_passages_follow_the_others_and_only_they_are_embedded(place):
    seen = []

    def watched(some):
        seen.extend(some)
        return embed(some)

    index = add_passages(place, passages(20, 25), watched, encoder_fingerprint=ENCODER)
    assert seen == passages(20, 25)
    assert holds(index, passages(0, 25))
    assert holds(open_index(place), passages(0, 25))
    assert index.manifest.made_with == {"weights": "world"}
    assert index.search(embed(passages(23, 24)), 1).shape == (1, 1)
    assert os.listdir(place.parent) == ["i"]


def test_a_replaced_passage_keeps_its_row(place):
    index = add(place, [*passages(3, 4, "!"), *passages(20, 21), *passages(0, 1, "?")], replace=True)
    assert holds(index, [*passages(0, 1, "?"), *OLD[1:3], *passages(3, 4, "!"), *OLD[4:], *passages(20, 21)])


def test_deleted_passages_are_gone_and_the_others_keep_their_order(place):
    index = delete_passages(place, ["p7", "p0", "p19"])
    assert holds(index, [p for p in OLD if p.id not in ("p0", "p7", "p19")])
    with pytest.raises(KeyError):
        index.passages.row_of("p7")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda place: add(place, []), "no passages to add"),
        (lambda place: add(place, passages(19, 21)), "'p19': in the index already; .* replace"),
        (lambda place: add(place, passages(30, 31) * 2), "comes twice"),
        (lambda place: add_passages(place, passages(30, 31), None, encoder_fingerprint=ENCODER), "need their encoder"),
        (lambda place: add(place, passages(30, 31), encoder_fingerprint=OTHER), "embed the passages with this encoder"),
        (
            lambda place: add_passages(
                place, passages(30, 31), lambda some: np.full((1, 24), np.nan), encoder_fingerprint=ENCODER
            ),
            "holds nan",
        ),
        (
            lambda place: add_passages(
                place, passages(30, 31), lambda some: np.ones((1, 9)), encoder_fingerprint=ENCODER
            ),
            "1 passages of 24",
        ),
        (lambda place: delete_passages(place, []), "no passage ids"),
        (lambda place: delete_passages(place, ["p1", "q", "r"]), "'q', 'r': not in the index, so nothing was deleted"),
        (lambda place: delete_passages(place, [p.id for p in OLD]), "at least one passage"),
        (lambda place: swap_index(place, place), "are one directory"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_and_changes_nothing(place, change, message):
    with pytest.raises(ValueError, match=message):
        change(place)
    assert holds(open_index(place), OLD)
    assert os.listdir(place.parent) == ["i"]


@pytest.mark.parametrize(
    ("backend", "settings", "kept"),
    [
        ("device", DeviceSettings("bfloat16"), DeviceSettings("bfloat16")),
        ("bm25", Bm25Settings(k1=0.9, b=0.4), Bm25Settings(k1=0.9, b=0.4)),
        ("scann", ScannSettings(dims_per_block=2, reorder=10), ScannSettings(dims_per_block=2, reorder=10)),
        ("scann", None, ScannSettings.derive(21)),
    ],
)
def test_a_changed_index_is_built_as_it_was(tmp_path, backend, settings, kept):
    if backend == "scann":
        pytest.importorskip("scann", reason="ScaNN has wheels for Linux only")
    build(tmp_path / "i", OLD, backend, settings=settings)
    index = add(tmp_path / "i", passages(20, 21))
    assert (index.manifest.backend, index.searcher.settings) == (backend, kept)


def test_a_swap_puts_the_other_index_in_place_and_leaves_it_where_it_was(place, tmp_path):
    build(tmp_path / "new", passages(50, 55))
    assert holds(swap_index(place, tmp_path / "new"), passages(50, 55))
    assert holds(open_index(tmp_path / "new"), passages(50, 55))
    assert holds(add(place, passages(55, 56)), passages(50, 56))
    assert holds(open_index(tmp_path / "new"), passages(50, 55))
    assert holds(swap_index(tmp_path / "first", tmp_path / "new"), passages(50, 55))


def test_a_swap_refuses_what_the_readers_could_not_read(place, tmp_path):
    build(tmp_path / "other", passages(50, 55), encoder=OTHER)
    with pytest.raises(IndexMismatch, match=r"other: the encoder has the fingerprint eeeeee.*rebuild the index"):
        swap_index(place, tmp_path / "other")
    build(tmp_path / "words", OLD, "bm25")
    with pytest.raises(IndexMismatch, match="one searches texts and the other vectors; rebuild"):
        swap_index(place, tmp_path / "words")
    build(tmp_path / "torn", passages(50, 55))
    os.truncate(tmp_path / "torn" / "vectors.npy", 200)
    with pytest.raises(IndexMismatch, match=r"torn: vectors.npy has 200 bytes.*rebuild"):
        swap_index(place, tmp_path / "torn")
    with pytest.raises(FileNotFoundError, match="no index there"):
        swap_index(place, tmp_path / "nothing")
    (tmp_path / "thesis").mkdir()
    with pytest.raises(FileExistsError, match="is no index"):
        swap_index(tmp_path / "thesis", place)
    assert holds(open_index(place), OLD)
    assert holds(swap_index(place, tmp_path / "other", encoder_fingerprint=OTHER), passages(50, 55))


def test_a_reader_goes_over_to_the_new_index_between_two_questions(place, tmp_path):
    reader = LiveIndex(place, encoder_fingerprint=ENCODER)
    first = reader.index
    assert not reader.refresh()
    delete_passages(place, ["p0"])
    assert reader.index is first
    assert reader.search(embed(OLD[:1]), 20).max() == 19
    assert holds(first, OLD)
    assert reader.refresh()
    assert holds(reader.index, OLD[1:])
    assert reader.search(embed(OLD[:1]), 20)[0, -1] == -1
    assert holds(first, OLD)


def test_a_reader_keeps_its_index_when_the_new_one_cannot_be_read(place):
    reader = LiveIndex(place, encoder_fingerprint=ENCODER)
    build(place, passages(50, 55), encoder=OTHER, overwrite=True)
    with pytest.raises(IndexMismatch, match="encoder"):
        reader.refresh()
    assert holds(reader.index, OLD)
    assert reader.search(embed(OLD[:2]), 3).shape == (2, 3)


def test_no_question_fails_while_the_index_is_swapped_under_a_reader(place, tmp_path):
    build(tmp_path / "a", passages(0, 20))
    build(tmp_path / "b", passages(50, 60))
    stop = threading.Event()

    def swapping():
        while not stop.is_set():
            for name in "ab":
                swap_index(place, tmp_path / name)

    thread = threading.Thread(target=swapping)
    thread.start()
    try:
        reader, changes = LiveIndex(place), 0
        for _ in range(200):
            changes += reader.refresh()
            index = reader.index
            best = index.search(embed(passages(0, 1)), 1)[0, 0]
            assert index.passages[best].id in ("p0", *(f"p{n}" for n in range(60)))
            assert len(index.passages) == len(index.vectors)
            if changes >= 5:
                break
    finally:
        stop.set()
        thread.join()
    assert changes
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "i"]


def test_two_writers_wait_for_each_other_and_both_changes_stay(place):
    threads = [threading.Thread(target=add, args=(place, passages(n, n + 1))) for n in range(30, 34)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [p.id for p in open_index(place).passages]
    assert sorted(ids[20:]) == ["p30", "p31", "p32", "p33"]
    assert os.listdir(place.parent) == ["i"]


def test_the_remains_of_killed_writers_go_with_the_next_change(place):
    remains = place.with_name(f".i.{os.getpid()}-0a1b2c3d")
    remains.mkdir()
    (place.parent / ".i.notes").mkdir()
    delete_passages(place, ["p0"])
    assert sorted(os.listdir(place.parent)) == [".i.notes", "i"]


def test_an_index_that_a_kill_left_between_two_renames_comes_back(place):
    place.rename(place.with_name(".i.77-0a1b2c3d-old"))
    assert holds(delete_passages(place, ["p0"]), OLD[1:])
