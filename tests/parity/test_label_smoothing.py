"""Label smoothing and retrieval: ours says nothing about passages that the answer does not say; the peer's does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from rag_jax.rag import hf_compat, marginal
from rag_jax.rag.score import answer_token_logprobs, gold_logprobs
from tests.parity.peer import make_case, to_torch
from tests.parity.programs import run

EPS, PASSAGES, VOCAB = 0.1, 3, 400
SCORES = jnp.array([[1.0, 0.2, -0.5]])
PRIOR = np.exp(np.asarray(marginal.log_prior(SCORES)))


def ours(logits, scores, targets, eps):
    logp = gold_logprobs(logits, jnp.broadcast_to(targets[:, None], logits.shape[:-1]), eps, logits.shape[-1])
    mask = jnp.ones(targets.shape, bool)
    return -marginal.sequence_loglik(marginal.log_prior(scores), logp, mask).sum()


def peers(logits, scores, targets, eps):
    labels = jnp.concatenate([jnp.full((1, 1), 2), targets], axis=1)
    logits = jnp.concatenate([logits, logits[:, :, :1]], axis=2)  # of the last label, whose target is padding
    return hf_compat.sequence_loss(logits, scores, labels, pad_id=1, label_smoothing=eps, reduce=True)


def gradient_on_scores(loss, logits, targets, eps):
    gradient = jax.grad(lambda scores, logits, targets: loss(logits, scores, targets, eps))
    return run(gradient, SCORES, logits, targets)


def part_of_smoothing(loss, logits, targets):
    """What smoothing adds to the gradient on the scores, beyond scaling the unsmoothed one."""
    plain, smoothed = (gradient_on_scores(loss, logits, targets, eps) for eps in (0.0, EPS))
    return np.asarray(smoothed - (1 - EPS) * plain)[0]


@pytest.fixture
def logits(rng):
    return jnp.asarray(rng.normal(size=(1, PASSAGES, 3, VOCAB)), jnp.float32)


def test_where_all_passages_say_the_same_smoothing_moves_no_score(logits):
    same = jnp.broadcast_to(logits[:, :1], logits.shape)
    targets = jnp.array([[5, 6, 2]])
    gradient = gradient_on_scores(ours, same, targets, EPS)
    np.testing.assert_allclose(gradient, 0, atol=1e-6)
    # The peer prefers a passage all the same: the best one by the prior, by eps * (prior - onehot).
    np.testing.assert_allclose(
        part_of_smoothing(peers, same, targets), EPS * (PRIOR[0] - np.eye(PASSAGES)[0]), atol=1e-5
    )


def test_the_peers_term_ignores_the_answer_and_ours_does_not(logits):
    answers = [jnp.array([[5, 6, 2]]), jnp.array([[9, 7, 2]])]
    there = [part_of_smoothing(peers, logits, answer) for answer in answers]
    np.testing.assert_allclose(there[0], there[1], atol=1e-6)
    assert np.abs(there[0]).max() > 0.02
    assert sorted(np.round(there[0] / EPS - PRIOR[0], 4)) == [-1, 0, 0]
    here = [part_of_smoothing(ours, logits, answer) for answer in answers]
    assert np.abs(here[0] - here[1]).max() > 1e-3


def test_our_smoothed_gradient_is_prior_minus_posterior(logits):
    targets = jnp.array([[5, 6, 2]])
    # The definition once more, in numpy: inside each passage, between the target's log p and the vocabulary's mean.
    logp = np.asarray(logits, np.float64)[0]
    logp -= np.log(np.exp(logp).sum(-1, keepdims=True))
    gold = np.take_along_axis(logp, np.asarray(targets)[..., None].repeat(PASSAGES, 0), -1)[..., 0]
    smoothed = (1 - EPS) * gold + EPS * logp.mean(-1)
    joint = PRIOR[0] * np.exp(smoothed.sum(-1))
    gradient = gradient_on_scores(ours, logits, targets, EPS)[0]
    np.testing.assert_allclose(gradient, PRIOR[0] - joint / joint.sum(), atol=1e-5)
    assert run(lambda logits: ours(logits, SCORES, targets, EPS), logits) == pytest.approx(
        -np.log(joint.sum()), abs=1e-4
    )


def test_torch_says_the_same_of_its_own_loss():
    case = make_case(4)
    model = case.torch["sequence"]
    same = jnp.broadcast_to(case.source[:, :1], case.source.shape)
    mask = jnp.broadcast_to(case.source_mask[:, :1], case.source.shape)
    scores = jnp.arange(case.source.shape[1], dtype=jnp.float32) * jnp.ones((len(case.labels), 1)) * 0.3

    def gradient(eps):
        model.config.label_smoothing = eps
        given = to_torch(scores).requires_grad_()
        out = model(
            context_input_ids=to_torch(same).flatten(0, 1),
            context_attention_mask=to_torch(mask).flatten(0, 1),
            doc_scores=given,
            labels=to_torch(case.labels),
        )
        out.loss.sum().backward()
        return given.grad

    # Every passage is the same text: no answer can tell them apart, and without smoothing nothing pulls.
    assert gradient(0.0).abs().max() < 1e-5
    p = torch.softmax(to_torch(scores), 1)
    best = torch.nn.functional.one_hot(p.argmax(1), p.shape[1])
    torch.testing.assert_close(gradient(EPS), EPS * (p - best), atol=2e-3, rtol=0)

    def loss(scores):
        params, config = case.ours.params["generator"], case.ours.generator
        targets = hf_compat.shift_left(case.labels, config.pad_id)
        logp = answer_token_logprobs(params, config, same, mask, targets, label_smoothing=EPS)
        return -marginal.sequence_loglik(marginal.log_prior(scores), logp, targets != config.pad_id).sum()

    np.testing.assert_allclose(run(jax.grad(loss), scores), 0, atol=1e-5)
