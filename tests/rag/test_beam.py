"""Beam search, both decodings with beams, and rescoring, against brute force over a closed language."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.bart import Bart
from rag_jax.rag import decode as decoding
from rag_jax.rag import marginal
from rag_jax.rag.beam import Special, search, top_of_blocks
from rag_jax.rag.decode import decode_sequence, decode_token
from rag_jax.rag.rules import DecodeOptions
from rag_jax.rag.score import answer_token_logprobs
from tests.small_models import SMALL_BART

CONFIG = dataclasses.replace(SMALL_BART, vocab_size=7)
PAD, EOS, V = CONFIG.pad_id, CONFIG.eos_id, CONFIG.vocab_size
B, K, S, T = 3, 3, 6, 3
WORDS = [v for v in range(V) if v not in (PAD, EOS)]
LANGUAGE = np.array(
    [
        [*words, *([EOS] if len(words) < T else []), *[PAD] * (T - len(words) - 1)]
        for n in range(T + 1)
        for words in itertools.product(WORDS, repeat=n)
    ]
)
"""Every answer of at most T tokens: one that ends early has its end token, one of T words was cut."""
WIDE = DecodeOptions(max_new_tokens=T, num_beams=len(LANGUAGE))
"""No more hypotheses exist at any step."""
FOUR = DecodeOptions(max_new_tokens=T, num_beams=4, num_return_sequences=4)


@jax.jit
def under_all(params, source, mask, answers):
    return answer_token_logprobs(params, CONFIG, source, mask, answers)


@pytest.fixture(scope="module")
def params():
    ids, real = jnp.ones((1, 4), jnp.int32), jnp.ones((1, 4), bool)
    made = jax.jit(Bart(CONFIG).init)(jax.random.key(3), ids, real, ids)["params"]
    # Padding is no word of the language: without it the answers' probabilities sum to 1.
    bias = jnp.zeros(CONFIG.table_rows).at[EOS].set(1.0).at[PAD].set(-1e9)
    return made | {"final_logits_bias": bias}


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(5)
    mask = np.arange(S) < rng.integers(3, S + 1, (B, K, 1))
    source = np.where(mask, rng.integers(3, V, (B, K, S)), PAD)
    prior = marginal.log_prior(jnp.asarray(rng.normal(size=(B, K)), jnp.float32))
    return jnp.asarray(source, jnp.int32), jnp.asarray(mask), prior


@pytest.fixture(scope="module")
def truth(params, case):
    """log p of every answer of the language: under every passage, and of both variants."""
    source, mask, prior = case
    real = LANGUAGE != PAD
    logp = np.stack(
        [
            under_all(params, *(np.broadcast_to(x[row], (len(LANGUAGE), *x[row].shape)) for x in (source, mask)),
                      LANGUAGE)
            for row in range(B)
        ]
    )  # fmt: skip
    priors = [np.broadcast_to(prior[row], (len(LANGUAGE), K)) for row in range(B)]
    found = {"under": np.where(real[None, :, None], logp, 0.0).sum(-1)}  # [B, Y, K]
    for variant, loglik in (("sequence", marginal.sequence_loglik), ("token", marginal.token_loglik)):
        found[variant] = np.stack([jax.jit(loglik)(p, z, real) for p, z in zip(priors, logp, strict=True)])
    return found


@functools.partial(jax.jit, static_argnums=(0, 2), static_argnames=("fast", "chunk", "parts", "prune"))
def decoded(function, params, options, case, **settings):
    return function(params, CONFIG, *case, options, **settings)


def run(function, params, case, options, **settings):
    return jax.device_get(decoded(function, params, options, tuple(case), **settings))


@pytest.fixture(scope="module")
def wide(params, case):
    """Beams that hold the whole language; length has no say in the ranking."""
    options = dataclasses.replace(WIDE, length_penalty=0.0, num_return_sequences=5)
    return {
        "token": run(decode_token, params, case, options),
        "sequence": run(decode_sequence, params, case, options),
        "fast": run(decode_sequence, params, case, options, fast=True),
    }


@pytest.fixture(scope="module")
def four(params, case):
    return {
        "token": run(decode_token, params, case, FOUR),
        "sequence": run(decode_sequence, params, case, FOUR),
        "fast": run(decode_sequence, params, case, FOUR, fast=True),
    }


def place_in_language(answer):
    return int(np.flatnonzero((answer == LANGUAGE).all(-1))[0])


def test_the_language_is_closed(truth):
    for variant in ("sequence", "token"):
        np.testing.assert_allclose(np.exp(truth[variant]).sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("variant", ["token", "sequence"])
def test_wide_beams_find_the_best_answers_of_the_language_with_their_probabilities(wide, truth, variant):
    for row in range(B):
        order = np.argsort(-truth[variant][row])[:5]
        assert [place_in_language(answer) for answer in wide[variant].tokens[row]] == order.tolist()
        np.testing.assert_allclose(wide[variant].logprob[row], truth[variant][row, order], atol=1e-5)


def test_fast_is_thorough_when_every_beam_holds_every_answer(wide):
    np.testing.assert_array_equal(wide["fast"].tokens, wide["sequence"].tokens)
    np.testing.assert_allclose(wide["fast"].logprob, wide["sequence"].logprob, atol=1e-5)
    np.testing.assert_allclose(wide["fast"].posterior, wide["sequence"].posterior, atol=1e-5)


def beams_of_each_passage(params, case):
    """The four answers of every passage's own search: RAG-Token with that passage alone."""
    source, mask, _ = case
    rows = [x.reshape(B * K, 1, S) for x in (source, mask)]
    return run(decode_token, params, (*rows, jnp.zeros((B * K, 1))), FOUR).tokens.reshape(B, K, 4, T)


