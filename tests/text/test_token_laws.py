"""Laws of the tokenizers' edge for any text: its own tokens and no special ones, cut where the limit says, and back."""

import dataclasses
import unicodedata

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_jax.rag.source import join_source
from rag_jax.text.hf_compat_input import hf_compat_sources, joined_text
from rag_jax.text.tokens import Tokenizers, load_tokenizer_folder, pad_rows, train_tokenizer, trim
from rag_jax.types import Passage
from tests.small_tokenizers import TEXTS, write_wordpiece
from tests.wild_text import assigned, texts

LIMITS = {"max_question": 24, "max_passage": 48, "max_target": 16}
passages = st.builds(Passage, st.just("1"), texts, texts)
jitted = jax.jit(join_source, static_argnames=("width", "bos_id", "eos_id", "pad_id"))


@pytest.fixture(scope="module")
def bpe():
    return train_tokenizer(TEXTS, 300)


@pytest.fixture(scope="module")
def roles(bpe, tmp_path_factory):
    tower = load_tokenizer_folder(write_wordpiece(tmp_path_factory.mktemp("tokenizer") / "bert"), "bert")
    return Tokenizers(question=tower, passage=tower, source=bpe, target=bpe, **LIMITS)


@pytest.fixture(scope="module")
def whole(roles):
    """The same without limits that any text here reaches."""
    return dataclasses.replace(roles, **dict.fromkeys(LIMITS, 10_000))


def real(row, tokenizer):
    """A row without the padding at its end."""
    used = np.flatnonzero(row != tokenizer.pad_token_id)
    return row[: used[-1] + 1].tolist() if used.size else []


@given(text=texts)
def test_no_text_holds_a_special_token_of_the_generator(whole, bpe, text):
    (row,) = whole.source_questions([text])
    assert not set(real(row, bpe)) & set(bpe.all_special_ids)


@given(text=texts)
def test_a_question_for_the_tower_has_its_frame_and_no_other_special_token(roles, text):
    tower = roles.question
    (row,) = roles.questions([text])
    first, *inside, last = real(row, tower)
    assert (first, last) == (tower.cls_token_id, tower.sep_token_id)
    assert not set(inside) & {tower.cls_token_id, tower.sep_token_id, tower.pad_token_id, tower.mask_token_id}
    assert len(row) <= roles.max_question


@given(text=texts)
def test_a_long_question_loses_its_end_and_the_user_is_told(roles, whole, text):
    (expected,) = whole.source_questions([text])
    expected = real(expected, roles.source)
    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr("rag_jax.text.tokens.logging.Logger.warning", lambda self, message, *values: said.append(values))
        (row,) = roles.source_questions([text])
    assert real(row, roles.source) == expected[: roles.max_question]
    assert bool(said) == (len(expected) > roles.max_question)


@given(passage=passages)
def test_passages_are_title_then_text_and_only_their_tail_is_cut(roles, whole, passage):
    tower, bpe = roles.passage, roles.source
    title, text = (real(row, tower)[1:-1] for row in whole.questions([passage.title, passage.text]))
    expected = [tower.cls_token_id, *title, tower.sep_token_id, *text][: roles.max_passage - 1]
    assert real(roles.passages([passage])[0], tower) == [*expected, tower.sep_token_id]
    title, text = (real(row, bpe) for row in whole.source_questions([passage.title, passage.text]))
    expected = [*title, bpe.eos_token_id, *text][: roles.max_passage]
    assert real(roles.source_passages([passage])[0], bpe) == expected


@given(text=texts.filter(assigned))
def test_a_target_is_written_back_as_the_text_it_was(whole, bpe, text):
    (row,) = whole.targets([text])
    assert real(row, bpe)[-1] == bpe.eos_token_id
    assert whole.text(row) == unicodedata.normalize("NFC", text).strip()


@given(text=texts)
def test_a_cut_target_still_ends_with_the_end_token(roles, whole, bpe, text):
    row, expected = (real(some.targets([text])[0], bpe) for some in (roles, whole))
    assert row == [*expected[:-1][: roles.max_target - 1], bpe.eos_token_id]


