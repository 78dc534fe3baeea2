"""The Python API and `rag-jax ask`, on the weights that ship and the passages of two countries."""

import dataclasses
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from rag_jax.api import Rag
from rag_jax.api.live import ChangingIndex
from rag_jax.api.loading import open_for
from rag_jax.api.model import load_model
from rag_jax.cli import app
from rag_jax.config import finalise, from_dict, update
from rag_jax.index import build_index, fingerprint
from rag_jax.models.weights import SHIPPED
from rag_jax.rag import answer as answering
from rag_jax.rag.retrieve import embed_passages
from rag_jax.text.world_facts import load_facts, world_passages
from rag_jax.types import Answer, Passage

K = 4
KENYA = "who is the head of government of Kenya"
TRUTH = {
    fact.country: fact.value
    for fact in load_facts("2020")
    if fact.relation == "head of government" and fact.country in ("Kenya", "France")
}
QUESTIONS = [KENYA, "what is the capital of France", "which currency do people pay with in the country of Kenya"]


def passages_of(*countries):
    return [item.passage for item in world_passages("2020") if item.country in countries]


@pytest.fixture(scope="module")
def model():
    return load_model(SHIPPED / "world", settings={"eval.k": K})


@pytest.fixture(scope="module")
def build(model, tmp_path_factory):
    """Makes an index of passages; gives its directory."""
    tower = model.parts.passage_encoder

    def make(passages, name="index"):
        directory = tmp_path_factory.mktemp(name) / "index"
        vectors = embed_passages(model.parts.arch.passage_encoder, tower, model.parts.tokenizers, passages, 16)
        build_index(directory, passages, vectors, encoder_fingerprint=fingerprint(tower), backend="exact", recall_k=2)
        return directory

    return make


@pytest.fixture(scope="module")
def directory(build):
    return build(passages_of("Kenya", "France"))


@pytest.fixture(scope="module")
def rag(model, directory):
    return Rag(model, open_for(model, directory))


@pytest.fixture(scope="module")
def by_token(directory):
    model = load_model(SHIPPED / "world", variant="token", settings={"eval.k": K})
    return Rag(model, open_for(model, directory))


def numbers(answer):
    return [answer.logprob, *(p for s in answer.sources for p in (s.prior, s.posterior, *s.token_posterior))]


def test_a_question_is_answered_with_the_passage_that_says_so(rag):
    found = rag.answer(KENYA)
    assert isinstance(found, Answer)
    assert (found.question, found.text) == (KENYA, TRUTH["Kenya"])
    assert len(found.sources) == K
    best = max(found.sources, key=lambda source: source.posterior)
    assert found.text in best.passage.text
    assert sum(source.posterior for source in found.sources) == pytest.approx(1, abs=1e-5)
    assert "".join(found.tokens) == f" {found.text}</s>"


def test_questions_of_a_list_are_answered_as_each_alone(rag):
    together, alone = rag.answer(QUESTIONS), [rag.answer(text) for text in QUESTIONS]
    assert [a.text for a in together] == [a.text for a in alone]
    assert [a.question for a in together] == QUESTIONS
    for one, other in zip(together, alone, strict=True):
        assert numbers(one) == pytest.approx(numbers(other), abs=1e-4)
    assert rag.answer([]) == []


def test_one_program_answers_questions_of_all_lengths_from_passages_of_all_lengths(rag):
    rag.answer(KENYA)
    compiled = answering.decode_batch._cache_size()
    for text in QUESTIONS[1:]:
        rag.answer(text)
    assert answering.decode_batch._cache_size() == compiled


def test_k_beyond_the_passages_gives_those_there_are(rag):
    count = len(rag.index)
    found = rag.retrieve(KENYA, 3 * count)
    assert len(found) == count
    assert sum(one.prior for one in found) == pytest.approx(1, abs=1e-5)
    assert rag.retrieve(KENYA, 1)[0].passage == found[0].passage


