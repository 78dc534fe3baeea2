"""Texts to ids by role: limits, special tokens, and texts that come back as they were."""

import numpy as np
import pytest

from rag_jax.text.tokens import (
    SPECIAL_TOKENS,
    Tokenizers,
    load_tokenizer,
    load_tokenizer_folder,
    pad_rows,
    train_tokenizer,
    trim,
)
from rag_jax.types import Passage
from tests.small_tokenizers import write_bpe, write_wordpiece

BOS, PAD, EOS = 0, 1, 2
TEXTS = [
    "Who wrote the Iliad? Homer wrote it.",
    "The Iliad is an epic poem; so is the Odyssey.",
    "Ötzi – naïve café, 北京",
]
LONG = " ".join(["the Iliad is an epic poem"] * 10)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 300)


@pytest.fixture(scope="module")
def tokenizers(tokenizer):
    return Tokenizers.shared(tokenizer, max_question=12, max_passage=20, max_target=8)


def ids(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def test_special_tokens_have_the_first_ids_of_bart(tokenizer):
    assert tokenizer.convert_ids_to_tokens(range(5)) == list(SPECIAL_TOKENS)
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id) == (BOS, PAD, EOS)


def test_same_texts_give_the_same_tokenizer(tokenizer):
    again = train_tokenizer(TEXTS, 300)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_a_name_is_the_same_pieces_everywhere(tokenizer):
    name = ids(tokenizer, "Homer")
    assert ids(tokenizer, "the Homer")[-len(name) :] == name


def test_tokenizer_comes_back_from_its_file(tokenizer, tmp_path):
    tokenizer.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert [ids(again, text) for text in TEXTS] == [ids(tokenizer, text) for text in TEXTS]
    assert again.pad_token_id == PAD
    with pytest.raises(FileNotFoundError, match=r"other\.json: no tokenizer"):
        load_tokenizer(tmp_path / "other.json")


@pytest.mark.parametrize("text", [*TEXTS, "Zürich 2020", "emoji 🙂 and\ttabs", "UPPER lower"])
def test_text_of_a_target_is_the_text(tokenizer, text):
    whole = Tokenizers.shared(tokenizer, max_target=200)
    assert whole.text(whole.targets([text, LONG])[0]) == text


def test_case_of_a_question_reaches_the_generator(tokenizers, tokenizer):
    upper, lower = tokenizers.source_questions(["Who wrote IT?", "who wrote it?"])
    assert tokenizer.decode(upper, skip_special_tokens=True).strip() == "Who wrote IT?"
    assert upper.tolist() != lower.tolist()


def test_question_for_the_retriever_is_framed_and_cut_inside_its_frame(tokenizers, tokenizer):
    short, long = tokenizers.questions(["Homer", LONG])
    assert long.shape == (12,)
    assert [long[0], long[-1]] == [BOS, EOS]
    assert long[1:-1].tolist() == ids(tokenizer, LONG)[:10]
    name = ids(tokenizer, "Homer")
    assert short.tolist() == [BOS, *name, EOS] + [PAD] * (10 - len(name))


def test_question_for_the_generator_has_no_special_tokens(tokenizers, tokenizer):
    short, long = tokenizers.source_questions(["Homer", LONG])
    assert long.tolist() == ids(tokenizer, LONG)[:12]
    assert short[short != PAD].tolist() == ids(tokenizer, "Homer")


def test_passage_for_the_retriever_is_title_then_text_and_ends_whole(tokenizers, tokenizer):
    short, long = tokenizers.passages([Passage("1", "Iliad", "Homer"), Passage("2", "Homer", LONG)])
    assert short[short != PAD].tolist() == [BOS, *ids(tokenizer, "Iliad"), EOS, *ids(tokenizer, "Homer"), EOS]
    title = ids(tokenizer, "Homer")
    assert long.tolist() == [BOS, *title, EOS, *ids(tokenizer, LONG)[: 17 - len(title)], EOS]


def test_passage_for_the_generator_is_title_then_text_without_a_frame(tokenizers, tokenizer):
    short, long = tokenizers.source_passages([Passage("1", "Iliad", "Homer"), Passage("2", "Homer", LONG)])
    assert short[short != PAD].tolist() == [*ids(tokenizer, "Iliad"), EOS, *ids(tokenizer, "Homer")]
    assert long.tolist() == [*ids(tokenizer, "Homer"), EOS, *ids(tokenizer, LONG)][:20]


def test_target_ends_with_the_end_token_even_when_cut(tokenizers, tokenizer):
    short, long, empty = tokenizers.targets(["Homer", LONG, ""])
    assert long.tolist() == [*ids(tokenizer, LONG)[:7], EOS]
    assert short[short != PAD].tolist() == [*ids(tokenizer, "Homer"), EOS]
    assert empty.tolist() == [EOS] + [PAD] * 7


