import csv
import os
import pathlib
import re

import pytest

from rag_jax.evaluation.answers import compile_answer, exact_match, f1, normalise, regex_match
from rag_jax.evaluation.retrieval import has_answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  U.S.A.!", "usa"),
        ("A theory of an apple", "theory of apple"),
        ("the-end", "theend"),  # punctuation goes before articles are looked for
        ("\tÉmile\u00a0Zola\n", "émile zola"),
        ("«Paris»", "«paris»"),  # as published: only ASCII punctuation is removed
        ("e\u0301", "e\u0301"),  # as published: Unicode is not normalised
        ("The", ""),
    ],
)
def test_normalisation_is_the_published_rule(text, expected):
    assert normalise(text) == expected


# What SQuAD's script gives for (prediction, references): exact match, F1. Worked out by hand.
PUBLISHED_RULE = [
    ("Paris", ["Paris"], 1, 1),
    ("PARIS!", ["paris"], 1, 1),
    ("yes", ["no"], 0, 0),
    # articles, wherever they stand, and only as whole words
    ("the Beatles", ["Beatles"], 1, 1),
    ("a cat", ["an cat"], 1, 1),
    ("the the cat", ["cat the"], 1, 1),
    ("An American Tail", ["American Tail"], 1, 1),
    ("A. A. Milne", ["Milne"], 1, 1),
    ("theatre", ["the atre"], 0, 0),
    ("Theodore", ["the odore"], 0, 0),
    ("anna", ["an na"], 0, 0),
    # nothing left of one side or of both
    ("an", ["the"], 1, 1),
    ("The The", ["the"], 1, 1),
    ("...", [""], 1, 1),
    ("  ", ["the"], 1, 1),
    ("the", ["cat"], 0, 0),
    ("", ["cat"], 0, 0),
    ("cat", ["!"], 0, 0),
    # punctuation goes without leaving a space
    ("U.S.A.", ["USA"], 1, 1),
    ("U. S.", ["US"], 0, 0),
    ("rock 'n' roll", ["rock n roll"], 1, 1),
    ("rock-and-roll", ["rock and roll"], 0, 0),
    ("well-known", ["wellknown"], 1, 1),
    ("1,000", ["1000"], 1, 1),
    ("3.14", ["314"], 1, 1),
    ("50%", ["50"], 1, 1),
    ("$5 million", ["5 million"], 1, 1),
    ("it's", ["its"], 1, 1),
    ("@home_page", ["homepage"], 1, 1),
    ("C#", ["C++"], 1, 1),
    ("1 + 1 = 2", ["1 1 2"], 1, 1),
    ("Dr. No", ["Dr No"], 1, 1),
    # only ASCII's
    ("£5 million", ["5 million"], 0, 1 / 2),
    ("it’s", ["its"], 0, 0),
    ("“Paris”", ["Paris"], 0, 0),
    ("Paris—France", ["Paris France"], 0, 0),
    # Unicode: the case is lowered, nothing is decomposed, folded or transcribed
    ("BEYONCÉ", ["beyoncé"], 1, 1),
    ("Beyoncé", ["Beyonce"], 0, 0),
    ("Beyonce\u0301", ["Beyonc\u00e9"], 0, 0),
    ("Straße", ["STRASSE"], 0, 0),
    ("İzmir", ["izmir"], 0, 0),
    ("ΟΔΟΣ", ["οδο\u03c2"], 1, 1),
    ("東京", ["東京"], 1, 1),
    ("東京 都", ["東京"], 0, 2 / 3),
    # any white space is one space
    ("New\u00a0York", ["New York"], 1, 1),
    ("New\nYork", ["New York"], 1, 1),
    ("\t New   York ", ["New York"], 1, 1),
    # overlap: order does not matter, a repeated word is shared once
    ("New York City", ["New York"], 0, 4 / 5),
    ("York New", ["New York"], 0, 1),
    ("July 20, 1969", ["20 July 1969"], 0, 1),
    ("in 1969", ["1969"], 0, 2 / 3),
    ("the 20th of July", ["20th July"], 0, 4 / 5),
    ("a b c", ["b c d"], 0, 4 / 5),
    ("cat cat cat", ["cat"], 0, 1 / 2),
    ("cat cat", ["cat cat dog"], 0, 4 / 5),
    # the best of several references
    ("New York", ["Boston", "New York City", "New York"], 1, 1),
    ("New York state", ["Boston", "New York City", "York"], 0, 2 / 3),
    ("Dr No", ["Goldfinger", "the Dr. No film"], 0, 4 / 5),
    ("hawaii island", ["Honolulu", "Hawaii"], 0, 2 / 3),
]


