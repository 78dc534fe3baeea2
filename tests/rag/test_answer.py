"""From questions to answers with their sources, on tiny networks and a real index of four passages."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from rag_jax.index import build_index
from rag_jax.models.bert import BertConfig
from rag_jax.rag import answer as answering
from rag_jax.rag.answer import answer
from rag_jax.rag.model import Architecture, init_params
from rag_jax.rag.retrieve import ClosedBook, Retriever, embed_passages, encode
from rag_jax.rag.rules import DecodeOptions
from rag_jax.text.tokens import Tokenizers, train_tokenizer
from rag_jax.types import NO_DOCUMENT, Passage
from tests.small_models import ONE_LAYER_BART
from tests.wild_text import texts

PASSAGES = [
    Passage("p0", "Iliad", "Homer wrote the Iliad."),
    Passage("p1", "Odyssey", "The Odyssey is by Homer."),
    Passage("p2", "Aeneid", "Virgil wrote it in Rome."),
    Passage("p3", "Emma", "A novel by Jane Austen."),
]
LONG = "Who wrote the novel by Jane Austen, Emma? " * 4
QUESTIONS = ["Who wrote Emma?", "who wrote emma?", "Is Homer in Rome?", "Homer?", "What is a novel?"]
NULL = {"null_document": {"bias": jnp.asarray([0.5])}}


class Small:
    """What all tests here share: sizes, parameters, tokenizers, an index, and retrievers over it."""

    def __init__(self, directory):
        tokenizer = train_tokenizer([f"{p.title} {p.text}" for p in PASSAGES] + QUESTIONS, 290)
        self.tokenizers = Tokenizers.shared(tokenizer, max_question=16, max_passage=24, max_target=4)
        tower = BertConfig(
            vocab_size=290,
            width=16,
            layers=1,
            heads=2,
            hidden=16,
            max_positions=32,
            token_types=1,
            pad_id=1,
            init_std=0.25,
        )
        generator = dataclasses.replace(ONE_LAYER_BART, vocab_size=290, vocab_multiple=1, max_positions=96)
        self.arch = Architecture(tower, tower, generator)
        made = jax.jit(lambda key: init_params(self.arch, key))(jax.random.key(0))
        self.params = {part: made[part] for part in ("question_encoder", "generator")}
        vectors = np.asarray(embed_passages(tower, made["passage_encoder"], self.tokenizers, PASSAGES, 4), np.float32)
        self.index = build_index(directory, PASSAGES, vectors, encoder_fingerprint="test", backend="exact", recall_k=2)
        self.three, self.six = (Retriever(self.index, self.tokenizers, k) for k in (3, 6))

    def answers(self, retriever, questions=QUESTIONS, variant="token", batch_size=4, params=None, **limits):
        params = params or self.params
        return list(
            answer(
                params,
                self.arch,
                self.tokenizers,
                retriever,
                questions,
                variant=variant,
                batch_size=batch_size,
                **limits,
            )
        )


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Small(tmp_path_factory.mktemp("answer") / "index")


def same(ours, expected):
    """Equal texts and passages, and probabilities to float32's rounding."""
    assert [a.text for a in ours] == [a.text for a in expected]
    assert [[s.passage for s in a.sources] for a in ours] == [[s.passage for s in a.sources] for a in expected]
    numbers = [
        [[a.logprob, *(x for s in a.sources for x in (s.prior, s.posterior))] for a in b] for b in (ours, expected)
    ]
    for one, other in zip(*numbers, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


@pytest.mark.parametrize("variant", ["sequence", "token"])
def test_sources_are_retrieved_passages_best_prior_first(small, variant):
    answers = small.answers(small.three, variant=variant)
    assert len(answers) == len(QUESTIONS)
    asked = small.tokenizers.questions(QUESTIONS)
    found = small.three.find(small.arch.question_encoder, small.params["question_encoder"], asked, QUESTIONS)
    for rows, one in zip(found.rows, answers, strict=True):
        assert {source.passage for source in one.sources} == {PASSAGES[row] for row in rows}
        priors = [source.prior for source in one.sources]
        assert priors == sorted(priors, reverse=True)
        assert sum(priors) == pytest.approx(1, abs=1e-5)
        assert sum(source.posterior for source in one.sources) == pytest.approx(1, abs=1e-5)
        assert one.logprob < 0


def test_priors_are_a_softmax_of_exact_scores(small):
    (one,) = small.answers(small.three, QUESTIONS[:1])
    asked = jnp.asarray(small.tokenizers.questions(QUESTIONS[:1]))
    query = np.asarray(encode(small.arch.question_encoder, small.params["question_encoder"], asked))[0]
    scores = np.array([query @ small.index.vectors[PASSAGES.index(source.passage)] for source in one.sources])
    expected = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    np.testing.assert_allclose([source.prior for source in one.sources], expected, atol=1e-5)


def test_answers_do_not_depend_on_the_batches(small):
    expected = small.answers(small.three)
    same(small.answers(small.three, batch_size=2), expected)
    same(small.answers(small.three, QUESTIONS[::-1])[::-1], expected)


def test_the_scores_of_a_search_by_words_are_the_logits_of_the_prior(small, tmp_path):
    index = build_index(tmp_path / "words", PASSAGES, None, encoder_fingerprint="", backend="bm25")
    retriever, questions = Retriever(index, small.tokenizers, 3), ["Homer in Rome", "zebra"]
    params = {"generator": small.params["generator"]}
    found, nothing = small.answers(retriever, questions, params=params, variant="sequence")
    rows, scores = (part[0] for part in index.search_texts(questions, 3))
    assert {source.passage for source in found.sources} == {PASSAGES[row] for row in rows}
    assert len(set(scores)) > 1
    priors = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    np.testing.assert_allclose([source.prior for source in found.sources], priors, atol=1e-5)
    (alone,) = small.answers(ClosedBook(1), ["zebra"], params=params, variant="sequence")
    assert nothing.sources == ()
    assert (nothing.text, nothing.logprob) == (alone.text, pytest.approx(alone.logprob, abs=1e-4))
    # With a null document it is that which stands there, and it says so.
    beside = Retriever(index, small.tokenizers, 3, null_document=True)
    found, nothing = small.answers(beside, questions, params=params | NULL, variant="sequence")
    assert len(found.sources) == 1 + (rows >= 0).sum()
    assert [(source.passage, source.prior, source.posterior) for source in nothing.sources] == [(NO_DOCUMENT, 1, 1)]
    assert nothing.logprob == pytest.approx(alone.logprob, abs=1e-4)


def test_the_null_document_is_a_source_among_the_others(small):
    retriever = Retriever(small.index, small.tokenizers, 3, null_document=True)
    for one in small.answers(retriever, params=small.params | NULL):
        assert [source.passage for source in one.sources].count(NO_DOCUMENT) == 1
        assert len(one.sources) == 4
        for total in ("prior", "posterior"):
            assert sum(getattr(source, total) for source in one.sources) == pytest.approx(1, abs=1e-5)


def test_fusion_in_decoder_shows_what_was_retrieved_and_no_posterior(small):
    for one, other in zip(small.answers(small.three, variant="fid"), small.answers(small.three), strict=True):
        assert [(s.passage, s.prior) for s in one.sources] == [(s.passage, s.prior) for s in other.sources]
        assert {source.posterior for source in one.sources} == {None}
        assert one.tokens
        assert one.logprob < 0


def test_a_batch_that_is_not_full_has_the_shape_of_one_that_is(small, monkeypatch):
    shapes = []
    decode = answering.decode_batch

    def watched(params, arch, batch, key, **settings):
        shapes.append((batch.question.shape, batch.passages.shape, settings["width"]))
        return decode(params, arch, batch, key, **settings)

    monkeypatch.setattr(answering, "decode_batch", watched)
    assert len(small.answers(small.three, QUESTIONS[:1] * 5)) == 5
    assert len(shapes) == 2
    assert len(set(shapes)) == 1


def test_asking_for_more_passages_than_there_are_gives_those_there_are(small):
    for one in small.answers(small.six):
        assert sorted(source.passage.id for source in one.sources) == ["p0", "p1", "p2", "p3"]
        assert sum(source.prior for source in one.sources) == pytest.approx(1, abs=1e-5)
        assert sum(source.posterior for source in one.sources) == pytest.approx(1, abs=1e-5)


def test_case_of_a_question_reaches_the_answer(small):
    upper, lower = small.answers(small.three)[:2]
    assert upper.logprob != pytest.approx(lower.logprob, abs=1e-4)


def test_closed_book_answers_without_sources_from_the_generator_alone(small):
    book = ClosedBook(small.arch.generator.pad_id)
    generator = {"generator": small.params["generator"]}
    token, sequence = (small.answers(book, variant=variant, params=generator) for variant in ("token", "sequence"))
    assert [a.sources for a in token] == [()] * len(QUESTIONS)
    same(token, sequence)
    open_book = small.answers(small.three)
    assert [a.logprob for a in token] != pytest.approx([a.logprob for a in open_book], abs=1e-3)


def test_no_questions_give_no_answers(small):
    assert small.answers(small.three, []) == []


@pytest.mark.parametrize("index", [True, False], ids=["open", "closed"])
@given(text=texts)
def test_any_question_has_an_answer_with_probabilities(small, monkeypatch, index, text):
    """An empty one too, and one of control characters."""
    monkeypatch.setattr("rag_jax.rag.shapes.WORTHWHILE", 0)  # packed, and without the long question, shapes would vary
    retriever = small.three if index else ClosedBook(small.arch.generator.pad_id)
    params = small.params if index else {"generator": small.params["generator"]}
    answers = small.answers(retriever, [text, LONG, "", "\0\x1b\u202e"], params=params)
    assert len(answers) == 4
    for one in answers:
        assert -np.inf < one.logprob < 0
        assert sum(source.prior for source in one.sources) == pytest.approx(float(index), abs=1e-5)


def test_of_a_question_of_ten_thousand_characters_the_first_tokens_are_answered_with_a_warning(small, caplog):
    (whole,) = small.answers(small.three, ["Who wrote Emma? " * 625])
    assert "1 of 1 questions have more than the 16 tokens that the generator reads" in caplog.text
    assert "or raise config.data.max_question_tokens" in caplog.text  # which is a setting
    (begun,) = small.answers(small.three, ["Who wrote Emma? " * 6])
    same([whole], [begun])


def test_what_is_no_question_is_one_clear_error(small):
    with pytest.raises(ValueError, match=r"one question is \[text\]"):
        small.answers(small.three, "Who wrote Emma?")
    with pytest.raises(ValueError, match="text 1 of 2 is not Unicode"):
        small.answers(small.three, ["Who?", "caf\udce9"])


def test_a_source_limit_below_the_question_still_shows_the_whole_question(small):
    """Nothing of the passages is left, so the generator answers as if the book were closed."""
    book = ClosedBook(small.arch.generator.pad_id)
    long = ["Who wrote the novel by Jane Austen, Emma?"]
    narrow = small.answers(small.three, long, max_source=1)
    closed = small.answers(book, long, params={"generator": small.params["generator"]})
    asked = (small.tokenizers.source_questions(long) != 1).sum()
    assert asked % 8 == 0, "the question must fill its columns, or some room is left for a passage"
    assert narrow[0].text == closed[0].text
    assert narrow[0].logprob == pytest.approx(closed[0].logprob, abs=1e-4)


def test_token_posteriors_say_for_every_token_where_it_came_from(small):
    for one in small.answers(small.three, variant="token"):
        assert one.tokens
        by_token = np.array([source.token_posterior for source in one.sources])
        assert by_token.shape == (len(one.sources), len(one.tokens))
        np.testing.assert_allclose(by_token.sum(0), 1, atol=1e-5)
        np.testing.assert_allclose(by_token.mean(1), [source.posterior for source in one.sources], atol=1e-5)


@pytest.mark.parametrize(("variant", "fast"), [("sequence", False), ("sequence", True), ("token", False)])
def test_alternatives_are_other_answers_the_best_first(small, variant, fast):
    options = DecodeOptions(max_new_tokens=4, num_beams=3, num_return_sequences=3)
    for one in small.answers(small.three, QUESTIONS[:2], variant=variant, options=options, fast=fast):
        assert len(one.alternatives) == 2
        if variant == "sequence":  # RAG-Token's are ranked with the length penalty
            ranked = [one.logprob, *(other.logprob for other in one.alternatives)]
            assert ranked == sorted(ranked, reverse=True)
        assert all(other.logprob < 0 for other in one.alternatives)


def test_samples_are_the_same_with_the_same_seed_and_others_with_another(small):
    options = DecodeOptions(max_new_tokens=4, do_sample=True, num_return_sequences=3)

    def texts(seed):
        found = small.answers(small.three, variant="token", options=options, seed=seed)
        return [(one.text, *(other.text for other in one.alternatives)) for one in found]

    assert texts(0) == texts(0)
    assert texts(0) != texts(1)
