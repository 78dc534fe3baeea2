"""The sum over passages against worked examples, plain enumeration and its own laws."""

import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.rag import marginal as by_operation

NAMES = ("log_prior", "next_token_logprobs", "sequence_loglik", "sequence_posterior", "token_loglik", "token_posterior")
# Whole programs: operation by operation, every one of them would be compiled for every shape.
marginal = types.SimpleNamespace(**{name: jax.jit(getattr(by_operation, name)) for name in NAMES})
BOTH = {"sequence": marginal.sequence_loglik, "token": marginal.token_loglik}
both = pytest.mark.parametrize("loglik", BOTH.values(), ids=BOTH.keys())


def example(prior, by_passage):
    """One question: its prior and token probabilities [passage][token], as the arguments of the likelihoods."""
    logp = jnp.log(jnp.asarray([by_passage], jnp.float32))
    return jnp.log(jnp.asarray([prior], jnp.float32)), logp, jnp.ones((1, logp.shape[-1]), bool)


def random_case(rng, batch=4, passages=5, tokens=6):
    """Scores, answer log-probabilities and a mask whose answers have 1..tokens tokens."""
    scores = jnp.asarray(rng.normal(size=(batch, passages)) * 2, jnp.float32)
    logp = jnp.asarray(-rng.exponential(size=(batch, passages, tokens)), jnp.float32)
    lengths = rng.integers(1, tokens + 1, batch)
    return scores, logp, jnp.asarray(np.arange(tokens) < lengths[:, None])


def p(loglik, *case):
    (value,) = np.exp(np.asarray(loglik(*case)))
    return value


def test_worked_example_of_two_passages_and_two_tokens():
    case = example((0.7, 0.3), ((0.9, 0.2), (0.1, 0.8)))
    assert p(marginal.sequence_loglik, *case) == pytest.approx(0.150, abs=1e-6)
    assert p(marginal.token_loglik, *case) == pytest.approx(0.2508, abs=1e-6)
    assert -float(marginal.token_loglik(*case)[0]) == pytest.approx(1.38, abs=0.005)


@pytest.mark.parametrize(("scores", "prior"), [((2.0, 1.15), (0.70, 0.30)), ((1.0, 0.2, 0.0), (0.550, 0.247, 0.202))])
def test_worked_example_of_the_prior(scores, prior):
    found = np.exp(marginal.log_prior(jnp.asarray([scores])))[0]
    np.testing.assert_allclose(found, prior, atol=0.0006)


@pytest.mark.parametrize(
    ("tokens", "sequence", "token"),
    [(((0.8, 0.9), (0.4, 0.1)), 0.516, 0.449), (((0.1, 0.5), (0.5, 0.2)), 0.065, 0.090)],
    ids=["born Hawaii", "Chicago Hawaii"],
)
def test_worked_example_of_obama(tokens, sequence, token):
    case = example((0.7, 0.3), tokens)
    assert p(marginal.sequence_loglik, *case) == pytest.approx(sequence, abs=0.0006)
    assert p(marginal.token_loglik, *case) == pytest.approx(token, abs=0.0006)


def test_worked_example_of_the_posterior():
    case = example((0.7, 0.3), ((0.9,), (0.2,)))
    np.testing.assert_allclose(marginal.sequence_posterior(*case)[0], (0.91, 0.09), atol=0.005)
    np.testing.assert_allclose(marginal.token_posterior(*case)[0, :, 0], (0.91, 0.09), atol=0.005)


def test_gradient_of_the_sequence_loss_is_prior_minus_posterior(rng):
    scores, logp, mask = random_case(rng)
    loss = lambda s: -marginal.sequence_loglik(marginal.log_prior(s), logp, mask).sum()  # noqa: E731
    prior = marginal.log_prior(scores)
    expected = np.exp(prior) - marginal.sequence_posterior(prior, logp, mask)
    assert np.abs(expected).max() > 0.05
    np.testing.assert_allclose(jax.grad(loss)(scores), expected, atol=1e-6)


