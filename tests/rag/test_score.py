"""Scores of passages and answers: where gradients go, smoothing, and a generator whose answers sum to 1."""

import dataclasses
import functools
import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.bart import Bart
from rag_jax.rag import marginal, score
from rag_jax.rag.score import answer_token_logprobs, gold_logprobs, passage_scores
from tests.small_models import ONE_LAYER_BART

CONFIG = dataclasses.replace(ONE_LAYER_BART, vocab_size=7, max_positions=8)
SOURCE = jnp.asarray([[[0, 5, 6, 2, 3, 2], [0, 5, 6, 2, 4, 2], [0, 5, 6, 2, 2, 1]]], jnp.int32)


@pytest.fixture(scope="module")
def params():
    ids = jnp.ones((1, 4), jnp.int32)
    return jax.jit(Bart(CONFIG).init)(jax.random.key(0), ids, ids == 1, ids)["params"]


@functools.partial(jax.jit, static_argnames="label_smoothing")
def token_logprobs(params, source, targets, label_smoothing=0.0, dropout_key=None):
    mask = source != CONFIG.pad_id
    return answer_token_logprobs(
        params, CONFIG, source, mask, targets, label_smoothing=label_smoothing, dropout_key=dropout_key
    )


def test_passage_scores_are_inner_products_in_float32(rng):
    # 75.03 and 75.0 are the same in bfloat16.
    query, vectors = jnp.asarray([[75.03, 1.0]]), jnp.asarray([[[1.0, 0.0], [1.0, -0.03]]])
    scores = passage_scores(query, vectors)
    assert scores.dtype == jnp.float32
    np.testing.assert_allclose(scores, [[75.03, 75.0]], rtol=1e-6)
    query, vectors = rng.normal(size=(3, 8)), rng.normal(size=(3, 4, 8))
    found = passage_scores(jnp.asarray(query, jnp.float32), jnp.asarray(vectors, jnp.float32))
    np.testing.assert_allclose(found, (query[:, None] * vectors).sum(-1), atol=1e-5)