def test_there_are_cases_enough():
    assert len(PUBLISHED_RULE) >= 50
    assert len({case[0] for case in PUBLISHED_RULE}) >= 50


@pytest.mark.parametrize(("prediction", "references", "matched", "overlap"), PUBLISHED_RULE)
def test_exact_match_and_f1_are_the_published_ones(prediction, references, matched, overlap):
    assert exact_match(prediction, references) == bool(matched)
    assert f1(prediction, references) == pytest.approx(overlap)


def test_references_are_a_sequence_with_something_in_it():
    for scored in (exact_match, f1, regex_match):
        with pytest.raises(ValueError, match="sequence of strings"):
            scored("H", "Hawaii")
        with pytest.raises(ValueError, match="no reference answers"):
            scored("H", [])


# Answers of CuratedTREC's kind: alternatives, optional parts, character classes, escapes, anchors, doubled parts.
REGEXES = [
    ("June 14 , 1777", r"june\s+14\s*,?\s*1777", True),
    ("1777 AD", "1777", True),  # a match need not reach the end
    ("in 1777", "1777", False),  # but begins at the beginning
    ("8,850 m", r"8,?8[45]\d\s*-?\s*m|29,?0\d\d\s*f(ee|oo)?t", True),
    ("29 031 feet", r"8,?8[45]\d\s*-?\s*m|29,?0\d\d\s*f(ee|oo)?t", False),
    ("Quebec", "Qu[eé]bec", True),
    ("QUÉBEC", "Qu[eé]bec", True),  # case is ignored, also of letters with accents
    ("twelve", r"\b12\b|twelve", True),
    ("120", r"\b12\b|twelve", False),
    ("Marie and Pierre Curie", "((Marie|Pierre).*){2}", True),
    ("Marie Curie", "((Marie|Pierre).*){2}", False),
    ("it is\nEureka", "^Eureka", False),  # ^ is at lines, the match still begins where the text does
    ("Eureka\nit is", "Eureka$", True),  # and so is $
    ("10,000 years", r"10\,000", True),  # an escaped comma is a comma
]


@pytest.mark.parametrize(("prediction", "answer", "expected"), REGEXES)
def test_regex_answers_match_from_the_start(prediction, answer, expected):
    assert regex_match(prediction, [answer]) is expected
    assert regex_match(prediction, ["no such thing", answer]) is expected


def test_an_answer_that_is_no_regex_is_named():
    with pytest.raises(ValueError, match=r"answer '\(' is no regex: missing \)"):
        regex_match("x", ["("])


@pytest.mark.skipif("RAG_JAX_CURATED_TREC" not in os.environ, reason="RAG_JAX_CURATED_TREC names no folder to read")
def test_every_answer_of_the_real_curated_trec_is_a_regex_that_matches_its_plain_alternatives():
    rows = []
    for path in sorted(pathlib.Path(os.environ["RAG_JAX_CURATED_TREC"]).glob("*.tsv")):
        with path.open(encoding="utf-8", newline="") as lines:
            rows += list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(rows) == 2470
    plain = [(text, row[3]) for row in rows for text in row[3].split("|") if re.fullmatch(r"\w[\w ]*\w", text)]
    assert len(plain) > 1000
    for row in rows:
        compile_answer(row[3])
        has_answer("some passage", [row[3]], regex=True)
    # A bar inside brackets cuts no alternative off: such a piece may not match.
    missed = [(text, answer) for text, answer in plain if not regex_match(text, [answer])]
    assert all(re.search(r"[(\[].*\|", answer) for _, answer in missed), missed
