import pytest

from rag_jax.evaluation.answers import exact_match, f1, normalise, score, score_each
from rag_jax.types import Question

QUESTIONS = [
    Question("q1", "where was Obama born", ("Honolulu", "Hawaii")),
    Question("q2", "who wrote it", ("The Beatles",)),
]


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


def test_any_reference_answer_counts():
    assert exact_match("hawaii.", ["Honolulu", "Hawaii"])
    assert not exact_match("hawaii island", ["Honolulu", "Hawaii"])
    assert f1("hawaii island", ["Honolulu", "Hawaii"]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("the cat sat", "cat sat down", 0.8),
        ("cat cat", "cat", 2 / 3),  # a repeated word is shared once
        ("dog", "cat", 0.0),
        ("the", "a", 1.0),
        ("", "cat", 0.0),
    ],
)
def test_f1_counts_shared_words(prediction, answer, expected):
    assert f1(prediction, [answer]) == pytest.approx(expected)


def test_regex_answers_match_from_the_start():
    assert exact_match("June 14 , 1777", [r"june\s+14\s*,?\s*1777"], regex=True)
    assert exact_match("1777 AD", ["1777"], regex=True)
    assert not exact_match("in 1777", ["1777"], regex=True)
    with pytest.raises(ValueError, match="no regex"):
        exact_match("x", ["("], regex=True)


def test_scores_go_by_id_and_not_by_order():
    predictions = {"q2": "beatles band", "q1": "Hawaii"}
    assert list(score_each(predictions, QUESTIONS)) == ["q1", "q2"]
    assert score(predictions, QUESTIONS) == {
        "exact_match": 0.5,
        "f1": pytest.approx((1 + 2 / 3) / 2),
        "questions": 2,
    }


def test_set_level_regex_reaches_every_question():
    questions = [Question("q1", "when", (r"17\d\d",)), Question("q2", "when", (r"18\d\d",))]
    scores = score({"q1": "1777", "q2": "1777"}, questions, regex=True)
    assert (scores["exact_match"], scores["f1"]) == (0.5, 0.5)  # words shared with a regex mean nothing


def test_missing_and_extra_ids_are_named():
    with pytest.raises(ValueError, match="no prediction for 'q2'; a prediction for unknown 'q9'"):
        score({"q1": "x", "q9": "y"}, QUESTIONS)
    many = [Question(f"q{number}", "", ("a",)) for number in range(9)]
    with pytest.raises(ValueError, match="'q0', 'q1', 'q2' and 6 more"):
        score({}, many)


def test_what_cannot_be_scored_is_an_error():
    with pytest.raises(ValueError, match="given twice: 'q1'"):
        score({"q1": "x"}, [QUESTIONS[0], QUESTIONS[0]])
    with pytest.raises(ValueError, match="'q3' has no reference answers"):
        score({"q3": "x"}, [Question("q3", "unanswered")])
    with pytest.raises(ValueError, match="no questions"):
        score({}, [])
    with pytest.raises(ValueError, match="sequence of strings"):
        exact_match("H", "Hawaii")
