"""Many questions at once while the index changes under them: none fails, and none finds what was gone before it."""

import threading

import numpy as np
import pytest

from rag_jax.index.change import add_passages, delete_passages, swap_index
from rag_jax.index.live import LiveIndex
from rag_jax.index.store import build_index
from rag_jax.types import Passage

ENCODER, DIM, BATCH, THREADS = "e" * 64, 16, 25, 4


def embed(some):
    """Unit vectors: a passage is the best answer to its own, or another passage with its text is."""
    vectors = np.stack([np.random.default_rng(int(p.text.split()[-1])).standard_normal(DIM) for p in some])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def passages(name, first, last):
    return [Passage(f"{name}{number}", "", f"about{number} {number}") for number in range(first, last)]


class Service:
    """A live index, searched by threads, and what has been deleted so far: id -> how many were deleted before it.

    Half of the threads are told of changes, by a refresh in the thread that makes them; the others refresh before every
    search, as they would if another process made them.
    """

    def __init__(self, folder, backend, lasting, passing, swaps):
        self.place, self.backend = folder / "index", backend
        self.lasting, self.passing, self.swaps = passages("lasting", 0, lasting), passing, swaps
        for place in (self.place, folder / "a", folder / "b"):
            vectors = None if backend == "bm25" else embed(self.lasting)
            build_index(place, self.lasting, vectors, encoder_fingerprint=ENCODER, backend=backend)
        # The other index to swap in holds a passage more.
        add_passages(folder / "b", passages("more", lasting, lasting + 1), embed, encoder_fingerprint=ENCODER)
        self.others = [folder / "a", folder / "b"]
        self.live = LiveIndex(self.place)
        self.deleted = {True: {}, False: {}}  # whether the searching thread refreshes for itself -> id -> its number
        self.asked, self.changed, self.faults = [], threading.Event(), []

    def change(self):
        """Adds passages, adds them again with another text, deletes them, and swaps: `swaps` times."""
        each = self.passing // self.swaps
        for turn in range(self.swaps):
            first = len(self.lasting) + 1 + turn * each
            new = passages("passing", first, first + each)
            add_passages(self.place, new, embed, encoder_fingerprint=ENCODER)
            self.live.refresh()
            again = [Passage(p.id, "again", p.text) for p in new]
            add_passages(self.place, again, embed, encoder_fingerprint=ENCODER, replace=True)
            self.live.refresh()
            delete_passages(self.place, [p.id for p in new])
            self.deleted[True].update({p.id: len(self.deleted[True]) + n for n, p in enumerate(new)})
            self.live.refresh()
            self.deleted[False].update({p.id: len(self.deleted[False]) + n for n, p in enumerate(new)})
            swap_index(self.place, self.others[turn % 2])
            self.live.refresh()

    def search(self, seed, count, refreshes):
        """Asks `count` questions or more, until the changes are done."""
        rng = np.random.default_rng(seed)
        total = len(self.lasting) + 1 + self.passing
        asked = 0
        while asked < count or not self.changed.is_set():
            deleted = self.deleted[refreshes]
            before = len(deleted)
            if refreshes:
                self.live.refresh()
            index = self.live.index
            about = [Passage("", "", f"about{number} {number}") for number in rng.integers(0, total, BATCH)]
            if self.backend == "bm25":
                rows = index.search_texts([p.text for p in about], 3).rows
            else:
                rows = index.search(embed(about), 3)
            for passage, found in zip(about, rows, strict=True):
                answers = [index.passages[row] for row in found if row >= 0]
                late = [answer.id for answer in answers if deleted.get(answer.id, before) < before]
                assert not late, f"{late} were deleted before the search began"
                if int(passage.text.split()[-1]) < len(self.lasting):
                    assert answers[0].text == passage.text
            asked += BATCH
        return asked

    def run(self, questions):
        """Everything at once; the first fault of any thread is raised."""

        def guarded(work, *arguments):
            try:
                self.asked.append(work(*arguments) or 0)
            except BaseException as error:
                self.faults.append(error)
                self.changed.set()

        share = -(-questions // THREADS)
        searching = [threading.Thread(target=guarded, args=(self.search, n, share, n % 2 == 0)) for n in range(THREADS)]
        for thread in searching:
            thread.start()
        guarded(self.change)
        self.changed.set()
        for thread in searching:
            thread.join()
        if self.faults:
            raise self.faults[0]


@pytest.mark.parametrize("backend", ["exact", "bm25", pytest.param("scann", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("questions", "swaps", "passing"),
    [(800, 2, 8), pytest.param(50_000, 20, 1_000, marks=pytest.mark.slow)],
    ids=["small", "full"],
)
def test_no_search_fails_or_finds_what_was_deleted_before_it_began(tmp_path, backend, questions, swaps, passing):
    if backend == "scann":
        pytest.importorskip("scann", reason="ScaNN has wheels for Linux only")
    service = Service(tmp_path, backend, lasting=100, passing=passing, swaps=swaps)
    service.run(questions)
    assert sum(service.asked) >= questions
    assert len(service.deleted[True]) == passing
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "index"]


def test_a_slow_refresh_never_puts_an_older_index_in_the_place_of_a_newer(tmp_path, monkeypatch):
    some = passages("p", 0, 5)
    build_index(tmp_path / "i", some, embed(some), encoder_fingerprint=ENCODER, backend="exact")
    live = LiveIndex(tmp_path / "i")
    delete_passages(tmp_path / "i", ["p0"])
    opened, deleted, opens = threading.Event(), threading.Event(), live._open

    def slow():
        index = opens()
        if not opened.is_set():
            opened.set()
            deleted.wait(0.5)  # a refresh that waits for this one cannot set it
        return index

    monkeypatch.setattr(live, "_open", slow)
    first = threading.Thread(target=live.refresh)
    first.start()
    opened.wait()
    delete_passages(tmp_path / "i", ["p1"])
    live.refresh()
    deleted.set()
    first.join()
    assert [passage.id for passage in live.index.passages] == ["p2", "p3", "p4"]


def test_an_index_that_goes_and_comes_back_while_it_is_opened_is_never_mixed(tmp_path, monkeypatch):
    """The manifest is the same before and after, and so would the number of the directory be; the vectors are not."""
    some = passages("p", 0, 5)
    for name, vectors in (("a", embed(some)), ("b", -embed(some))):
        build_index(tmp_path / name, some, vectors, encoder_fingerprint=ENCODER, backend="exact")
    swap_index(tmp_path / "i", tmp_path / "a")
    load, turns = np.load, []

    def swapped_around(path, *arguments, **options):
        if path == tmp_path / "i" / "vectors.npy" and not turns:
            turns.append(path)
            swap_index(tmp_path / "i", tmp_path / "b")
            found = load(path, *arguments, **options)
            swap_index(tmp_path / "i", tmp_path / "a")
            return found
        return load(path, *arguments, **options)

    monkeypatch.setattr("rag_jax.index.store.np.load", swapped_around)
    index = LiveIndex(tmp_path / "i").index
    assert turns
    np.testing.assert_array_equal(index.vectors, embed(some))
