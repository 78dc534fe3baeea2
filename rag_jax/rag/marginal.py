"""DEVICE. The sum over passages: the paper's equations for RAG-Sequence and RAG-Token (section 2.1), in log space.

    RAG-Sequence   p(y|x) = sum_z p(z|x) prod_t p(y_t | x, z, y_<t)
    RAG-Token      p(y|x) = prod_t sum_z p(z|x) p(y_t | x, z, y_<t)

with p(z|x) proportional to exp(q(x) . d(z)) over the K retrieved passages. Everything here is float32, and everything
that depends on the passages goes through `log_prior`: it is the only way gradients reach the question encoder.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def log_prior(scores: Float[Array, "B K"], valid: Bool[Array, "B K"] | None = None) -> Float[Array, "B K"]:
    """log p(z|x): log-softmax of the scores over the passages that exist.

    Args:
      scores: inner products q.d, any real number.
      valid: false for a place that no passage fills (fewer found than asked for). Such a place gets -inf and no
        gradient; a row without any passage is all -inf.

    Returns:
      float32; exp of it sums to 1 in every row that has a passage.
    """
    scores = scores.astype(jnp.float32)
    if valid is None:
        return jax.nn.log_softmax(scores, axis=-1)
    # A finite stand-in keeps the gradient of the unused branch from turning into NaN.
    masked = jnp.where(valid, scores, jnp.finfo(jnp.float32).min)
    return jnp.where(valid, jax.nn.log_softmax(masked, axis=-1), -jnp.inf)


def answer_logprobs(logp: Float[Array, "B K T"], mask: Bool[Array, "B T"]) -> Float[Array, "B K"]:
    """log p(y|x,z): the sum over the answer's tokens."""
    return jnp.where(mask[:, None, :], logp.astype(jnp.float32), 0.0).sum(-1)


def logsumexp(x: Float[Array, "*axes K"]) -> Float[Array, "*axes"]:
    """Log-sum-exp over the last axis in which an entry of -inf has neither weight nor gradient. NaN stays NaN."""
    peak = jnp.max(x, axis=-1, keepdims=True)
    peak = jax.lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, 0.0))
    present = x != -jnp.inf
    total = jnp.where(present, jnp.exp(jnp.where(present, x, 0.0) - peak), 0.0).sum(-1)
    empty = total == 0
    return jnp.where(empty, -jnp.inf, jnp.log(jnp.where(empty, 1.0, total)) + peak[..., 0])


def normalise(joint: Float[Array, "*axes K"]) -> Float[Array, "*axes K"]:
    """Probabilities over the last axis from log joint probabilities; all 0 where every entry is -inf."""
    present = joint != -jnp.inf
    total = logsumexp(joint)[..., None]
    total = jnp.where(total == -jnp.inf, 0.0, total)
    return jnp.where(present, jnp.exp(jnp.where(present, joint, 0.0) - total), 0.0)


def sequence_loglik(
    prior: Float[Array, "B K"], logp: Float[Array, "B K T"], mask: Bool[Array, "B T"]
) -> Float[Array, "B"]:
    """RAG-Sequence: log p(y|x) = logsumexp_z( log p(z|x) + sum_t log p(y_t|x,z,y_<t) ).

    Args:
      prior: log p(z|x) from `log_prior`.
      logp: log-probability of each answer token under each passage.
      mask: true on the answer's tokens, its end token counted.
    """
    return logsumexp(prior + answer_logprobs(logp, mask))


def token_loglik(
    prior: Float[Array, "B K"], logp: Float[Array, "B K T"], mask: Bool[Array, "B T"]
) -> Float[Array, "B"]:
    """RAG-Token: log p(y|x) = sum_t logsumexp_z( log p(z|x) + log p(y_t|x,z,y_<t) ). Arguments as `sequence_loglik`."""
    mixed = logsumexp((prior[:, :, None] + logp.astype(jnp.float32)).swapaxes(1, 2))
    return jnp.where(mask, mixed, 0.0).sum(-1)


def sequence_posterior(
    prior: Float[Array, "B K"], logp: Float[Array, "B K T"], mask: Bool[Array, "B T"]
) -> Float[Array, "B K"]:
    """p(z|x,y) for a whole answer: which passage it came from. Sums to 1 over K; 0 without any passage."""
    return normalise(prior + answer_logprobs(logp, mask))


def token_posterior(
    prior: Float[Array, "B K"], logp: Float[Array, "B K T"], mask: Bool[Array, "B T"]
) -> Float[Array, "B K T"]:
    """p(z|x,y_<=t) for each token of RAG-Token (the paper's figure 2). Sums to 1 over K; 0 where `mask` is false."""
    posterior = normalise((prior[:, :, None] + logp.astype(jnp.float32)).swapaxes(1, 2))
    return jnp.where(mask[:, None, :], posterior.swapaxes(1, 2), 0.0)


def next_token_logprobs(prior: Float[Array, "B K"], logits: Float[Array, "B K *N V"]) -> Float[Array, "B *N V"]:
    """RAG-Token's next-token distribution: log sum_z p(z|x) softmax(logits_z). exp of it sums to 1 over V.

    Between K and V there may be an axis of beams.
    """
    logp = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    by_token = jnp.moveaxis(logp.swapaxes(0, 1), -1, 0)
    return jnp.moveaxis(next_token_mixture(prior, by_token), 0, -1)


def next_token_mixture(prior: Float[Array, "B K"], logp: Float[Array, "V K B *N"]) -> Float[Array, "V B *N"]:
    """log sum_z p(z|x) p(. | z) from log-probabilities, with the vocabulary first, as the decoder's head gives them.

    For decoding: unlike `logsumexp` it does not care for gradients at a prior of -inf.
    """
    prior = prior.T.reshape(*prior.shape[::-1], *(1,) * (logp.ndim - 3))
    return jax.nn.logsumexp(prior + logp, axis=1)