def test_what_is_retrieved_is_what_the_answer_reads(rag):
    found, answer = rag.retrieve(KENYA), rag.answer(KENYA)
    assert [one.passage for one in found] == [source.passage for source in answer.sources]
    assert [one.prior for one in found] == pytest.approx([source.prior for source in answer.sources], abs=1e-5)
    scores = np.array([one.score for one in found])
    assert (np.diff(scores) <= 0).all()
    expected = np.exp(scores - scores.max())
    np.testing.assert_allclose([one.prior for one in found], expected / expected.sum(), atol=1e-5)
    assert rag.retrieve([KENYA])[0] == found


def test_the_score_of_the_answer_is_the_answers_probability_in_both_variants(rag, by_token):
    answers = rag.answer(KENYA), by_token.answer(KENYA)
    for asked, found in zip((rag, by_token), answers, strict=True):
        scored = asked.score(KENYA, found.text)
        assert scored.tokens == found.tokens
        assert scored.logprob == pytest.approx(found.logprob, abs=1e-4)
    assert (scored.sequence, scored.token) == pytest.approx((answers[0].logprob, scored.logprob), abs=1e-4)
    by_passage, by_token_too = (np.array([s.token_posterior for s in one.sources]) for one in (scored, answers[1]))
    np.testing.assert_allclose(by_passage.sum(0), 1, atol=1e-5)
    np.testing.assert_allclose(by_passage, by_token_too, atol=1e-4)
    assert [s.posterior for s in scored.sources] == pytest.approx([s.posterior for s in answers[0].sources], abs=1e-4)


def test_a_wrong_answer_is_less_probable(rag):
    right, wrong = (rag.score(KENYA, text) for text in (TRUTH["Kenya"], TRUTH["France"]))
    assert max(wrong.sequence, wrong.token) < min(right.sequence, right.token) - 1
    assert wrong.text == TRUTH["France"]


def test_passages_that_are_given_are_answered_from_without_an_index(rag, model):
    retrieved = rag.retrieve(KENYA)
    found = Rag(model).generate(KENYA, [one.passage for one in reversed(retrieved)])
    assert [source.passage for source in found.sources] == [one.passage for one in retrieved]
    assert numbers(found) == pytest.approx(numbers(rag.answer(KENYA)), abs=1e-4)
    texts = [one.passage.text for one in retrieved[: K - 1]]
    found = Rag(model).generate(KENYA, texts)
    assert found.text == TRUTH["Kenya"]
    assert {(s.passage.id, s.passage.text) for s in found.sources} == set(zip("123", texts, strict=True))


def test_the_next_answer_sees_what_was_added_deleted_and_swapped(rag, model, build):
    live = Rag(model, open_for(model, build(passages_of("France"))))
    (source,) = [s for s in rag.answer(KENYA).sources if s.posterior > 0.5]
    assert live.answer(KENYA).text != TRUTH["Kenya"]
    live.index.add([source.passage, "Nothing of interest is said here."])
    assert live.answer(KENYA).text == TRUTH["Kenya"]
    assert len(live.index) == len(passages_of("France")) + 2
    live.index.delete([source.passage.id])
    assert live.answer(KENYA).text != TRUTH["Kenya"]
    live.index.swap(build(passages_of("Kenya")))
    assert live.answer(KENYA).text == TRUTH["Kenya"]
    assert {passage.title.partition(":")[0] for passage in live.index} == {"Kenya"}