def test_gradient_of_scores_reaches_the_query_and_never_the_vectors(rng):
    query, vectors = jnp.asarray(rng.normal(size=(3, 8))), jnp.asarray(rng.normal(size=(3, 4, 8)))
    by_query, by_vectors = jax.grad(lambda q, v: passage_scores(q, v).sum(), (0, 1))(query, vectors)
    np.testing.assert_allclose(by_query, vectors.sum(1), atol=1e-5)
    assert (by_vectors == 0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_gold_logprobs_are_those_of_a_log_softmax_over_real_entries(rng, smoothing):
    real = jnp.asarray(rng.normal(size=(4, 5, 7)) * 4, jnp.float32)
    padded = jnp.concatenate([real, jnp.full((4, 5, 3), jnp.finfo(jnp.float32).min)], axis=-1)
    targets = jnp.asarray(rng.integers(0, 7, (4, 5)))
    full = jax.nn.log_softmax(real, axis=-1)
    gold = jnp.take_along_axis(full, targets[..., None], axis=-1)[..., 0]
    expected = (1 - smoothing) * gold + smoothing * full.mean(-1)
    value = lambda x: gold_logprobs(x, targets, smoothing, 7)  # noqa: E731
    np.testing.assert_allclose(value(padded), expected, atol=1e-5)
    gradient = jax.grad(lambda x: value(x).sum())(padded)
    wanted = (1 - smoothing) * jax.nn.one_hot(targets, 7) + smoothing / 7 - jnp.exp(full)
    np.testing.assert_allclose(gradient[..., :7], wanted, atol=1e-6)
    assert (gradient[..., 7:] == 0).all()


def test_every_passage_is_scored_as_if_alone(params):
    targets = jnp.asarray([[4, 3, 2]], jnp.int32)
    together = token_logprobs(params, SOURCE, targets)
    assert together.shape == (1, 3, 3)
    alone = jnp.concatenate([token_logprobs(params, SOURCE[:, k : k + 1], targets) for k in range(3)], axis=1)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert np.abs(together[0, 0] - together[0, 1]).max() > 1e-3


def test_answers_meet_the_passages_of_their_own_question(params):
    sources = jnp.concatenate([SOURCE, SOURCE[:, ::-1].at[:, :, 1].set(3)])
    targets = jnp.asarray([[4, 3, 2], [5, 6, 2]], jnp.int32)
    both = token_logprobs(params, sources, targets)
    for row in range(2):
        alone = token_logprobs(params, sources[row : row + 1], targets[row : row + 1])
        np.testing.assert_allclose(both[row : row + 1], alone, atol=1e-5)


def test_dropout_needs_a_key(params):
    targets = jnp.asarray([[4, 3, 2]], jnp.int32)
    quiet = token_logprobs(params, SOURCE, targets)
    loud = [token_logprobs(params, SOURCE, targets, dropout_key=jax.random.key(i)) for i in (0, 0, 1)]
    np.testing.assert_array_equal(loud[0], loud[1])
    assert np.abs(loud[0] - quiet).max() > 1e-3
    assert np.abs(loud[0] - loud[2]).max() > 1e-3


@pytest.mark.parametrize("loglik", [marginal.sequence_loglik, marginal.token_loglik], ids=["sequence", "token"])
def test_probabilities_of_all_answers_of_the_generator_sum_to_one(params, loglik):
    """All ends after one token, and everything else that can stand in two."""
    end, words = CONFIG.eos_id, range(CONFIG.vocab_size)
    answers = [(end, 1), *itertools.product([w for w in words if w != end], words)]
    mask = jnp.asarray([[True, answer[0] != end] for answer in answers])
    prior = jnp.broadcast_to(marginal.log_prior(jnp.asarray([[1.0, 0.2, 0.0]])), (len(answers), 3))
    logp = token_logprobs(params, jnp.repeat(SOURCE, len(answers), axis=0), jnp.asarray(answers, jnp.int32))
    probabilities = np.exp(loglik(prior, logp, mask))
    assert len(answers) == 43
    assert probabilities.sum() == pytest.approx(1, abs=1e-5)


def test_smoothed_gradient_on_scores_is_prior_minus_posterior_of_the_smoothed(params):
    targets = jnp.asarray([[4, 3, 2]], jnp.int32)
    mask, scores = jnp.ones((1, 3), bool), jnp.asarray([[1.0, 0.2, 0.0]])
    plain, smoothed = (token_logprobs(params, SOURCE, targets, label_smoothing=eps) for eps in (0.0, 0.3))
    gradient = jax.grad(lambda s: -marginal.sequence_loglik(marginal.log_prior(s), smoothed, mask).sum())(scores)
    prior = marginal.log_prior(scores)
    of = {
        name: np.exp(prior) - marginal.sequence_posterior(prior, x, mask) for name, x in (("s", smoothed), ("p", plain))
    }
    np.testing.assert_allclose(gradient, of["s"], atol=1e-6)
    assert np.abs(of["s"] - of["p"]).max() > 1e-3


def test_time_is_cut_only_where_the_logits_would_be_too_large():
    gib = score.LOGITS_BYTES
    assert score.time_chunks(320, 64, 50304) == 4  # 4.1e9 bytes
    assert score.time_chunks(20, 64, 50304) == 1
    assert score.time_chunks(1, 8, gib // 32) == 1
    assert score.time_chunks(1, 8, gib // 32 + 1) == 2
    assert score.time_chunks(1, 7, gib) == 7  # no cut is equal but that into single tokens
    assert score.time_chunks(gib, 4, gib) == 4


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_logits_made_in_parts_give_the_same_probabilities_and_gradients(params, monkeypatch, smoothing):
    """And no array holds a vocabulary for every token: neither the logits nor what is mixed of them."""
    targets = jnp.asarray([[3, 4, 6, 2]])
    mask = CONFIG.pad_id != SOURCE

    def total(params):
        logp = answer_token_logprobs(params, CONFIG, SOURCE, mask, targets, label_smoothing=smoothing)
        return marginal.token_loglik(jnp.log(jnp.asarray([[0.5, 0.3, 0.2]])), logp, targets != CONFIG.pad_id).sum()

    def run():
        compiled = jax.jit(jax.value_and_grad(total)).lower(params).compile()
        shapes = {tuple(map(int, found.split(","))) for found in re.findall(r"f32\[([\d,]+)\]", compiled.as_text())}
        return compiled(params), {math.prod(shape) for shape in shapes if CONFIG.table_rows in shape}

    (value, gradient), sizes = run()
    monkeypatch.setattr(score, "LOGITS_BYTES", 3 * 2 * 8 * 4)
    (in_parts, gradient_in_parts), sizes_in_parts = run()
    np.testing.assert_allclose(in_parts, value, rtol=1e-6)
    # Of one array it would not do: the gradient of keys' biases is 0 but for rounding.
    most = max(np.abs(leaf).max() for leaf in jax.tree.leaves(gradient))
    near = {"rtol": 1e-4, "atol": 1e-6 * float(most)}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **near), gradient_in_parts, gradient)
    everything = 3 * 4 * 8  # K x T x V
    assert everything in sizes
    assert everything not in sizes_in_parts
