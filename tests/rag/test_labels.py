"""Classification by one token against the general scoring of answers, and which words can be labels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.bart import Bart
from rag_jax.rag import marginal
from rag_jax.rag.labels import decode_labels
from rag_jax.rag.score import answer_token_logprobs
from tests.small_models import SMALL_BART

CONFIG = SMALL_BART
B, K, S = 4, 3, 8
LABELS = (7, 12, 5)


@pytest.fixture(scope="module")
def case():
    ids, real = jnp.ones((1, 4), jnp.int32), jnp.ones((1, 4), bool)
    params = jax.jit(Bart(CONFIG).init)(jax.random.key(3), ids, real, ids)["params"]
    rng = np.random.default_rng(5)
    mask = np.arange(S) < rng.integers(4, S + 1, (B, K, 1))
    source = jnp.asarray(np.where(mask, rng.integers(3, 21, (B, K, S)), CONFIG.pad_id), jnp.int32)
    valid = jnp.ones((B, K), bool).at[1, 2].set(False)
    prior = marginal.log_prior(jnp.asarray(rng.normal(size=(B, K)), jnp.float32), valid)
    return params, source, jnp.asarray(mask), prior


@pytest.fixture(scope="module")
def decoded(case):
    params, source, mask, prior = case
    return jax.device_get(jax.jit(decode_labels, static_argnums=(1, 5))(params, CONFIG, source, mask, prior, LABELS))


@pytest.fixture(scope="module")
def scored(case):
    """log p(label|x,z) [C,B,K], by the function that the loss is made of."""
    params, source, mask, _ = case
    score = jax.jit(lambda targets: answer_token_logprobs(params, CONFIG, source, mask, targets)[..., 0])
    return np.stack([score(jnp.full((B, 1), label, jnp.int32)) for label in LABELS])


def test_labels_come_in_the_order_of_their_marginal_probability(case, decoded, scored):
    prior = np.asarray(case[3])
    p = np.exp(prior + scored).sum(-1)  # [C,B]
    order = np.argsort(-p, axis=0)
    assert decoded.tokens.shape == (B, len(LABELS), 1)
    assert decoded.tokens[..., 0].tolist() == np.array(LABELS)[order].T.tolist()
    np.testing.assert_allclose(np.exp(decoded.logprob), np.take_along_axis(p, order, 0).T, rtol=1e-5)
    assert len({tuple(row) for row in order.T}) > 1


def test_both_losses_of_a_label_are_its_marginal(case, decoded, scored):
    prior, real = case[3], jnp.ones((B, 1), bool)
    rows = jnp.arange(B)
    best = np.array([LABELS.index(token) for token in decoded.tokens[:, 0, 0]])
    logp = jnp.asarray(scored)[best, rows][..., None]
    for loglik in (marginal.sequence_loglik, marginal.token_loglik):
        np.testing.assert_allclose(loglik(prior, logp, real), decoded.logprob[:, 0], rtol=1e-5)


def test_posteriors_of_a_label_sum_to_one_and_leave_out_what_is_no_passage(decoded):
    np.testing.assert_allclose(decoded.posterior.sum(-1), 1.0, rtol=1e-5)
    assert (decoded.posterior[1, :, 2] == 0).all()
