import json
import math

import pytest

from rag_jax.evaluation.figures import figures_of, posterior_entropy, retrieval_figures
from rag_jax.evaluation.run import write_predictions
from rag_jax.evaluation.tables import print_results
from rag_jax.types import Answer, Passage, Question, Source

PASSAGES = [Passage("1", "France", "the capital is Paris"), Passage("2", "Italy", "nothing")]
QUESTIONS = [Question(str(i), "?", (a,), ("1",)) for i, a in enumerate(("Paris", "Rome", "Oslo"))]


def answered(*texts, posterior=(0.5, 0.5)):
    sources = tuple(Source(p, 0.5, share) for p, share in zip(PASSAGES, posterior, strict=True))
    return [Answer(text, 0.0, sources) for text in texts]


def test_figures_count_right_answers_that_no_passage_holds():
    figures, scores = figures_of(QUESTIONS, answered("Paris", "Rome", "wrong"), 2)
    assert figures["em"] == pytest.approx(2 / 3)
    assert figures["questions"] == 3
    assert figures["recall_at_1"] == pytest.approx(1 / 3)
    assert figures["gold_recall_at_1"] == 1
    assert figures["right_without_support"] == 0.5
    assert figures["posterior_entropy"] == pytest.approx(math.log(2))
    assert [one["answer_rank"] for one in scores.values()] == [1, None, None]
    assert scores["1"] == {
        "em": 1,
        "f1": 1,
        "answer_rank": None,
        "gold_rank": 1,
        "posterior_entropy": pytest.approx(math.log(2)),
    }


def test_pages_are_counted_where_they_are_known():
    questions = QUESTIONS[:2]
    gold = {"0": frozenset({"Italy"}), "1": frozenset({"France"})}
    figures, scores = figures_of(questions, answered("x", "x"), 2, gold=gold)
    assert (figures["r_precision"], figures["page_recall_at_1"], figures["page_recall_at_2"]) == (0.5, 0.5, 1)
    assert (scores["0"]["page_rank"], scores["0"]["r_precision"]) == (2, 0)


def test_closed_book_has_no_figures_of_retrieval():
    figures, scores = figures_of(QUESTIONS, [Answer("Oslo", 0.0, ())] * 3, 0, ("em", "rouge_l"))
    assert figures == {"em": pytest.approx(1 / 3), "rouge_l": pytest.approx(1 / 3), "questions": 3}
    assert scores["2"] == {"em": 1, "rouge_l": 1}


def test_regex_answers_are_matched_in_answers_and_in_passages():
    questions = [Question("a", "?", ("par.s|berlin",)), Question("b", "?", ("n.{6}",))]
    figures, scores = figures_of(questions, answered("Paris, the city", "Nothing"), 2, ("em", "regex"), regex=True)
    assert (figures["em"], figures["regex"], figures["right_without_support"]) == (1, 1, 0)
    assert (figures["recall_at_1"], figures["recall_at_2"]) == (0.5, 1)
    assert [one["answer_rank"] for one in scores.values()] == [1, 2]


def test_retrieval_has_figures_without_any_answer():
    ranked = {"1": PASSAGES, "0": PASSAGES[::-1]}
    figures = retrieval_figures(ranked, QUESTIONS[:2], 2).overall
    assert figures == {"recall_at_1": 0, "recall_at_2": 0.5, "gold_recall_at_1": 0.5, "gold_recall_at_2": 1}


def test_posterior_entropy_is_of_the_answer_or_the_mean_of_its_tokens():
    certain = answered("x", posterior=(1.0, 0.0))[0]
    assert posterior_entropy(certain.sources) == 0
    assert math.copysign(1, posterior_entropy(certain.sources)) == 1  # printed as 0.000, not as -0.000
    assert posterior_entropy(()) == 0
    # One token from one passage, another from either: RAG-Token's mean posterior (.75, .25) would say .562.
    by_token = [Source(PASSAGES[0], 0.5, 0.75, (1.0, 0.5)), Source(PASSAGES[1], 0.5, 0.25, (0.0, 0.5))]
    assert posterior_entropy(by_token) == pytest.approx(math.log(2) / 2)


def test_a_newline_in_a_prediction_does_not_break_the_file_of_predictions(tmp_path):
    answers = answered("Paris", "Ro\nme\u2028\r", "Oslo")
    scores = figures_of(QUESTIONS, answers, 2).each
    write_predictions(tmp_path / "predictions.jsonl", QUESTIONS, answers, scores)
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text("utf-8").splitlines()]
    assert [line["id"] for line in lines] == ["0", "1", "2"]
    assert [line["prediction"] for line in lines] == [answer.text for answer in answers]
    assert [line["scores"]["em"] for line in lines] == [1, 0, 1]
    assert lines[0]["scores"] == scores["0"]


def test_retrieval_has_a_table_of_its_own(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    figures = {"em": 0.5, "questions": 2, "recall_at_1": 0.25, "posterior_entropy": 1.5}
    print_results({"closed": {"em": 0.125, "questions": 2}, "rag": figures})
    answers, retrieval = capsys.readouterr().out.split("Retrieval")
    assert "0.125" in answers
    assert "recall" not in answers
    assert "0.250" in retrieval
    assert "closed" not in retrieval