def test_what_another_process_changed_is_seen_after_a_refresh(model, build):
    mine = Rag(model, open_for(model, build(passages_of("France"))))
    before = len(mine.index)
    ChangingIndex(mine.index.directory).delete([next(iter(mine.index)).id])
    assert len(mine.index) == before
    assert mine.index.refresh()
    assert len(mine.index) == before - 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rag: rag.answer(" "), "the question is empty"),
        (lambda rag: rag.answer("why " * 70), r"has 14\d tokens and the limit is 64.*data.max_question_tokens"),
        (lambda rag: rag.answer("</s>" * 40), r"has 1\d\d tokens and the limit is 64"),  # letters, not one token each
        (lambda rag: rag.answer("caf\udce9"), r"text 0 of 1 is not Unicode: 'caf\\udce9'"),
        (lambda rag: rag.answer(KENYA, k=0), "k=0: must be at least 1"),
        (lambda rag: rag.answer(KENYA, decoding="slow"), "decoding='slow': choose thorough or fast"),
        (lambda rag: rag.answer(KENYA, beams=0), "num_beams=0: must be at least 1"),
        (lambda rag: rag.score(KENYA, ["a", "b"]), "1 questions and 2 answers"),
        (lambda rag: rag.score(KENYA, "long " * 40), "the answer has .* tokens and the limit is 24"),
        (lambda rag: rag.generate(KENYA, []), "no passages are given"),
        (
            lambda rag: rag.generate(KENYA, [Passage("a", "", "x"), Passage("a", "", "y")]),
            "two passages have the id 'a'",
        ),
    ],
)
def test_what_cannot_be_asked_is_told(rag, call, message):
    with pytest.raises(ValueError, match=message):
        call(rag)


def test_a_model_of_labels_has_no_text_to_score(model):
    of_labels = update(from_dict(dataclasses.asdict(model.config)), {"data.labels": ("yes", "no")})
    with pytest.raises(ValueError, match="one of the labels yes, no and writes no text to score; answer says"):
        Rag(dataclasses.replace(model, config=finalise(of_labels))).score(KENYA, "yes")


def test_without_an_index_the_error_names_both_ways_out(model):
    with pytest.raises(ValueError, match=r"index=DIRECTORY.*generate\(question, passages\)"):
        Rag(model).answer(KENYA)


@pytest.fixture
def ask(directory):
    """Runs `rag-jax ask` over the index and gives its result."""

    def run(*args, given=None, code=0):
        command = ["ask", *args, "--index", str(directory), "-k", str(K)]
        result = CliRunner().invoke(app, command, input=given, env={"COLUMNS": "120"})
        assert result.exit_code == code, result.output
        return result

    return run


def test_the_command_answers_one_question_with_its_sources(ask):
    shown = ask(KENYA).stdout
    assert TRUTH["Kenya"] in shown
    assert "posterior" in shown
    found = json.loads(ask(KENYA, "--json").stdout)
    assert (found["question"], found["text"]) == (KENYA, TRUTH["Kenya"])
    assert len(found["sources"]) == K
    best = max(found["sources"], key=lambda source: source["posterior"])
    assert TRUTH["Kenya"] in best["passage"]["text"]


def test_the_command_answers_all_questions_of_a_file_and_fails_if_it_could_not(ask):
    given = f"{KENYA}\n{'why ' * 70}\n\nwhat is the capital of Kenya\n"
    result = ask("--json", given=given, code=1)
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == [TRUTH["Kenya"], "Nairobi"]
    assert "the limit is 64" in result.stderr
    shown = ask(given=f"{KENYA}\n").stdout
    assert TRUTH["Kenya"] in shown
    assert shown.startswith(KENYA)  # and no prompt before it: nobody types


def test_whoever_types_ends_with_an_empty_line_and_may_err(ask, monkeypatch):
    monkeypatch.setattr("rag_jax.commands.ask._somebody_types", lambda: True)
    result = ask("--json", given=f"{'why ' * 70}\n{KENYA}\n\nnever read\n")
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == [TRUTH["Kenya"]]


def test_whoever_types_is_told_what_is_searched_and_how_to_end(ask, monkeypatch):
    monkeypatch.setattr("rag_jax.commands.ask._somebody_types", lambda: True)
    shown = ask(given="\n").stdout
    assert re.match(rf"[\d,]+ passages, {K} a question\. An empty line ends it\.\n> ", shown)


def test_a_model_that_is_not_there_is_one_message(ask):
    result = ask(KENYA, "--model", "nowhere", code=1)
    assert result.stderr == "rag-jax: nowhere: no such directory; with the package comes: world\n"
