"""Question and passage joined into the generator's source: exact rows, and a plain Python reference on random ones."""

import jax
import numpy as np
import pytest

from rag_jax.rag.shapes import source_width
from rag_jax.rag.source import SPECIALS, bucket, join_source
from rag_jax.text.tokens import Tokenizers, train_tokenizer
from rag_jax.types import Batch, Passage

BOS, PAD, EOS = 0, 1, 2


jitted = jax.jit(join_source, static_argnames=("width", "bos_id", "eos_id", "pad_id"))


def join(question, passages, width):
    rows = np.asarray(question, np.int32), np.asarray(passages, np.int32)
    ids, mask = jitted(*rows, width=width, bos_id=BOS, eos_id=EOS, pad_id=PAD)
    return np.asarray(ids), np.asarray(mask)


def reference(question, passage, width):
    """One pair, by lists."""
    question = [i for i in question if i != PAD]
    passage = [i for i in passage if i != PAD]
    row = [BOS, *question, EOS, *passage[: width - SPECIALS - len(question)], EOS]
    return row + [PAD] * (width - len(row)), [True] * len(row) + [False] * (width - len(row))


def test_rows_are_exactly_question_then_passage():
    ids, mask = join([[5, 6, 7], [8, PAD, PAD]], [[[11, 12, EOS, 13], [14, PAD, PAD, PAD]]] * 2, 10)
    assert ids.tolist() == [
        [[0, 5, 6, 7, 2, 11, 12, 2, 13, 2], [0, 5, 6, 7, 2, 14, 2, 1, 1, 1]],
        [[0, 8, 2, 11, 12, 2, 13, 2, 1, 1], [0, 8, 2, 14, 2, 1, 1, 1, 1, 1]],
    ]
    assert mask.sum(-1).tolist() == [[10, 7], [8, 5]]


def test_a_long_passage_loses_its_tail_and_the_question_nothing():
    ids, mask = join([[5, 6, 7]], [[[11, 12, 13, 14, 15]]], 8)
    assert ids.tolist() == [[[0, 5, 6, 7, 2, 11, 12, 2]]]
    assert mask.all()


def test_a_question_that_fills_the_source_is_kept_whole():
    ids, _ = join([[5, 6, 7]], [[[11, 12, 13]]], 6)
    assert ids.tolist() == [[[0, 5, 6, 7, 2, 2]]]


@pytest.mark.parametrize("passage", [[PAD, PAD], [PAD], []], ids=str)
def test_an_empty_passage_leaves_the_question_alone(passage):
    ids, mask = join([[5, 6, 7]], np.reshape(passage, (1, 1, -1)), 9)
    assert ids.tolist() == [[[0, 5, 6, 7, 2, 2, 1, 1, 1]]]
    assert mask.tolist() == [[[True] * 6 + [False] * 3]]


def test_a_width_that_could_cut_a_question_is_refused():
    with pytest.raises(ValueError, match="3 question tokens and 3 special"):
        join([[5, PAD, PAD]], [[[11]]], 5)


def test_random_rows_equal_the_reference(rng):
    for _ in range(20):
        questions = np.full((3, 6), PAD)
        passages = np.full((3, 2, 9), PAD)
        for b in range(3):
            asked = rng.integers(1, 7)
            questions[b, :asked] = rng.integers(2, 30, asked)
            for k in range(2):
                read = rng.integers(0, 10)
                passages[b, k, :read] = rng.integers(2, 30, read)
        width = int(rng.choice([9, 13, 20]))
        ids, mask = join(questions, passages, width)
        expected = [[reference(q, z, width) for z in both] for q, both in zip(questions, passages, strict=True)]
        assert ids.tolist() == [[row for row, _ in rows] for rows in expected]
        assert mask.tolist() == [[real for _, real in rows] for rows in expected]


@pytest.mark.parametrize(
    ("length", "most", "expected"),
    [(0, None, 32), (1, None, 32), (32, None, 32), (33, None, 64), (65, 80, 80), (64, 64, 64), (10, 24, 24)],
)
def test_bucket(length, most, expected):
    assert bucket(length, 32, most) == expected


def batch_of(asked, read, question_columns=16, passage_columns=90):
    """A batch of two questions, of 2 and `asked` tokens, with passages of up to `read` tokens."""
    question, passages = np.full((2, question_columns), PAD), np.full((2, 2, passage_columns), PAD)
    question[0, :2], question[1, :asked] = 5, 5
    passages[0, 0, :read], passages[1, 1, : read // 2] = 6, 6
    return Batch(None, question, passages, None, None)


def test_source_width_holds_the_longest_pair_in_steps():
    assert source_width(batch_of(asked=4, read=20), PAD, 160) == 32
    assert source_width(batch_of(asked=4, read=27), PAD, 160) == 32  # 2 + 27 + 3
    assert source_width(batch_of(asked=4, read=28), PAD, 160) == 64
    assert source_width(batch_of(asked=4, read=90), PAD, 64) == 64


def test_source_width_never_cuts_a_question():
    width = source_width(batch_of(asked=16, read=90), PAD, 12)
    assert width == 19
    batch = batch_of(asked=16, read=90)
    ids, _ = join(batch.source_question, batch.passages, width)
    assert ids[1, 0].tolist() == [0, *[5] * 16, 2, 2]


def test_the_users_own_question_reaches_the_generator_beside_a_very_long_passage():
    """Its casing and spacing stay, and only the passage is cut, whatever the passage's length."""
    tokenizer = train_tokenizer(["Who wrote the Iliad? Homer wrote it."], 300)
    tokenizers = Tokenizers.shared(tokenizer, max_question=40, max_passage=500)
    asked = "WHO wrote  the Iliad, McX?"
    questions = tokenizers.source_questions([asked])
    for text in ("Homer", "the Iliad is an epic poem " * 200):
        passages = tokenizers.source_passages([Passage("1", "Homer", text)])
        width = source_width(Batch(None, questions, passages[None], None, None), PAD, 48)
        ids, _ = join(questions, passages[None], width)
        said = tokenizer.decode(ids[0, 0].tolist()).split("</s>")
        assert said[0].removeprefix("<s>").strip() == asked
        assert said[2].strip() == text[: len(said[2].strip())]
        assert said[1].strip() == "Homer"
