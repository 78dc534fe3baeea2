"""An index of passages that somebody brings."""

import numpy as np
import pytest

from rag_jax.index.in_memory import index_in_memory
from rag_jax.types import Passage

THREE = [Passage(id, "", f"text {id}") for id in "abc"]


def test_every_passage_is_found_for_every_text_with_one_score():
    index = index_in_memory(THREE)
    assert index.searches_texts
    found = index.search_texts(["x", "y"], 4)
    assert found.rows.tolist() == [[0, 1, 2, -1]] * 2
    assert found.scores.tolist() == [[0, 0, 0, -np.inf]] * 2
    assert index.search_texts(["x"], 2).rows.tolist() == [[0, 1]]


def test_with_vectors_the_scores_are_inner_products():
    vectors = np.float32([[1, 0], [0, 1], [2, 2]])
    index = index_in_memory(THREE, vectors)
    assert not index.searches_texts
    found = index.search_scored(np.float32([[1, 3]]), 4)
    assert found.rows.tolist() == [[2, 1, 0, -1]]
    assert found.scores.tolist() == [[8, 3, 1, -np.inf]]
    assert index.passages[0] == THREE[0]


@pytest.mark.parametrize(
    ("passages", "vectors", "message"),
    [
        ([], None, "given 0"),
        ([THREE[0]] * 2, None, "two passages have the id 'a'"),
        (THREE, np.zeros((2, 4), np.float32), "3 passages and 2 vectors"),
    ],
)
def test_what_is_no_index_is_refused(passages, vectors, message):
    with pytest.raises(ValueError, match=message):
        index_in_memory(passages, vectors)
