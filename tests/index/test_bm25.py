import bm25s
import numpy as np
import pytest

from rag_jax.index.bm25 import Bm25Searcher, Bm25Settings
from rag_jax.index.manifest import IndexMismatch
from rag_jax.index.protocol import NO_PASSAGE, Searcher, TextSearcher
from rag_jax.index.store import build_index, open_index
from rag_jax.types import Passage

WORDS = ["river", "stone", "cloud", "lamp", "horse", "silver", "winter", "garden"]


def collection(rng, count=60):
    texts = [" ".join(rng.choice(WORDS, size=12)) for _ in range(count)]
    return [Passage(f"p{n}", f"Title {n}", f"{text} rare{n}") for n, text in enumerate(texts)]


@pytest.fixture
def passages(rng):
    return collection(rng)


def test_the_passage_with_the_rare_words_comes_first(passages):
    found = Bm25Searcher.build(passages).search_texts(["a silver lamp and rare17?", "RARE3 rare3"], 4)
    assert found.rows[:, 0].tolist() == [17, 3]
    assert (np.diff(found.scores[0]) <= 0).all()
    assert found.rows[1].tolist() == [3, NO_PASSAGE, NO_PASSAGE, NO_PASSAGE]
    assert found.scores[1, 1:].tolist() == [-np.inf] * 3


def test_scores_are_those_of_bm25s(passages):
    questions = ["silver horse in the winter garden", "rare5 cloud cloud river"]
    model = bm25s.BM25(k1=1.2, b=0.5)
    model.index(bm25s.tokenize([f"{p.title} {p.text}" for p in passages], show_progress=False), show_progress=False)
    asked = bm25s.tokenize(questions, show_progress=False, return_ids=False)
    rows, scores = model.retrieve(asked, k=5, show_progress=False, backend_selection="numpy")
    found = Bm25Searcher.build(passages, Bm25Settings(k1=1.2, b=0.5)).search_texts(questions, 5)
    np.testing.assert_array_equal(found.scores, scores)
    assert found.scores.dtype == np.float32
    assert rows[1, 0] == found.rows[1, 0] == 5


def test_equal_scores_come_in_the_order_of_rows():
    same = [Passage(str(n), "", "blue moon") for n in range(9)]
    assert Bm25Searcher.build(same).search_texts(["moon"], 4).rows.tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("question", ["", "  ", "the of and", "xylophone", "?!"])
def test_a_question_without_a_known_word_finds_no_passage(passages, question):
    found = Bm25Searcher.build(passages).search_texts(["river", question], 3)
    assert (found.rows[0] >= 0).all()
    assert (found.rows[1] == NO_PASSAGE).all()


def test_beyond_the_corpus_there_is_no_passage(passages):
    found = Bm25Searcher.build(passages[:2]).search_texts(["title"], 5)
    assert found.rows.tolist() == [[0, 1, -1, -1, -1]]
    assert Bm25Searcher.build(passages).search_texts([], 5).rows.shape == (0, 5)


def test_what_cannot_be_searched_is_refused(passages):
    searcher = Bm25Searcher.build(passages)
    with pytest.raises(ValueError, match="k must be 1 or more"):
        searcher.search_texts(["river"], 0)
    with pytest.raises(ValueError, match="given one string"):
        searcher.search_texts("river", 3)
    with pytest.raises(ValueError, match=r"b in 0\.\.1"):
        Bm25Searcher.build(passages, Bm25Settings(b=1.5))
    with pytest.raises(ValueError, match="not one passage holds a word"):
        Bm25Searcher.build([Passage("a", "", "?"), Passage("b", "", "")])


def test_a_bm25_index_is_opened_as_it_was_built_and_holds_no_vectors(tmp_path, passages):
    built = build_index(tmp_path / "i", passages, None, encoder_fingerprint="e" * 64, backend="bm25")
    index = open_index(tmp_path / "i", encoder_fingerprint="0" * 64)  # no encoder, so any goes with it
    assert index.searches_texts
    assert index.vectors.shape == (60, 0)
    assert (index.manifest.dim, index.manifest.encoder, index.manifest.recall) == (0, "", None)
    assert not (tmp_path / "i" / "vectors.npy").exists()
    found = index.search_texts(["silver rare9"], 5)
    np.testing.assert_array_equal(found.rows, built.search_texts(["silver rare9"], 5).rows)
    with pytest.raises(ValueError, match="searches texts: call search_texts"):
        index.search(np.ones((1, 4), np.float32), 5)


def test_a_vector_index_does_not_take_texts(tmp_path, passages, rng):
    vectors = rng.standard_normal((60, 4), np.float32)
    index = build_index(tmp_path / "i", passages, vectors, encoder_fingerprint="e" * 64, backend="exact")
    with pytest.raises(ValueError, match="searches vectors"):
        index.search_texts(["silver"], 5)
    found = index.search_scored(vectors[:3], 4)
    np.testing.assert_allclose(found.scores[0], vectors[found.rows[0]] @ vectors[0], rtol=1e-6)
    assert (np.diff(found.scores, axis=1) <= 0).all()


def test_a_damaged_or_exchanged_file_is_refused(tmp_path, passages):
    build_index(tmp_path / "i", passages, None, encoder_fingerprint="", backend="bm25")
    build_index(tmp_path / "j", passages[:-1], None, encoder_fingerprint="", backend="bm25")
    other = tmp_path / "j" / "backend" / "params.index.json"
    other.rename(tmp_path / "i" / "backend" / "params.index.json")
    with pytest.raises(IndexMismatch, match=r"params\.index\.json is corrupted; rebuild"):
        open_index(tmp_path / "i")


def test_the_two_kinds_of_searcher_are_told_apart(passages):
    searcher = Bm25Searcher.build(passages)
    assert isinstance(searcher, TextSearcher)
    assert not isinstance(searcher, Searcher)