@given(some=st.lists(texts, min_size=1, max_size=4))
def test_a_text_has_the_same_ids_whatever_stands_beside_it(roles, some):
    tower, bpe = roles.question, roles.source
    for encode, tokenizer in ((roles.questions, tower), (roles.source_questions, bpe), (roles.targets, bpe)):
        together = [real(row, tokenizer) for row in encode(some)]
        assert together == [real(encode([text])[0], tokenizer) for text in some]


@given(rows=st.lists(st.lists(st.integers(2, 9), max_size=20), min_size=1, max_size=4), multiple=st.integers(1, 9))
def test_trimming_takes_padding_and_nothing_else(rows, multiple):
    padded = pad_rows(rows, 1)
    trimmed = trim(padded, 1, multiple)
    width = max(map(len, rows))
    assert trimmed.shape[1] == multiple * max(1, -(-width // multiple))
    assert [[token for token in row if token != 1] for row in trimmed.tolist()] == rows


@given(text=texts, passage=passages, most=st.sampled_from([32, 64]))
def test_the_source_holds_the_whole_question_and_then_the_passages_beginning(roles, text, passage, most):
    bpe = roles.source
    question, found = roles.source_questions([text]), roles.source_passages([passage])
    asked, told = real(question[0], bpe), real(found[0], bpe)
    special = {"bos_id": bpe.bos_token_id, "eos_id": bpe.eos_token_id, "pad_id": bpe.pad_token_id}
    # Two widths of everything: each further one would be another program.
    columns = ((0, 0), (0, roles.max_question - question.shape[1]))
    question = np.pad(question, columns, constant_values=bpe.pad_token_id)
    found = np.pad(found, ((0, 0), (0, roles.max_passage - found.shape[1])), constant_values=bpe.pad_token_id)
    ids, mask = jitted(question, found[None], width=most, **special)
    row = np.asarray(ids)[0, 0][np.asarray(mask)[0, 0]].tolist()
    room = most - 3 - len(asked)
    assert row == [bpe.bos_token_id, *asked, bpe.eos_token_id, *told[:room], bpe.eos_token_id]


@given(text=texts, passage=st.none() | passages, longest=st.sampled_from([3, 20, 200]))
def test_a_source_for_hugging_face_is_the_joined_text_in_its_frame(roles, whole, text, passage, longest):
    bpe, tower = roles.source, roles.question
    question = roles.questions([text])
    (row,) = hf_compat_sources(roles, question, [[passage]], longest)[0]
    asked = tower.decode(question[0].tolist(), skip_special_tokens=True)
    joined = joined_text(asked, passage or Passage("", "", ""))
    (expected,) = whole.source_questions([joined])
    expected = real(expected, bpe)[: longest - 2]
    assert len(row) == longest
    assert real(row, bpe) == [bpe.bos_token_id, *expected, bpe.eos_token_id]


@pytest.mark.parametrize("encode", ["questions", "source_questions", "targets"])
def test_what_is_no_unicode_is_one_clear_error(roles, encode):
    with pytest.raises(ValueError, match=r"text 1 of 3 is not Unicode: 'caf\\udce9'"):
        getattr(roles, encode)(["good", "caf\udce9", "good"])


@pytest.mark.parametrize("limits", [{"max_question": 1}, {"max_passage": 2}, {"max_target": 0}, {"max_question": -5}])
def test_limits_without_room_for_the_special_tokens_are_refused(bpe, limits):
    with pytest.raises(ValueError, match="leaves no room beside the special tokens"):
        Tokenizers.shared(bpe, **limits)


def test_a_megabyte_is_cut_to_the_limit(roles):
    long = Passage("1", "t" * 1000, "the Iliad " * 100_000)
    assert roles.passages([long]).shape == (1, roles.max_passage)
    assert roles.source_passages([long, Passage("2", "", "")]).shape == (2, roles.max_passage)
    assert roles.source_questions(["why " * 2500]).shape == (1, roles.max_question)
