"""Both greedy decodings against plain Python without caches, brute force, and themselves in other batches."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.bart import Bart
from rag_jax.rag import decode as decoding
from rag_jax.rag import marginal
from rag_jax.rag.decode import decode_sequence, decode_token
from rag_jax.rag.rules import DecodeOptions
from rag_jax.rag.score import answer_token_logprobs
from tests.small_models import SMALL_BART, small_bart_params

CONFIG = SMALL_BART
PAD, EOS = CONFIG.pad_id, CONFIG.eos_id
B, K, S, T = 6, 3, 8, 5
GREEDY = DecodeOptions(max_new_tokens=T)


def best_of(decoded):
    """Without the axis of returned sequences."""
    return jax.tree.map(lambda leaf: leaf[:, 0] if leaf.ndim > 1 else leaf, decoded)


DECODE = {
    name: jax.jit(lambda *args, f=f, **named: best_of(f(*args, config=CONFIG, options=GREEDY, **named)))
    for name, f in (("sequence", decode_sequence), ("token", decode_token))
}
LOGLIK = {"sequence": marginal.sequence_loglik, "token": marginal.token_loglik}
both = pytest.mark.parametrize("variant", DECODE)


@jax.jit
def teacher_forced(params, source, source_mask, inputs):
    """float32 log-probabilities [R,T,V] of every next token, the slow and simple way."""
    logits = Bart(CONFIG).apply({"params": params}, source, source_mask, inputs)
    return jax.nn.log_softmax(logits, axis=-1)


@jax.jit
def rescored(params, source, source_mask, targets):
    return answer_token_logprobs(params, CONFIG, source, source_mask, targets)


@pytest.fixture(scope="module")
def params():
    return small_bart_params()


@pytest.fixture(scope="module")
def case(params):
    rng = np.random.default_rng(5)
    source = rng.integers(3, 21, (B, K, S))
    lengths = rng.integers(4, S + 1, (B, K, 1))
    mask = np.arange(S) < lengths
    prior = marginal.log_prior(jnp.asarray(rng.normal(size=(B, K)), jnp.float32))
    return jnp.asarray(np.where(mask, source, PAD), jnp.int32), jnp.asarray(mask), prior


@pytest.fixture(scope="module")
def decoded(params, case):
    source, mask, prior = case
    return {name: jax.device_get(f(params, source=source, source_mask=mask, prior=prior)) for name, f in DECODE.items()}


def greedy(params, source, source_mask, prior):
    """One question, by the definition: the whole prefix goes through the model again for every token."""
    tokens = []
    while len(tokens) < T and EOS not in tokens:
        inputs = np.full((B * K, T), PAD, np.int32)  # the rows of one question, padded to the compiled shape
        inputs[:, 0] = CONFIG.decoder_start_id
        inputs[:, 1 : len(tokens) + 1] = tokens[: T - 1]
        wide = [np.resize(np.asarray(x), (B * K, S)) for x in (source, source_mask)]
        logp = np.asarray(teacher_forced(params, *map(jnp.asarray, wide), jnp.asarray(inputs)))[
            : len(prior), len(tokens)
        ]
        mixed = (np.exp(np.asarray(prior))[:, None] * np.exp(logp)).sum(0)
        mixed[PAD] = -1
        tokens.append(int(mixed.argmax()))
    return tokens + [PAD] * (T - len(tokens))


def test_answers_here_differ_in_length_and_words(decoded):
    for result in decoded.values():
        lengths = (result.tokens != PAD).sum(-1)
        assert lengths.min() < T
        assert lengths.max() > 2
        assert len({tuple(row) for row in result.tokens.tolist()}) > 1


def test_greedy_token_decoding_equals_a_plain_loop_without_cache(params, case, decoded):
    assert decoded["token"].tokens.tolist() == [greedy(params, *question) for question in zip(*case, strict=True)]


def test_thorough_sequence_decoding_equals_brute_force_over_its_candidates(params, case, decoded):
    certain = jnp.zeros(1)
    for row, (source, mask, prior) in enumerate(zip(*case, strict=True)):
        candidates = np.array([greedy(params, source[k : k + 1], mask[k : k + 1], certain) for k in range(K)])
        padded = jnp.asarray(np.resize(candidates, (B, T)))
        sources = [jnp.broadcast_to(x, (B, *x.shape)) for x in (source, mask)]
        logp = rescored(params, *sources, padded)[:K]
        totals = np.where(candidates[:, None] != PAD, logp, 0).sum(-1) + np.asarray(prior)  # [candidate, passage]
        values = np.log(np.exp(totals).sum(-1))
        assert decoded["sequence"].tokens[row].tolist() == candidates[values.argmax()].tolist()
        assert decoded["sequence"].logprob[row] == pytest.approx(values.max(), abs=1e-5)


@both
def test_an_answer_ends_with_the_end_token_or_at_the_limit(decoded, variant):
    for row in decoded[variant].tokens.tolist():
        length = row.index(EOS) + 1 if EOS in row else T
        assert PAD not in row[:length]
        assert row[length:] == [PAD] * (T - length)


@both
def test_padding_is_never_an_answer(params, case, variant):
    source, mask, prior = case
    eager = params | {"final_logits_bias": params["final_logits_bias"].at[PAD].set(50.0)}
    tokens = np.asarray(DECODE[variant](eager, source=source, source_mask=mask, prior=prior).tokens)
    assert (tokens[:, 0] != PAD).all()
    for row in tokens.tolist():
        assert PAD not in row[: row.index(EOS) if EOS in row else T]


@both
def test_log_probability_and_posterior_are_those_of_the_answer(params, case, decoded, variant):
    source, mask, prior = case
    result = decoded[variant]
    logp, real = rescored(params, source, mask, jnp.asarray(result.tokens)), jnp.asarray(result.tokens != PAD)
    np.testing.assert_allclose(result.logprob, LOGLIK[variant](prior, logp, real), atol=1e-5)
    if variant == "sequence":
        np.testing.assert_allclose(result.posterior, marginal.sequence_posterior(prior, logp, real), atol=1e-5)
    else:
        by_token = np.asarray(marginal.token_posterior(prior, logp, real))
        np.testing.assert_allclose(result.token_posterior, by_token, atol=1e-5)
        means = [row[:, place].mean(-1) for row, place in zip(by_token, np.asarray(real), strict=True)]
        np.testing.assert_allclose(result.posterior, means, atol=1e-5)
    np.testing.assert_allclose(result.posterior.sum(-1), 1, atol=1e-5)


@both
def test_a_question_alone_gets_the_answer_that_it_gets_in_a_batch(params, case, decoded, variant):
    for row in range(B):
        source, mask, prior = (x[row : row + 1] for x in case)
        alone = DECODE[variant](params, source=source, source_mask=mask, prior=prior)
        np.testing.assert_array_equal(alone.tokens[0], decoded[variant].tokens[row])
        np.testing.assert_allclose(alone.logprob[0], decoded[variant].logprob[row], atol=1e-5)


@pytest.mark.parametrize("f", [decode_sequence, decode_token])
@pytest.mark.parametrize("beams", [1, 2])
def test_heads_with_rows_of_their_own_give_the_answers_of_heads_that_share_them(params, case, f, beams):
    options = DecodeOptions(max_new_tokens=T, num_beams=beams)
    shared, single = CONFIG, dataclasses.replace(CONFIG, cache_row=1)
    assert (shared.cache_groups, single.cache_groups) == (1, 2)
    one, other = (jax.jit(lambda c=c: f(params, c, *case, options))() for c in (shared, single))
    np.testing.assert_array_equal(one.tokens, other.tokens)
    np.testing.assert_allclose(one.logprob, other.logprob, atol=1e-5)
    np.testing.assert_allclose(one.posterior, other.posterior, atol=1e-5)


@pytest.mark.parametrize("parts", [2, 3])
def test_logits_made_in_parts_give_the_answers_of_logits_made_at_once(params, case, decoded, parts, monkeypatch):
    monkeypatch.setattr(decoding, "LOGITS_BYTES", -(-4 * CONFIG.table_rows * B * K // parts))
    in_parts = jax.jit(lambda: best_of(decode_token(params, CONFIG, *case, GREEDY)))()
    np.testing.assert_array_equal(in_parts.tokens, decoded["token"].tokens)
    for name in ("logprob", "posterior", "token_posterior"):
        np.testing.assert_allclose(getattr(in_parts, name), getattr(decoded["token"], name), atol=1e-5)


@pytest.mark.parametrize("f", [decode_sequence, decode_token])
def test_more_tokens_than_there_are_positions_are_refused(params, case, f):
    most = CONFIG.max_positions
    with pytest.raises(ValueError, match=f"max_new_tokens={most + 1}: the generator has {most} positions"):
        jax.eval_shape(lambda: f(params, CONFIG, *case, DecodeOptions(max_new_tokens=most + 1)))


@both
def test_places_without_a_passage_change_nothing(params, case, decoded, variant):
    source, mask, prior = case
    # What stands there is another question's passage, which would give another answer.
    others = jnp.roll(source[:, :2], 1, axis=0), jnp.roll(mask[:, :2], 1, axis=0), jnp.full((B, 2), -jnp.inf)
    source, mask, prior = (jnp.concatenate(pair, axis=1) for pair in zip(others, case, strict=True))
    result = DECODE[variant](params, source=source, source_mask=mask, prior=prior)
    np.testing.assert_array_equal(result.tokens, decoded[variant].tokens)
    np.testing.assert_allclose(result.logprob, decoded[variant].logprob, atol=1e-5)
    assert (np.asarray(result.posterior)[:, :2] == 0).all()
    np.testing.assert_allclose(result.posterior[:, 2:], decoded[variant].posterior, atol=1e-5)


@both
def test_order_of_passages_does_not_change_the_answer(params, case, decoded, variant):
    source, mask, prior = (x[:, ::-1] for x in case)
    result = DECODE[variant](params, source=source, source_mask=mask, prior=prior)
    np.testing.assert_array_equal(result.tokens, decoded[variant].tokens)
    np.testing.assert_allclose(result.posterior[:, ::-1], decoded[variant].posterior, atol=1e-5)