def test_every_role_takes_its_own_tokenizer(tokenizer):
    other = train_tokenizer(["completely different words, zebra quagga"], 290)
    roles = Tokenizers(question=other, passage=other, source=tokenizer, target=tokenizer)
    passage = Passage("1", "Iliad", "Homer wrote it")
    assert roles.questions(["the zebra"])[0].tolist() == [BOS, *ids(other, "the zebra"), EOS]
    assert roles.passages([passage])[0, 1:-1].tolist() == [*ids(other, "Iliad"), EOS, *ids(other, "Homer wrote it")]
    assert roles.source_questions(["the Iliad"])[0].tolist() == ids(tokenizer, "the Iliad")
    assert roles.source_passages([passage])[0].tolist() == [
        *ids(tokenizer, "Iliad"),
        EOS,
        *ids(tokenizer, "Homer wrote it"),
    ]
    assert roles.targets(["the Iliad"])[0].tolist() == [*ids(tokenizer, "the Iliad"), EOS]


def test_every_role_pads_with_its_own_id(tokenizer, tmp_path):
    tower = load_tokenizer_folder(write_wordpiece(tmp_path / "bert"), "bert")
    roles = Tokenizers(question=tower, passage=tower, source=tokenizer, target=tokenizer)
    texts = ["Homer", "who wrote the Iliad"]
    passages = [Passage("1", "Iliad", "Homer"), Passage("2", "Homer", LONG)]
    assert [rows[0, -1] for rows in (roles.questions(texts), roles.passages(passages))] == [0, 0]
    generator = (roles.source_questions(texts), roles.source_passages(passages), roles.targets(texts))
    assert [rows[0, -1] for rows in generator] == [PAD] * 3
    assert not roles.is_shared


def test_a_tokenizer_of_another_kind_of_model_is_refused_with_its_role(tokenizer, tmp_path):
    tower = load_tokenizer_folder(write_wordpiece(tmp_path / "bert"), "bert")
    with pytest.raises(ValueError, match="the source has no bos_token, eos_token"):
        Tokenizers.shared(tower)
    with pytest.raises(ValueError, match="the target has no eos_token"):
        Tokenizers(question=tower, passage=tower, source=tokenizer, target=tower)
    with pytest.raises(TypeError):
        Tokenizers(tower, tower, tokenizer, tokenizer)  # by name only, so that none takes another's place


def test_a_bare_file_has_the_special_tokens_of_bert_when_it_names_them(tmp_path):
    tower = load_tokenizer_folder(write_wordpiece(tmp_path / "bert"), "bert")
    tower.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert (again.cls_token, again.sep_token, again.pad_token_id, again.eos_token) == ("[CLS]", "[SEP]", 0, None)
    assert ids(again, "Who wrote it?") == ids(tower, "Who wrote it?")


def test_no_texts_give_no_rows(tokenizers):
    for rows in (tokenizers.questions([]), tokenizers.source_passages([]), tokenizers.targets([])):
        assert rows.shape == (0, 1)


def test_rows_are_padded_to_the_longest():
    rows = pad_rows([[5], [6, 7, 8], []], PAD)
    assert rows.tolist() == [[5, 1, 1], [6, 7, 8], [1, 1, 1]]
    assert rows.dtype == np.int32


@pytest.mark.parametrize(("used", "have", "expected"), [(3, 10, 4), (4, 10, 4), (5, 10, 8), (9, 10, 12), (0, 10, 4)])
def test_trim_keeps_all_tokens_in_a_multiple(used, have, expected):
    rows = np.full((2, 3, have), PAD, np.int32)
    rows[1, 2, :used] = 7
    cut = trim(rows, PAD, 4)
    assert cut.shape == (2, 3, expected)
    assert (cut == 7).sum() == used
    assert (cut != PAD).sum() == used


def test_a_label_is_one_token_as_it_stands_or_after_a_space(tmp_path):
    shared = Tokenizers.shared(load_tokenizer_folder(write_bpe(tmp_path / "bpe", TEXTS * 9, 400), "bart"))
    (alone,) = shared.labels(["a"])
    (after_a_space,) = shared.labels(["wrote"])
    assert shared.target.convert_ids_to_tokens([alone, after_a_space]) == ["a", "Ġwrote"]
    assert shared.text(np.array([after_a_space])) == "wrote"


def test_a_word_of_several_tokens_is_no_label(tokenizers):
    with pytest.raises(ValueError, match=r"config\.data\.labels: 'zebra' is \d tokens .*choose another word"):
        tokenizers.labels(["is", "zebra"])


def test_a_text_is_counted_as_it_is_read(tokenizers):
    for text in ("", "the Odyssey", "</s><pad>"):
        assert tokenizers.count("source", text) == len(tokenizers.source_texts([text])[0])
