import pytest

from rag_jax.rag.model import load_tokenizers
from rag_jax.training.examples import Examples
from rag_jax.types import Question

QUESTIONS = [
    Question("a", "capital of Peru", ("Lima", "City of Kings")),
    Question("b", "capital of Chile", ("Santiago",)),
]
LABELS = ("something", "Nothing")


@pytest.fixture(scope="module")
def tokenizers():
    return load_tokenizers("world", max_question=16, max_passage=32, max_target=12)


def answers(examples, tokenizers):
    return [tokenizers.text(row[row != tokenizers.target.pad_token_id]) for row in examples.target]


def test_the_first_answer_is_trained_on_or_each_in_a_pair(tokenizers):
    first = Examples.tokenize(QUESTIONS, tokenizers)
    assert answers(first, tokenizers) == ["Lima", "Santiago"]
    each = Examples.tokenize(QUESTIONS, tokenizers, each=True)
    assert answers(each, tokenizers) == ["Lima", "City of Kings", "Santiago"]
    assert each.texts == ("capital of Peru", "capital of Peru", "capital of Chile")
    assert (each.question[0] == each.question[1]).all()
    assert (each.source_question[0] == each.source_question[1]).all()


def test_a_label_is_one_token_without_an_end_token(tokenizers):
    claims = [Question("a", "Peru is in Asia", ("Nothing",)), Question("b", "Peru has a coast", ("something",))]
    examples = Examples.tokenize(claims, tokenizers, labels=LABELS)
    assert examples.target.shape == (2, 1)
    assert examples.target[:, 0].tolist() == list(tokenizers.labels(LABELS))[::-1]
    with pytest.raises(ValueError, match=r"question 'a': 'Nothing' is none of config\.data\.labels, something, of"):
        Examples.tokenize(claims, tokenizers, labels=("something", "of"))


def test_a_question_without_answers_is_refused_either_way(tokenizers):
    for each in (False, True):
        with pytest.raises(ValueError, match="question 'x' has no answer to train on"):
            Examples.tokenize([Question("x", "why")], tokenizers, each)
