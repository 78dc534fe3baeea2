"""An index under any sequence of operations is the plain dict that the same operations make, and answers from it."""

import hashlib
import json
import pathlib
import re
import shutil
import tempfile

import numpy as np
import pytest
from bm25s.stopwords import STOPWORDS_EN
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rag_jax.index.change import add_passages, delete_passages, swap_index
from rag_jax.index.live import LiveIndex
from rag_jax.index.manifest import IndexMismatch, read_manifest
from rag_jax.index.store import build_index, open_index
from rag_jax.types import Passage
from tests.wild_text import texts

ENCODER, DIM = "e" * 64, 4
# Few ids, so that they meet; the odd ones are written as they are into files.
IDS = ["p1", "1", "01", " p1", "é", "e\u0301", "\0", "a/b", "x" * 300]
# Why an operation may be refused.
REFUSALS = (
    "no passages to add|in the index already|comes twice|no passage ids|not in the index|at least one passage|a word"
)
WORDS = ["river", "Stone", "silver", "lamp-post", "naïve"]
bodies = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join) | texts
passages = st.builds(Passage, st.sampled_from(IDS), bodies, bodies)
several = st.lists(passages, min_size=1, max_size=4, unique_by=lambda passage: passage.id)


def embed(some):
    """Vectors that depend on the passage alone."""
    digests = [hashlib.blake2b(repr(passage).encode("utf-8", "surrogatepass"), digest_size=DIM) for passage in some]
    return np.stack([np.frombuffer(digest.digest(), np.int8) for digest in digests]).astype(np.float32)


def words(text):
    """The words that BM25 counts, as bm25s documents it."""
    return [word for word in re.findall(r"\b\w\w+\b", text.lower()) if word not in STOPWORDS_EN]


def searchable(some, backend):
    return backend != "bm25" or any(words(f"{passage.title} {passage.text}") for passage in some)


class Operations(RuleBasedStateMachine):
    """The index on disk, a reader of it, and what both should hold."""

    backend = "exact"

    def __init__(self):
        super().__init__()
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.place = self.folder / "index"

    def teardown(self):
        shutil.rmtree(self.folder)

    def build(self, place, some):
        vectors = None if self.backend == "bm25" else embed(some)
        build_index(place, some, vectors, encoder_fingerprint=ENCODER, backend=self.backend, overwrite=True)

    @initialize(some=several)
    def begins(self, some):
        if not searchable(some, self.backend):
            some = [Passage("p1", "", "river")]
        self.build(self.place, some)
        self.held = {passage.id: passage for passage in some}
        self.reader = LiveIndex(self.place)
        self.read = dict(self.held)

    def change(self, held, operation):
        """Carries out an operation that should leave `held`, or that has to be refused: then nothing changes."""
        if held is not None and held and searchable(held.values(), self.backend):
            operation()
            self.held = held
        else:
            with pytest.raises(ValueError, match=REFUSALS):
                operation()

    @rule(some=st.lists(passages, max_size=4), replace=st.booleans())
    def adds(self, some, replace):
        unique = len({passage.id for passage in some}) == len(some)
        legal = some and unique and (replace or not self.held.keys() & {passage.id for passage in some})
        held = self.held | {passage.id: passage for passage in some} if legal else None
        self.change(held, lambda: add_passages(self.place, some, embed, encoder_fingerprint=ENCODER, replace=replace))

    @rule(gone=st.lists(st.sampled_from(IDS), max_size=4))
    def deletes(self, gone):
        legal = gone and set(gone) <= self.held.keys()
        held = {id: passage for id, passage in self.held.items() if id not in gone} if legal else None
        self.change(held, lambda: delete_passages(self.place, gone))

    @rule(data=st.data())
    def deletes_some_that_are_there(self, data):
        self.deletes(data.draw(st.lists(st.sampled_from(sorted(self.held)), min_size=1, max_size=3)))

    @rule(some=several)
    def swaps(self, some):
        if searchable(some, self.backend):
            self.build(self.folder / "other", some)
            swap_index(self.place, self.folder / "other")
            self.held = {passage.id: passage for passage in some}

    @rule()
    def refreshes(self):
        self.reader.refresh()
        self.read = dict(self.held)

    @rule(some=several, question=bodies, k=st.integers(1, 6))
    def searches(self, some, question, k):
        held = list(self.read.values())
        if self.backend == "bm25":
            (rows,), (scores,) = self.reader.search_texts([question], k)
            asked = set(words(question))
            fit = [n for n, p in enumerate(held) if asked & set(words(f"{p.title} {p.text}"))]
            assert set(rows[rows >= 0].tolist()) <= set(fit)
            assert (rows >= 0).sum() == min(k, len(fit))
            assert (np.diff(scores[rows >= 0]) <= 0).all()
            return
        queries = embed(some)
        found = self.reader.search(queries, k)
        scores = queries @ embed(held).T
        for row, score in zip(found, scores, strict=True):
            count = min(k, len(held))
            assert (row[count:] == -1).all()
            assert len(set(row[:count].tolist())) == count
            np.testing.assert_allclose(score[row[:count]], np.sort(score)[::-1][:count], rtol=1e-6)

    @invariant()
    def holds_what_the_dict_holds(self):
        for index, held in ((open_index(self.place), self.held), (self.reader.index, self.read)):
            assert list(index.passages) == list(held.values())
            assert [index.passages.row_of(id) for id in held] == list(range(len(held)))
            if self.backend != "bm25":
                np.testing.assert_array_equal(index.vectors, embed(held.values()))

    @invariant()
    def leaves_nothing_beside_the_index(self):
        assert {path.name for path in self.folder.iterdir()} <= {"index", "other"}