def test_fast_and_thorough_equal_their_definitions_by_brute_force(params, case, truth, four):
    beams, prior = beams_of_each_passage(params, case), np.asarray(case[2])
    for row in range(B):
        held = [{place_in_language(answer) for answer in beam} for beam in beams[row]]
        pooled = sorted(set.union(*held))
        thorough = {y: truth["sequence"][row, y] for y in pooled}
        fast = {
            y: np.log(sum(np.exp(prior[row, k] + truth["under"][row, y, k]) for k in range(K) if y in held[k]))
            for y in pooled
        }
        for name, scores in (("sequence", thorough), ("fast", fast)):
            best = sorted(scores, key=scores.get, reverse=True)[:4]
            assert [place_in_language(answer) for answer in four[name].tokens[row]] == best
            np.testing.assert_allclose(four[name].logprob[row], [scores[y] for y in best], atol=1e-5)


def test_answers_of_a_search_are_different(four):
    for decoded in four.values():
        for answers in decoded.tokens:
            assert len({tuple(answer) for answer in answers.tolist()}) == 4


@pytest.mark.parametrize("name", ["token", "sequence", "fast"])
def test_posteriors_sum_to_one(four, name):
    np.testing.assert_allclose(four[name].posterior.sum(-1), 1, atol=1e-5)


def test_token_posteriors_sum_to_one_on_every_token(four):
    real = four["token"].tokens != PAD
    np.testing.assert_allclose(four["token"].token_posterior.sum(2), real, atol=1e-5)


