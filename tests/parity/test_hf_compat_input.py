"""The joined text and its ids, bit for bit as transformers' RagRetriever makes them."""

import numpy as np
import pytest
from transformers import BartConfig, DPRConfig, RagConfig, RagRetriever

from rag_jax.text.hf_compat_input import HfFormat, hf_compat_sources, joined_text
from rag_jax.text.tokens import Tokenizers, load_tokenizer_folder
from rag_jax.types import Passage
from tests.small_tokenizers import write_bpe, write_wordpiece

QUESTIONS = ["Who wrote  the ILIAD?", "What's  PERU's capital"]
PASSAGES = [
    [Passage("0", '"Iliad"', "Homer wrote it."), Passage("1", '"Odd" one', 'He said "so"  and   wrote')],
    [Passage("2", "", "Paris / Lima"), Passage("3", '"', "the Iliad is an epic poem " * 40)],
]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizers")
    tower = load_tokenizer_folder(write_wordpiece(directory / "bert"), "bert")
    generator = load_tokenizer_folder(write_bpe(directory / "bart"), "bart")
    return Tokenizers(question=tower, passage=tower, source=generator, target=generator, max_question=40)


def peer(tokenizers, questions, form=HfFormat(), max_length=300):  # noqa: B008 - never changed
    """RagRetriever's ids and mask for PASSAGES, without the index that its constructor wants."""
    retriever = object.__new__(RagRetriever)
    retriever.generator_tokenizer = tokenizers.source
    retriever.config = RagConfig.from_question_encoder_generator_configs(
        DPRConfig(),
        BartConfig(prefix=form.prefix),
        title_sep=form.title_sep,
        doc_sep=form.doc_sep,
        max_combined_length=max_length,
    )
    asked = tokenizers.question.decode(questions.tolist(), skip_special_tokens=True)
    docs = [{"title": [p.title for p in row], "text": [p.text for p in row]} for row in PASSAGES]
    ids, mask = retriever.postprocess_docs(docs, asked, retriever.config.generator.prefix, 2)
    return np.array(ids).reshape(2, 2, -1), np.array(mask).reshape(2, 2, -1)


@pytest.mark.parametrize("max_length", [300, 40, 8])
@pytest.mark.parametrize("form", [HfFormat(), HfFormat(prefix=" "), HfFormat(" [T] ", "  Q: ", "read: ")])
def test_ids_and_mask_are_those_of_rag_retriever(tokenizers, form, max_length):
    questions = tokenizers.questions(QUESTIONS)
    ours = hf_compat_sources(tokenizers, questions, PASSAGES, max_length, form)
    ids, mask = peer(tokenizers, questions, form, max_length)
    assert ours.dtype == np.int32
    assert ours.tolist() == ids.tolist()
    assert (ours != tokenizers.source.pad_token_id).tolist() == mask.astype(bool).tolist()


def test_the_question_is_what_the_tower_read(tokenizers):
    (ids,) = hf_compat_sources(tokenizers, tokenizers.questions(QUESTIONS[:1]), [PASSAGES[0][:1]])[0]
    text = tokenizers.source.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert text == "Iliad / Homer wrote it. // who wrote the iliad?"


def test_a_long_passage_removes_the_question_here_and_here_alone(tokenizers):
    long = PASSAGES[1][1]
    questions = ["WHO wrote the Iliad?", "What is the capital?"]
    one, other = hf_compat_sources(tokenizers, tokenizers.questions(questions), [[long], [long]], 60)
    assert one.tolist() == other.tolist()
    ours = tokenizers.source_questions(questions)
    assert tokenizers.source.decode(ours[0], skip_special_tokens=True) == questions[0]


def test_a_place_without_a_passage_holds_the_question_alone(tokenizers):
    ids = hf_compat_sources(tokenizers, tokenizers.questions(QUESTIONS[:1]), [[None]])
    assert tokenizers.source.decode(ids[0, 0], skip_special_tokens=True).strip() == "/ // who wrote the iliad?"


def test_no_questions_give_no_rows_and_no_room_is_an_error(tokenizers):
    assert hf_compat_sources(tokenizers, np.zeros((0, 4), np.int32), []).shape == (0, 0, 300)
    with pytest.raises(ValueError, match="max_length=2 has no room"):
        hf_compat_sources(tokenizers, tokenizers.questions(QUESTIONS), PASSAGES, 2)


def test_quotes_go_once_at_each_end_of_a_title():
    assert joined_text("q", Passage("", '""a" b"', "t")) == '"a" b / t // q'
