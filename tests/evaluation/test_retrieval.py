import sys
import unicodedata

import pytest

from rag_jax.evaluation import retrieval
from rag_jax.evaluation.retrieval import answer_recall, gold_recall, has_answer
from rag_jax.types import Passage, Question


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("Obama was born in Honolulu, Hawaii.", "honolulu", True),
        ("Obama was born in Honolulu, Hawaii.", "Honolulu Hawaii", False),  # the comma is a token
        ("he would care", "car", False),
        ("in the U.S. army", "u.s.", True),
        ("in the US army", "u.s.", False),
        ("Émile Zola", "e\u0301mile", True),  # both sides are decomposed
        ("Emile Zola", "émile", False),  # but an accent is not removed
        ("the end of it", "end  of\nit", True),
        ("the end", "end", True),
        ("ΑΣ.Γ", "ας", True),  # each token is lowered alone: this sigma ends one
        ("anything", "", False),
        ("", "x", False),
    ],
)
def test_an_answer_is_a_run_of_tokens(text, answer, expected):
    assert has_answer(text, [answer]) is expected


def test_any_answer_will_do():
    assert has_answer("born in Hawaii", ["Honolulu", "Hawaii"])
    assert not has_answer("born in Kenya", ["Honolulu", "Hawaii"])


def test_regex_answers_are_searched_for():
    assert has_answer("on June 14, 1777", [r"june\s+14"], regex=True)
    assert not has_answer("on June 14, 1777", [r"june\s+14"])
    assert has_answer("n\u00e9", ["n.\u0301"], regex=True)  # the text is decomposed for them too
    assert has_answer("höher als die Sněžka", [r"Sn\ě\žka"], regex=True)  # and so are they, escapes and all
    assert has_answer("a\\é", [r"a\\é"], regex=True)  # an escaped backslash stays one
    assert [has_answer(text, ["Qu[eé]bec"], regex=True) for text in ("Quebec", "Québec")] == [True, False]


def test_tokens_are_those_of_dprs_pattern():
    regex = pytest.importorskip("regex")
    theirs = regex.compile(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", regex.IGNORECASE | regex.UNICODE | regex.MULTILINE)
    # Every third character, of those that this Python's Unicode tables know.
    characters = [chr(code) for code in range(0, sys.maxunicode + 1, 3) if unicodedata.category(chr(code)) != "Cn"]
    text = "".join(f"a{character}{character}b " for character in characters)
    assert retrieval._token_pattern().findall(text) == [match.group() for match in theirs.finditer(text)]


QUESTIONS = [
    Question("q1", "where was Obama born", ("Hawaii",), positive_ids=("p1", "p7")),
    Question("q2", "where was Merkel born", ("Hamburg",), positive_ids=("p2",)),
]
PASSAGES = {
    "p1": Passage("p1", "Obama", "Obama was born in Hawaii."),
    "p2": Passage("p2", "Merkel", "Merkel was born in Hamburg."),
    "p3": Passage("p3", "Hamburg", "A port on the Elbe."),
    "p4": Passage("p4", "Port", "Hamburg has a port."),
}
RANKED = {"q2": ["p3", "p4", "p2"], "q1": ["p1", "p2", "p3"]}


def test_answer_recall_reads_texts_and_not_titles():
    ranked = {id_: [PASSAGES[name] for name in names] for id_, names in RANKED.items()}
    assert answer_recall(ranked, QUESTIONS, [1, 2, 3]) == {1: 0.5, 2: 1.0, 3: 1.0}


def test_gold_recall_asks_for_a_known_passage():
    assert gold_recall(RANKED, QUESTIONS, [1, 2, 3]) == {1: 0.5, 2: 0.5, 3: 1.0}


def test_what_was_never_retrieved_has_no_recall():
    for ks in ([4], [0]):
        with pytest.raises(ValueError, match="the longest ranking holds 3"):
            gold_recall(RANKED, QUESTIONS, ks)
    shorter = RANKED | {"q1": ["p3"]}  # one short ranking is a miss beyond its end, no error
    assert gold_recall(shorter, QUESTIONS, [3]) == {3: 0.5}


def test_ids_have_to_agree():
    with pytest.raises(ValueError, match="no ranking for 'q2'"):
        gold_recall({"q1": ["p1"]}, QUESTIONS, [1])
    with pytest.raises(ValueError, match="'q3' has no positive_ids"):
        gold_recall({"q3": ["p1"]}, [Question("q3", "x", ("y",))], [1])