class WordOperations(Operations):
    """The same for a search by words."""

    backend = "bm25"


class ScannOperations(Operations):
    """The same for ScaNN."""

    backend = "scann"

    def __init__(self):
        pytest.importorskip("scann", reason="ScaNN has wheels for Linux only")
        super().__init__()


TestOperations, TestWordOperations, TestScannOperations = (
    machine.TestCase for machine in (Operations, WordOperations, ScannOperations)
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.sampled_from(["", "exact", "dot_product", "en"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["k", "value", "b"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """One index of each backend, each with its manifest."""
    found = {}
    for backend in ("exact", "bm25", "device"):
        place = tmp_path_factory.mktemp("manifests") / backend
        some = [Passage("a", "river", "stone"), Passage("b", "", "silver lamp")]
        vectors = None if backend == "bm25" else embed(some)
        build_index(place, some, vectors, encoder_fingerprint=ENCODER, backend=backend)
        found[place] = (place / "manifest.json").read_text("utf-8")
    return found


@given(data=st.data(), value=anything)
def test_a_manifest_with_any_value_in_any_field_opens_or_is_a_mismatch(indexes, data, value):
    place = data.draw(st.sampled_from(sorted(indexes)))
    content = json.loads(indexes[place])
    inside = content
    name = data.draw(
        st.sampled_from([*sorted(content), "parameters.k1", "recall.k", "recall.value", "parameters.dtype"])
    )
    if "." in name and content[name.split(".")[0]]:
        group, name = name.split(".")
        inside = content[group]
    inside[name] = value
    (place / "manifest.json").write_text(json.dumps(content), "utf-8")
    try:
        index = open_index(place)
    except IndexMismatch:
        return
    finally:
        (place / "manifest.json").write_text(indexes[place], "utf-8")
    question = (["river"],) if index.searches_texts else (np.ones((1, DIM), np.float32),)
    (index.search_texts if index.searches_texts else index.search)(*question, 1)


@given(noise=st.binary(max_size=60), deep=st.sampled_from([b"", b"[" * 100_000, b'{"format":' * 50_000]))
def test_a_manifest_of_any_bytes_is_a_mismatch(tmp_path, noise, deep):
    (tmp_path / "manifest.json").write_bytes(deep + noise)
    with pytest.raises(IndexMismatch):
        read_manifest(tmp_path)
