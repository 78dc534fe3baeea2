"""Laws of the metrics for any text: between 0 and 1, the same in every order, and never against each other."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_jax.evaluation.answers import exact_match, f1, normalise
from rag_jax.evaluation.metrics import METRICS, score
from rag_jax.evaluation.retrieval import answer_recall, gold_recall, has_answer
from rag_jax.types import Passage, Question
from tests.wild_text import texts

words = st.lists(st.sampled_from(["the", "A", "Homer", "homer.", "Iliad", "epic", "epic", "poem"]), max_size=6)
answers = texts | words.map(" ".join)
several = st.lists(answers, min_size=1, max_size=4)
NAMES = tuple(name for name in METRICS if name != "regex")  # no text is one
GOLD = [f"p{number}" for number in range(6)]


@st.composite
def evaluations(draw):
    """The answers and gold passages of questions, a prediction and a ranking for each, all by its id."""
    names = [f"q{n}" for n in range(draw(st.integers(1, 4)))]
    gold, rankings = (st.lists(st.sampled_from(GOLD), min_size=1, max_size=most, unique=True) for most in (3, 5))
    return tuple({name: draw(values) for name in names} for values in (several, gold, answers, rankings))


def made(accepted, gold):
    # Not by the strategy: to check their types beartype draws random numbers of its own.
    return [Question(name, "?", tuple(accepted[name]), tuple(gold[name])) for name in accepted]


@given(text=answers)
def test_normalising_twice_changes_nothing_more(text):
    assert normalise(normalise(text)) == normalise(text)


@given(one=answers, other=answers)
def test_f1_and_exact_match_are_symmetric(one, other):
    assert f1(one, [other]) == f1(other, [one])
    assert exact_match(one, [other]) == exact_match(other, [one])


@given(prediction=answers, references=several)
def test_an_exact_match_has_an_f1_of_one_and_f1_lies_between_0_and_1(prediction, references):
    assert 0 <= f1(prediction, references) <= 1
    if exact_match(prediction, references):
        assert f1(prediction, references) == 1
    assert exact_match(references[0], references)


@given(prediction=answers, references=several, more=answers, data=st.data())
def test_a_further_answer_never_lowers_a_score_and_their_order_is_nothing(prediction, references, more, data):
    assert f1(prediction, [*references, more]) >= f1(prediction, references)
    assert exact_match(prediction, [*references, more]) >= exact_match(prediction, references)
    shuffled = data.draw(st.permutations(references))
    assert f1(prediction, shuffled) == f1(prediction, references)
    assert exact_match(prediction, shuffled) == exact_match(prediction, references)


@given(some=evaluations(), seed=st.integers(0, 9))
def test_scores_do_not_depend_on_the_order_of_questions_or_predictions(some, seed):
    accepted, gold, predictions, _ = some
    questions = made(accepted, gold)
    shuffled, items = list(questions), list(predictions.items())
    random.Random(seed).shuffle(shuffled)
    random.Random(seed + 1).shuffle(items)
    found = score(predictions, questions, NAMES)
    other = score(dict(items), shuffled, NAMES)
    assert other.each == found.each
    assert other.overall == pytest.approx(found.overall)


@given(some=evaluations(), data=st.data())
def test_every_metric_lies_between_0_and_1_whatever_the_texts_and_the_order_of_the_answers(some, data):
    accepted, gold, predictions, _ = some
    found = score(predictions, made(accepted, gold), NAMES)
    for shares in (found.overall, *found.each.values()):
        assert all(0 <= share <= 1 + 1e-9 for share in shares.values())
    mixed = {name: data.draw(st.permutations(given)) for name, given in accepted.items()}
    again = score(predictions, made(mixed, gold), tuple(name for name in NAMES if name != "accuracy"))
    assert again.overall == pytest.approx({name: found.overall[name] for name in again.overall})


@given(before=texts, answer=answers, after=texts)
def test_a_text_that_holds_an_answer_between_spaces_has_it_unless_it_has_no_token(before, answer, after):
    empty = not has_answer(answer, [answer])
    assert has_answer(f"{before} {answer} {after}", [answer]) is not empty
    assert not has_answer(before, [])


@given(text=texts, references=several, data=st.data())
def test_any_answer_will_do_in_any_order(text, references, data):
    expected = any(has_answer(text, [answer]) for answer in references)
    assert has_answer(text, data.draw(st.permutations(references))) is expected


@given(some=evaluations(), data=st.data())
def test_recall_never_falls_with_k_and_ignores_the_order_of_questions(some, data):
    accepted, gold, _, ids = some
    questions = made(accepted, gold)
    ranked = {name: [Passage(id, "", data.draw(answers)) for id in found] for name, found in ids.items()}
    ks = list(range(1, max(map(len, ids.values())) + 1))
    for recall, ranking in ((gold_recall, ids), (answer_recall, ranked)):
        found = recall(ranking, questions, ks)
        assert list(found) == ks
        assert sorted(found.values()) == list(found.values())
        assert all(0 <= share <= 1 for share in found.values())
        assert recall(dict(reversed(ranking.items())), questions[::-1], ks) == found


@given(some=evaluations())
def test_a_gold_passage_put_first_is_found_at_once(some):
    accepted, gold, _, ids = some
    first = {name: [gold[name][0], *(id for id in ids[name] if id != gold[name][0])] for name in ids}
    assert gold_recall(first, made(accepted, gold), [1]) == {1: 1.0}
