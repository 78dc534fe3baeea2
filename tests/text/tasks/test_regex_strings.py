import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_jax.text.tasks import task_questions
from rag_jax.text.tasks.curated_trec import FLAGS, with_target
from rag_jax.text.tasks.regex_strings import MOST, strings
from rag_jax.types import Question


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("Peru", ("Peru",)),
        (r"New\s?York|NYC", ("New York", "NewYork", "NYC")),
        (r"Sept?(ember)?", ("September", "Sept", "Sepember", "Sep")),
        (
            r"(5,?778|6,?[05]00)\s*K",
            (
                "5,778 K",
                "5,778K",
                "5778 K",
                "5778K",
                "6,000 K",
                "6,000K",
                "6,500 K",
                "6,500K",
                "6000 K",
                "6000K",
                "6500 K",
                "6500K",
            ),
        ),
        (r"\b134\b|56\.7", ("134", "56.7")),
        (r".*Eureka.*", ("Eureka",)),
        (r"6(?:th|)\-?", ("6th-", "6th", "6-", "6")),
        (r"a{2}b{1,3}c+d{,2}", ("aabcd", "aabc")),
        (r"(?P<x>a)\1(?=b)[c]\x64\$", ("acd$",)),
        (r"[^)\]]$|a{b", ("a{b",)),
        (
            r"L[oø]n|196[37]|[1-4\-x]y|[]z].*St. J",
            ("Lon", "Løn", "1963", "1967", "1y", "-y", "xy", "] St. J", "]St. J", "z St. J", "zSt. J"),
        ),
        ("(|a)", ("a",)),
    ],
)
def test_a_regex_stands_for_the_strings_that_a_person_reads(regex, expected):
    assert strings(regex) == expected


def test_a_regex_of_millions_of_strings_gives_a_few():
    assert len(strings("[ab]?(c|d|e)?" * 20 + "x")) <= MOST


@settings(max_examples=300)
@given(st.text(st.sampled_from("ab|()[]?*+{}2,\\.^$:<=sx1"), max_size=12))
def test_whatever_compiles_is_read_without_an_error(regex):
    try:
        re.compile(regex)
    except (re.error, OverflowError):
        return
    assert all(text.strip() == text for text in strings(regex))


def test_a_training_question_gets_a_string_that_its_regex_matches():
    asked = Question("1", "How high?", (r"20\s?,?\s?(32|40)0\s?-?\s?f(ee|oo)t",))
    (target,) = with_target(asked).answers
    assert re.match(asked.answers[0], target, FLAGS)
    # What this one stands for it does not match: better than nothing.
    assert with_target(Question("2", "?", (r"[^ab]c",))).answers == ("c",)


def test_regexes_are_kept_to_evaluate_and_replaced_to_train(tmp_path):
    (tmp_path / "t.tsv").write_text("1\tfactoid\tWhere?\tNew\\s?York\n", "utf-8")
    assert task_questions("curated_trec", tmp_path / "t.tsv")[0].answers == (r"New\s?York",)
    assert task_questions("curated_trec", tmp_path / "t.tsv", training=True)[0].answers == ("New York",)