def test_gradient_of_the_token_loss_is_the_sum_over_tokens_of_prior_minus_posterior(rng):
    scores, logp, mask = random_case(rng)
    loss = lambda s: -marginal.token_loglik(marginal.log_prior(s), logp, mask).sum()  # noqa: E731
    prior = marginal.log_prior(scores)
    by_token = np.exp(prior) * np.asarray(mask.sum(-1, keepdims=True)) - marginal.token_posterior(
        prior, logp, mask
    ).sum(-1)
    np.testing.assert_allclose(jax.grad(loss)(scores), by_token, atol=1e-6)


def test_variants_agree_for_one_passage(rng):
    scores, logp, mask = random_case(rng, passages=1)
    prior = marginal.log_prior(scores)
    np.testing.assert_allclose(
        marginal.sequence_loglik(prior, logp, mask), marginal.token_loglik(prior, logp, mask), rtol=1e-6
    )


def test_variants_agree_for_answers_of_one_token_and_only_for_them(rng):
    scores, logp, _ = random_case(rng)
    prior = marginal.log_prior(scores)
    sequence, token = (
        np.stack([f(prior, logp, jnp.broadcast_to(jnp.arange(6) < n, (4, 6))) for n in (1, 2)]) for f in BOTH.values()
    )
    np.testing.assert_allclose(sequence[0], token[0], rtol=1e-6)
    assert np.abs(sequence[1] - token[1]).min() > 1e-4


@both
def test_order_of_passages_does_not_matter(rng, loglik):
    scores, logp, mask = random_case(rng)
    order = np.array([3, 0, 4, 1, 2])
    straight = loglik(marginal.log_prior(scores), logp, mask)
    np.testing.assert_allclose(loglik(marginal.log_prior(scores[:, order]), logp[:, order], mask), straight, rtol=1e-6)


@both
def test_masked_tokens_do_not_count(rng, loglik):
    scores, logp, mask = random_case(rng)
    prior = marginal.log_prior(scores)
    other = jnp.where(mask[:, None], logp, -50.0)
    np.testing.assert_array_equal(loglik(prior, logp, mask), loglik(prior, other, mask))


@both
def test_an_invalid_passage_counts_for_nothing(rng, loglik):
    scores, logp, mask = random_case(rng)
    valid = jnp.asarray([True, False, True, True, False])
    kept = np.flatnonzero(valid)
    few = loglik(marginal.log_prior(scores[:, kept]), logp[:, kept], mask)
    # The places that nothing fills have the largest score, and explain the answer best.
    scores, logp = jnp.where(valid, scores, 90.0), jnp.where(valid[:, None], logp, 0.0)
    prior = marginal.log_prior(scores, jnp.broadcast_to(valid, scores.shape))
    np.testing.assert_allclose(loglik(prior, logp, mask), few, rtol=1e-6)
    assert (np.exp(prior)[:, ~np.asarray(valid)] == 0).all()
    assert (marginal.sequence_posterior(prior, logp, mask)[:, ~np.asarray(valid)] == 0).all()
    assert (marginal.token_posterior(prior, logp, mask)[:, ~np.asarray(valid)] == 0).all()


@both
@pytest.mark.parametrize("score", [0.0, 90.0, -jnp.inf, jnp.nan], ids=str)
def test_an_invalid_passage_has_no_gradient(rng, loglik, score):
    scores, logp, mask = random_case(rng)
    valid = jnp.broadcast_to(jnp.asarray([True, False, True, True, False]), scores.shape)
    loss = lambda s, x: -loglik(marginal.log_prior(s, valid), x, mask).sum()  # noqa: E731
    by_score, by_logp = jax.grad(loss, (0, 1))(jnp.where(valid, scores, score), logp)
    assert np.isfinite(by_score).all()
    assert np.isfinite(by_logp).all()
    assert (np.asarray(by_score)[~valid] == 0).all()
    assert (np.asarray(by_logp)[~valid] == 0).all()
    assert np.abs(by_score).max() > 1e-3


@both
def test_a_question_without_passages_is_impossible_and_has_no_gradient(rng, loglik):
    scores, logp, mask = random_case(rng)
    valid = jnp.asarray([[True] * 5, [False] * 5, [True] * 5, [True] * 5])
    value = lambda s: loglik(marginal.log_prior(s, valid), logp, mask)  # noqa: E731
    assert value(scores)[1] == -jnp.inf
    gradient = jax.grad(lambda s: jnp.where(valid.any(-1), value(s), 0.0).sum())(scores)
    assert np.isfinite(gradient).all()
    assert (gradient[1] == 0).all()


