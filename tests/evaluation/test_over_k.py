import pytest

from rag_jax.evaluation.over_k import em_points, headline, recall_over_k
from rag_jax.types import Passage, Question

PASSAGES = [Passage(str(n), "", text) for n, text in enumerate(("a port", "Ostia", "Rome", "Oslo"))]
QUESTIONS = [
    Question("1", "?", ("Ostia",), ("1",)),
    Question("2", "?", ("Rome",)),
    Question("3", "?", (), ("3",)),
]
RANKED = [[PASSAGES[0], PASSAGES[1]], [PASSAGES[2]], [PASSAGES[0], PASSAGES[2], PASSAGES[3]]]


def test_recall_counts_only_questions_that_know_what_to_find():
    assert recall_over_k(QUESTIONS, RANKED) == [
        {"k": 1, "answer": 0.5, "gold": 0},
        {"k": 2, "answer": 1, "gold": 0.5},
        {"k": 3, "answer": 1, "gold": 1},
    ]
    assert recall_over_k(QUESTIONS[1:2], RANKED[1:2]) == [{"k": 1, "answer": 1}]


def test_recall_stays_as_it_is_past_the_longest_ranking():
    assert [row["answer"] for row in recall_over_k(QUESTIONS, RANKED, ks=[1, 2, 50])] == [0.5, 1, 1]
    assert recall_over_k(QUESTIONS, [[], [], []]) == []


def test_regex_answers_are_searched_for_as_such():
    question = [Question("1", "?", ("Ost.a",))]
    assert recall_over_k(question, RANKED[:1], [2], regex=True) == [{"k": 2, "answer": 1}]
    assert recall_over_k(question, RANKED[:1], [2]) == [{"k": 2, "answer": 0}]


def test_labels_are_looked_for_in_no_passage():
    assert recall_over_k(QUESTIONS[:1], RANKED[:1], labels=True) == [{"k": 1, "gold": 0}, {"k": 2, "gold": 1}]
    assert recall_over_k(QUESTIONS[1:2], RANKED[1:2], labels=True) == []


def test_a_run_has_a_series_for_each_decoding_that_it_was_asked_with():
    rows = [{"k": k, "decoding": d, "em": 0.1 * k} for k in (1, 2) for d in ("thorough", "fast")]
    found = em_points({"a": {"em": 0.3, "em_over_k": rows}, "b": {"em": 0, "em_over_k": rows[::2]}, "c": {"em": 1}})
    assert list(found) == ["a, thorough", "a, fast", "b"]
    assert found["b"] == [(1, pytest.approx(0.1)), (2, pytest.approx(0.2))]
    assert headline({"accuracy": 0.5, "em": 0.1}) == "accuracy"