def test_posterior_is_prior_plus_the_gradient_of_the_log_probability_in_the_scores(params, case, four):
    """d log p(y|x) / d score_z = p(z|x,y) - p(z|x), by automatic differentiation through the teacher-forced model."""
    source, mask, prior = case
    answers = jnp.asarray(four["sequence"].tokens[:, 0])
    logp = under_all(params, source, mask, answers)

    def loglik(scores):
        return marginal.sequence_loglik(marginal.log_prior(scores), logp, answers != PAD).sum()

    expected = np.exp(prior) + np.asarray(jax.grad(loglik)(prior))
    np.testing.assert_allclose(four["sequence"].posterior[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["token", "sequence", "fast"])
def test_beams_of_a_question_do_not_depend_on_the_batch(params, case, four, name):
    function = decode_token if name == "token" else decode_sequence
    settings = {"fast": True} if name == "fast" else {}
    for row in range(B):
        alone = run(function, params, [x[row : row + 1] for x in case], FOUR, **settings)
        np.testing.assert_array_equal(alone.tokens[0], four[name].tokens[row])
        np.testing.assert_allclose(alone.logprob[0], four[name].logprob[row], atol=1e-5)


@pytest.mark.parametrize("name", ["token", "sequence", "fast"])
def test_a_place_without_a_passage_changes_nothing_with_beams(params, case, four, name):
    source, mask, _ = case
    others = jnp.roll(source[:, :1], 1, axis=0), jnp.roll(mask[:, :1], 1, axis=0), jnp.full((B, 1), -jnp.inf)
    more = [jnp.concatenate(pair, axis=1) for pair in zip(others, case, strict=True)]
    function = decode_token if name == "token" else decode_sequence
    settings = {"fast": True} if name == "fast" else {}
    result = run(function, params, more, FOUR, **settings)
    np.testing.assert_array_equal(result.tokens, four[name].tokens)
    np.testing.assert_allclose(result.logprob, four[name].logprob, atol=1e-5)
    assert (result.posterior[..., 0] == 0).all()


@pytest.mark.parametrize(("chunk", "parts"), [(1, 1), (5, B), pytest.param(16, 1, marks=pytest.mark.slow)])
def test_pruning_and_chunks_change_the_cost_and_not_the_answer(params, case, four, chunk, parts):
    pruned = run(decode_sequence, params, case, FOUR, chunk=chunk, parts=parts)
    whole = run(decode_sequence, params, case, FOUR, chunk=chunk, parts=parts, prune=False)
    for result in (pruned, whole):
        np.testing.assert_array_equal(result.tokens, four["sequence"].tokens)
        np.testing.assert_allclose(result.logprob, four["sequence"].logprob, atol=1e-5)
    assert (pruned.computed <= whole.computed).all()


def test_unpruned_rescoring_computes_each_prefix_once_and_none_that_the_passages_own_search_knows(params, case):
    beams = beams_of_each_passage(params, case)
    whole = run(decode_sequence, params, case, FOUR, prune=False)
    for row in range(B):
        steps = [{(tuple(y[:t]), y[t]) for y in own.tolist() for t in range(T) if y[t] != PAD} for own in beams[row]]
        lacking = [{prefix for prefix, _ in set().union(*steps) - known} for known in steps]
        assert whole.computed[row] == sum(map(len, lacking))


def test_pruning_leaves_out_prefixes_when_one_answer_is_wanted(params, case):
    one = dataclasses.replace(FOUR, num_return_sequences=1)
    sharp = params | {"tokens": jax.tree.map(lambda table: table * 4, params["tokens"])}
    pruned, whole = (run(decode_sequence, sharp, case, one, chunk=1, prune=p) for p in (True, False))
    np.testing.assert_array_equal(pruned.tokens, whole.tokens)
    np.testing.assert_allclose(pruned.logprob, whole.logprob, atol=1e-5)
    assert pruned.computed.sum() < whole.computed.sum()


@pytest.mark.parametrize("function", [decode_token, decode_sequence])
def test_every_pair_is_encoded_once(params, case, monkeypatch, function):
    encoded = []
    encode = Bart.encode

    def watched(self, tokens, mask, deterministic=True):
        encoded.append(tokens.shape[0])
        return encode(self, tokens, mask, deterministic)

    monkeypatch.setattr(decoding.Bart, "encode", watched)
    jax.eval_shape(lambda: function(params, CONFIG, *case, FOUR))
    assert encoded == [B * K]


def test_one_width_compiles_once(params, case):
    decode = jax.jit(lambda p, s, m, prior: decode_token(p, CONFIG, s, m, prior, FOUR).tokens)
    for shift in range(3):
        decode(params, jnp.roll(case[0], shift, axis=0), case[1], case[2])
    assert decode._cache_size() == 1


def table_step(table):
    """A step function of a language model that knows the last token only."""

    def step(kept, newest, place, seen):
        logp = table[newest]
        return logp, kept, lambda beam, token: jax.vmap(lambda z, n, v: z[n, v])(logp, beam, token)[..., None]

    return step


def sampled(table, count, **options):
    options = DecodeOptions(max_new_tokens=2, num_return_sequences=count, do_sample=True, **options)
    found = search(table_step(table), (), options, Special(0, EOS, PAD), batch=1, passages=1, key=jax.random.key(0))[0]
    return np.asarray(found.tokens[0])


LOGITS = jnp.asarray(np.random.default_rng(0).normal(size=(V, V)), jnp.float32).at[:, PAD].set(-jnp.inf)
TABLE = jax.nn.log_softmax(LOGITS, axis=-1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, jax.nn.softmax(TABLE[0])),
        ({"temperature": 0.5}, jax.nn.softmax(TABLE[0] / 0.5)),
        ({"top_k": 2}, jax.nn.softmax(jnp.where(TABLE[0] >= jnp.sort(TABLE[0])[-2], TABLE[0], -jnp.inf))),
    ],
)
def test_samples_follow_the_distribution(options, expected):
    first = sampled(TABLE, 20_000, **options)[:, 0]
    share = np.bincount(first, minlength=V) / len(first)
    np.testing.assert_allclose(share, expected, atol=0.015)


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    p = np.asarray(jax.nn.softmax(TABLE[0]))
    order = np.argsort(-p)
    kept = set(order[: int(np.searchsorted(np.cumsum(p[order]), 0.6)) + 1].tolist())
    assert set(sampled(TABLE, 2000, top_p=0.6)[:, 0].tolist()) == kept


@pytest.mark.parametrize(
    ("size", "count", "block"), [(1000, 8, 128), (1000, 3, 7), (1024, 8, 128), (50, 4, 8), (9, 9, 4)]
)
@pytest.mark.parametrize("kind", ["all different", "many equal", "mostly impossible"])
def test_the_best_of_blocks_are_the_best_of_all_and_of_equal_ones_the_first(rng, size, count, block, kind):
    shape = (3, 4, size)
    values = rng.integers(0, 3, shape) if kind == "many equal" else rng.normal(size=shape)
    if kind == "mostly impossible":
        values = np.where(rng.random(shape) < 0.002, values, -np.inf)
    values = jnp.asarray(values, jnp.float32)
    for found, expected in zip(top_of_blocks(values, count, block), jax.lax.top_k(values, count), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_sampling_without_a_key_is_refused():
    options = DecodeOptions(do_sample=True)
    with pytest.raises(ValueError, match="key"):
        search(table_step(TABLE), (), options, Special(0, EOS, PAD), batch=1, passages=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "num_beams=0"),
        ({"max_new_tokens": 2, "min_new_tokens": 3}, "min_new_tokens=3"),
        ({"num_return_sequences": 2}, "num_return_sequences=2"),
        ({"early_stopping": "sometimes"}, "early_stopping"),
        ({"top_p": 0.0}, "top_p"),
        ({"bad_words_ids": ((),)}, "bad_words_ids"),
    ],
)
def test_options_without_meaning_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        DecodeOptions(**options)
