import pytest

from rag_jax.config.schema import METRICS as NAMES
from rag_jax.evaluation.metrics import METRICS, score
from rag_jax.types import Question

QUESTIONS = [
    Question("q1", "where was Obama born", ("Honolulu", "Hawaii")),
    Question("q2", "who wrote it", ("The Beatles",)),
]


def test_the_configuration_knows_the_metrics_that_there_are():
    assert tuple(METRICS) == NAMES


def test_scores_go_by_id_and_not_by_order():
    overall, each = score({"q2": "beatles band", "q1": "Hawaii"}, QUESTIONS, ("em", "f1"))
    assert list(each) == ["q1", "q2"]
    assert each == {"q1": {"em": 1, "f1": 1}, "q2": {"em": 0, "f1": pytest.approx(2 / 3)}}
    assert overall == {"em": 0.5, "f1": pytest.approx(5 / 6)}


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_is_1_for_its_reference_and_0_for_nothing_alike_in_whatever_order(name):
    questions = [Question("a", "?", ("Who is the god in Rome",)), Question("b", "?", ("What is the red of Mars",))]
    if name == "regex":
        questions = [Question("a", "?", ("who .*rome",)), Question("b", "?", ("what.is the red",))]
    right = {"b": "What is the red of Mars", "a": "Who is the god in Rome"}
    overall, each = score(right, questions, (name,), regex=name == "regex")
    assert overall[name] == pytest.approx(1)
    assert [list(scores) for scores in each.values()] == ([[name]] * 2 if name != "distinct_trigrams" else [[], []])
    if name == "distinct_trigrams":
        assert score(dict.fromkeys(right, "x x x x"), questions, (name,)).overall[name] == pytest.approx(1 / 4)
    else:
        swapped = {"a": "nothing alike", "b": "nothing alike"}
        assert score(swapped, questions, (name,), regex=name == "regex").overall[name] == 0


def test_a_newline_in_a_prediction_misaligns_nothing():
    questions = [Question(f"q{i}", "?", (f"answer number {i}",)) for i in range(5)]
    predictions = {q.id: q.answers[0] for q in questions}
    broken = predictions | {"q1": "answer\nnumber 1\n\n", "q3": "\u2028answer\x0bnumber\r\n3"}
    names = ("em", "f1", "bleu1", "qbleu1", "rouge_l", "accuracy")
    expected, got = (score(given, questions, names) for given in (predictions, broken))
    for id_ in ("q0", "q2", "q4"):
        assert got.each[id_] == expected.each[id_]
    for name in names[:-1]:  # white space is white space to all but labels
        assert got.overall[name] == pytest.approx(expected.overall[name]), name
    assert got.overall["accuracy"] == 3 / 5


def test_accuracy_comes_with_what_always_the_same_label_would_get():
    questions = [Question(str(i), "?", (label,)) for i, label in enumerate(("SUPPORTS", "REFUTES", "SUPPORTS"))]
    overall = score({"0": "supports", "1": "supports", "2": "refutes"}, questions, ("accuracy",)).overall
    assert overall == {"accuracy": pytest.approx(1 / 3), "majority_class": pytest.approx(2 / 3)}


def test_exact_match_of_regexes_is_their_match():
    questions = [Question("q1", "when", (r"17\d\d",)), Question("q2", "when", (r"18\d\d",))]
    overall = score({"q1": "1777", "q2": "1777"}, questions, ("em", "regex"), regex=True).overall
    assert overall == {"em": 0.5, "regex": 0.5}


def test_missing_and_extra_ids_are_named():
    with pytest.raises(ValueError, match="no prediction for 'q2'; a prediction for unknown 'q9'"):
        score({"q1": "x", "q9": "y"}, QUESTIONS, ("em",))
    many = [Question(f"q{number}", "", ("a",)) for number in range(9)]
    with pytest.raises(ValueError, match="'q0', 'q1', 'q2' and 6 more"):
        score({}, many, ("em",))


def test_what_cannot_be_scored_is_an_error():
    with pytest.raises(ValueError, match="given twice: 'q1'"):
        score({"q1": "x"}, [QUESTIONS[0], QUESTIONS[0]], ("em",))
    with pytest.raises(ValueError, match="'q3' has no reference answers"):
        score({"q3": "x"}, [Question("q3", "unanswered")], ("em",))
    with pytest.raises(ValueError, match="no questions"):
        score({}, [], ("em",))
