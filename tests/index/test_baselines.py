"""Passages at random, and the oracle: what they find, and what they say where they can find nothing."""

import numpy as np
import pytest

from rag_jax.index import NO_PASSAGE, GoldSearcher, RandomSearcher, TextSearcher
from rag_jax.text.table import PassageTable
from rag_jax.types import Passage, Question

PASSAGES = PassageTable.from_passages([Passage(f"p{row}", "", f"text {row}") for row in range(4)])
ASKED = [
    Question("a", "who?", ("Ann",), ("p2",)),
    Question("b", "where?", ("Rome", "Oslo"), ("p3", "gone", "p0", "p1")),
    Question("c", "who?", ("Bob",), ("p0", "p2")),
]


def test_a_draw_has_no_passage_twice_and_gives_all_the_same_score():
    rows, scores = RandomSearcher(40).search_texts([f"question {n}" for n in range(50)], 7)
    assert all(len(set(row)) == 7 for row in rows.tolist())
    assert (rows >= 0).all()
    assert (rows < 40).all()
    assert (scores == 0).all()


def test_a_draw_depends_on_the_question_and_the_seed_alone():
    texts = ["who?", "where?", "when?"]
    rows = RandomSearcher(1000, seed=1).search_texts(texts, 5).rows
    np.testing.assert_array_equal(RandomSearcher(1000, seed=1).search_texts(texts[::-1], 5).rows[::-1], rows)
    assert len({tuple(row) for row in rows.tolist()}) == 3
    assert (RandomSearcher(1000, seed=2).search_texts(texts, 5).rows != rows).any(1).all()


def test_every_passage_is_drawn_equally_often():
    rows, _ = RandomSearcher(20).search_texts([f"question {n}" for n in range(4000)], 5)
    counts = np.bincount(rows.ravel(), minlength=20)
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_fewer_passages_than_asked_for_are_all_found():
    rows, scores = RandomSearcher(3).search_texts(["who?"], 5)
    assert sorted(rows[0, :3]) == [0, 1, 2]
    assert (rows[0, 3:] == NO_PASSAGE).all()
    assert (scores[0, 3:] == -np.inf).all()


def test_gold_passages_come_first_and_nothing_else_comes():
    searcher = GoldSearcher(PASSAGES, ASKED)
    assert isinstance(searcher, TextSearcher)
    rows, scores = searcher.search_texts(["where?", "who?"], 4)
    assert rows.tolist() == [[3, 0, 1, NO_PASSAGE], [2, 0, NO_PASSAGE, NO_PASSAGE]]
    assert scores.tolist() == [[0, 0, 0, -np.inf], [0, 0, -np.inf, -np.inf]]
    assert searcher.most == 3
    assert searcher.search_texts(["where?"], 2).rows.tolist() == [[3, 0]]


def test_a_question_without_a_gold_passage_is_named():
    for odd in (Question("lost", "why?"), Question("lost", "why?", ("x",), ("gone",))):
        with pytest.raises(
            ValueError, match=r"question 'lost' has no gold passage in the index \(positive_ids\); leave"
        ):
            GoldSearcher(PASSAGES, [*ASKED, odd])
    with pytest.raises(ValueError, match=r"'lost' .*, nor have 1 others"):
        GoldSearcher(PASSAGES, [odd, Question("more", "when?")])
    with pytest.raises(ValueError, match=r"no gold passage is known for the question 'why\?'"):
        GoldSearcher(PASSAGES, ASKED).search_texts(["why?"], 2)