def test_prior_of_what_exists_sums_to_one(rng):
    scores, _, _ = random_case(rng)
    valid = jnp.asarray(rng.random((4, 5)) < 0.5).at[:, 0].set(True)
    np.testing.assert_allclose(np.exp(marginal.log_prior(scores, valid)).sum(-1), 1, atol=1e-6)


def test_prior_is_float32_from_bfloat16_scores_and_survives_large_ones():
    scores = jnp.asarray([[75.0, 74.0], [3e38, -3e38]], jnp.bfloat16)
    prior = marginal.log_prior(scores)
    assert prior.dtype == jnp.float32
    np.testing.assert_allclose(np.exp(prior)[0], (0.7311, 0.2689), atol=1e-4)
    assert np.exp(prior)[1].tolist() == [1, 0]


def test_posteriors_sum_to_one_where_there_is_a_token(rng):
    scores, logp, mask = random_case(rng)
    prior = marginal.log_prior(scores)
    np.testing.assert_allclose(marginal.sequence_posterior(prior, logp, mask).sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(marginal.token_posterior(prior, logp, mask).sum(1), mask.astype(jnp.float32), atol=1e-6)


def test_next_token_distribution_is_the_mixture_and_sums_to_one(rng):
    scores, _, _ = random_case(rng)
    prior = marginal.log_prior(scores, jnp.ones((4, 5), bool).at[0, 2].set(False))
    logits = rng.normal(size=(4, 5, 11)).astype(np.float32) * 3
    mixed = np.exp(marginal.next_token_logprobs(prior, jnp.asarray(logits)))
    np.testing.assert_allclose(mixed.sum(-1), 1, atol=1e-5)
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(mixed, (np.exp(prior)[:, :, None] * softmax).sum(1), atol=1e-6)


@both
def test_probabilities_of_a_closed_language_sum_to_one(rng, loglik):
    """Words 0 and 1, the end 2; after three words nothing but the end."""
    end, longest = 2, 4
    answers = [(*words, end) for n in range(longest) for words in itertools.product((0, 1), repeat=n)]
    tables = {}  # prefix -> p(next | passage, prefix), [passage, 3]

    def next_token(prefix):
        if len(prefix) == longest - 1:
            return np.array([[0.0, 0.0, 1.0]] * 3)
        return tables.setdefault(prefix, rng.dirichlet(np.ones(3), size=3))

    logp = np.zeros((len(answers), 3, longest), np.float32)
    mask = np.zeros((len(answers), longest), bool)
    for row, answer in enumerate(answers):
        for t, token in enumerate(answer):
            logp[row, :, t] = np.log(next_token(answer[:t])[:, token])
            mask[row, t] = True
    prior = jnp.broadcast_to(jnp.log(jnp.asarray([0.5, 0.3, 0.2])), (len(answers), 3))
    probabilities = np.exp(loglik(prior, jnp.asarray(logp), jnp.asarray(mask)))
    assert len(answers) == 15
    assert probabilities.sum() == pytest.approx(1, abs=1e-5)


def test_question_without_any_passage_has_no_posterior_and_no_nan():
    prior = marginal.log_prior(jnp.zeros((2, 3)), jnp.array([[False] * 3, [True] * 3]))
    logp, mask = jnp.full((2, 3, 2), -1.0), jnp.ones((2, 2), bool)
    for posterior in (marginal.sequence_posterior(prior, logp, mask), marginal.token_posterior(prior, logp, mask)):
        assert (posterior[0] == 0).all()
        np.testing.assert_allclose(posterior[1].sum(0), 1, rtol=1e-6)
    assert marginal.sequence_loglik(prior, logp, mask)[0] == -jnp.inf


@both
def test_a_passage_of_nan_is_not_taken_for_one_without_weight(loglik):
    logp = jnp.full((1, 2, 3), -1.0).at[0, 1, 2].set(jnp.nan)
    assert jnp.isnan(loglik(marginal.log_prior(jnp.zeros((1, 2))), logp, jnp.ones((1, 3), bool))[0])
