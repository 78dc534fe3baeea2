"""Scores of generated texts, against sacrebleu's and rouge-score's own results and against sums done by hand."""

import math
import re

import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from rag_jax.evaluation import question_bleu
from rag_jax.evaluation.generation import (
    bleu1,
    corpus_bleu1,
    distinct_trigrams,
    is_label,
    majority_class,
    rouge_l,
    words,
)
from rag_jax.evaluation.question_bleu import kinds, q_bleu1

PREDICTIONS = [
    "The lighthouse was built in 1874, of granite.",
    "it is about 12.5 miles (20 km) away",
    "No!",
    "",
    "Ångström's unit & the metre\nare lengths",
    "a well-known song by The Kinks",
    "A B C",
]
REFERENCES = [
    ["It was built of granite in 1874.", "The lighthouse dates from 1874."],
    ["About 12.5 miles", "It's 20 km away."],
    ["no", "No, it isn't."],
    ["something", "nothing"],
    ["The metre and Ångström's unit are lengths.", "units"],
    ["A song by the Kinks", "A well known song"],
    ["x y z", "u v w"],
]


def sacrebleus_unigrams(predictions, references):
    """BLEU-1 from the parts of sacrebleu's usual BLEU-4: precision of single words, brevity penalty."""
    found = sacrebleu.corpus_bleu(predictions, list(zip(*references, strict=True)), lowercase=True)
    return found.bp * found.precisions[0] / 100


def test_bleu1_is_the_unigram_part_of_sacrebleus_bleu():
    assert corpus_bleu1(PREDICTIONS, REFERENCES) == pytest.approx(sacrebleus_unigrams(PREDICTIONS, REFERENCES))
    for prediction, references in zip(PREDICTIONS, REFERENCES, strict=True):
        assert bleu1(prediction, references) == pytest.approx(sacrebleus_unigrams([prediction], [references]))


def test_bleu1_clips_repeats_and_punishes_brevity():
    assert bleu1("the the the the", ["The cat is on the mat"]) == pytest.approx(2 / 4 * math.exp(1 - 6 / 4))
    assert bleu1("the cat", ["the cat", "the cat is on the mat"]) == pytest.approx(1)  # the nearest length counts
    assert bleu1("dog", ["the cat"]) == bleu1("", ["the cat"]) == 0
    assert bleu1("dog", [""]) == 0


def test_bleu1_of_a_corpus_is_no_mean_and_references_may_differ_in_number():
    fewer = [REFERENCES[0], REFERENCES[1][:1], *REFERENCES[2:]]
    repeated = [given if len(given) == 2 else given * 2 for given in fewer]  # the same again changes nothing
    assert corpus_bleu1(PREDICTIONS, fewer) == pytest.approx(sacrebleus_unigrams(PREDICTIONS, repeated))
    singles = [bleu1(*pair) for pair in zip(PREDICTIONS, fewer, strict=True)]
    assert abs(corpus_bleu1(PREDICTIONS, fewer) - sum(singles) / len(singles)) > 0.01


def longest_common_subsequence(a, b):
    rows = [0] * (len(b) + 1)
    for x in a:
        before = 0
        for place, y in enumerate(b, start=1):
            before, rows[place] = rows[place], before + 1 if x == y else max(rows[place], rows[place - 1])
    return rows[-1]


def rouge_by_hand(prediction, reference):
    ours, theirs = (re.findall("[a-z0-9]+", text.lower()) for text in (prediction, reference))
    shared = longest_common_subsequence(ours, theirs)
    return 2 * shared / (len(ours) + len(theirs)) if shared else 0.0


