"""Retrieval by pages: KILT's definitions, on rankings whose figures were worked out by hand."""

import pytest

from rag_jax.evaluation.pages import gold_pages, page_ranks, r_precisions
from rag_jax.text.table import PassageTable
from rag_jax.types import Passage, Question


def found(*titles):
    return [Passage(f"{title}-{place}", title, "") for place, title in enumerate(titles)]


@pytest.mark.parametrize(
    ("gold", "titles", "precision", "rank"),
    [
        ("A", "ABC", 1, 1),
        ("A", "BAC", 0, 2),
        ("A", "BBBA", 0, 2),  # three passages of one page are one page
        ("A", "BC", 0, None),
        ("AB", "BA", 1, 1),
        ("AB", "ACB", 1 / 2, 2),  # the set is whole at its last page, and takes one place
        ("AB", "CDAEB", 0, 4),
        ("AB", "AAAC", 1 / 2, None),
        ("ABC", "BDAEC", 2 / 3, 3),
        ("A", "", 0, None),
    ],
)
def test_r_precision_and_the_rank_of_the_whole_set(gold, titles, precision, rank):
    ranked, wanted = {"q": found(*titles)}, {"q": frozenset(gold)}
    assert r_precisions(ranked, wanted) == {"q": pytest.approx(precision)}
    assert page_ranks(ranked, wanted) == {"q": rank}


def test_gold_pages_are_the_titles_of_the_positives():
    passages = [Passage("1", "Rome", "a"), Passage("2", "Rome", "b"), Passage("3", "Po", "c"), Passage("4", "", "d")]
    questions = [
        Question("q1", "?", positive_ids=("1", "2", "3")),
        Question("q2", "?", positive_ids=("4",)),  # no title: a page by itself
        Question("q3", "?", positive_ids=("elsewhere", "3")),  # not there, yet asked for
        Question("q4", "?"),
    ]
    gold = gold_pages(PassageTable.from_passages(passages), questions)
    assert gold == {"q1": {"Rome", "Po"}, "q2": {"4"}, "q3": {"elsewhere", "Po"}}
    assert page_ranks(dict.fromkeys(gold, passages), gold) == {"q1": 1, "q2": 3, "q3": None}