def test_rouge_l_is_rouge_scores_and_the_f1_of_the_longest_common_subsequence():
    theirs = RougeScorer(["rougeL"])
    for prediction, references in zip(PREDICTIONS, REFERENCES, strict=True):
        found = rouge_l(prediction, references)
        assert found == max(theirs.score(reference, prediction)["rougeL"].fmeasure for reference in references)
        assert found == pytest.approx(max(rouge_by_hand(prediction, reference) for reference in references))
    assert rouge_l("the cat sat on a mat", ["a cat on the mat"]) == pytest.approx(2 * 3 / (6 + 5))


def test_words_are_lowered_and_punctuation_is_counted():
    assert words("The U.S., again") == ["the", "u", ".", "s", ".", ",", "again"]
    assert words("12.5 well-known, it's\na") == ["12.5", "well-known", ",", "it's", "a"]


def test_a_label_is_itself_whatever_its_case_and_the_space_around_it():
    assert is_label(" supports\n", ["SUPPORTS"])
    assert not is_label("support", ["SUPPORTS"])
    assert not is_label("SUPPORTS it", ["SUPPORTS"])
    assert is_label("not enough info", ["REFUTES", "NOT ENOUGH INFO"])


def test_the_majority_class_is_the_share_of_the_commonest_label():
    assert majority_class([("SUPPORTS",), ("REFUTES",), ("supports ",)]) == pytest.approx(2 / 3)


def test_distinct_trigrams_are_counted_over_all_texts():
    assert distinct_trigrams(["a b c d", "A b c"]) == pytest.approx(2 / 3)  # abc, bcd; abc again
    assert distinct_trigrams(["a b", "c d"]) == 0  # no trigram runs from one text into the next
    assert distinct_trigrams(["a b c\nd", "x"]) == 1


def test_the_kinds_of_a_questions_words():
    found = kinds(["In", "which", "Year", "did", "the", "Beatles", "split"])
    assert found == {
        "entity": ["in", "year", "beatles"],
        "content": ["split"],
        "question type": ["which", "year"],
        "function": ["in", "did", "the"],
    }
    assert kinds(["Who", "sang"])["entity"] == []  # the question word that a text begins with is no entity


def test_the_best_question_has_words_of_every_kind():
    assert q_bleu1("Who was the sister of Jane?", ["Who was the sister of Jane?"]) == pytest.approx(1)
    # Without a question word, as Jeopardy's clues are, a fifth of the answerability is out of reach.
    clue = "In 1986 Mexico was the first to host this cup twice"
    assert q_bleu1(clue, [clue]) == pytest.approx(0.66 * (1 - 0.20) + 0.34)


def test_q_bleu1_by_hand():
    # Entities: rome; jupiter, rome. Content: temple; god. Types: which god | who. Function: is the of | is the in.
    reference, prediction = "Who is the god Jupiter in Rome?", "Which god is the temple of Rome?"
    entity = 2 * (1 * math.exp(1 - 2)) * (1 / 2) / (math.exp(1 - 2) + 1 / 2)
    function = 2 / 3
    bleu = 4 / 7  # god, is, the, rome
    assert q_bleu1(prediction, [reference]) == pytest.approx(0.66 * (0.41 * entity + 0.03 * function) + 0.34 * bleu)
    assert q_bleu1(prediction, ["nothing alike", reference]) == q_bleu1(prediction, [reference])


def test_q_bleu1_is_that_of_the_authors_script_on_its_own_example(monkeypatch):
    # The script's example, with the weights of its example; it prints 0.765 with ROUGE-L, which is BLEU-1's 0.8 there.
    monkeypatch.setattr(question_bleu, "DELTA", 0.7)
    weights = {"entity": 0.6, "content": 0.1, "question type": 0.2, "function": 0.1}
    monkeypatch.setattr(question_bleu, "WEIGHTS", weights)
    assert q_bleu1("Is this a great question?", ["Is this a good question?"]) == pytest.approx(0.765)


def test_the_weights_are_shares():
    assert sum(question_bleu.WEIGHTS.values()) == pytest.approx(1)
    assert q_bleu1("", ["Who?"]) == q_bleu1("...", ["Who?"]) == 0
