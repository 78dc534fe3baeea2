"""DEVICE. Greedy decoding of RAG-Token and RAG-Sequence (the paper's section 2.5), jitted, many questions at once.

Every (question, passage) pair is encoded once; its keys and values serve all steps, and its encoder states serve the
exact rescoring of thorough decoding.
"""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.models.bart import Bart, BartConfig, shift_right
from rag_jax.models.bart_step import cross_caches, decode_step, empty_caches, unstack_layers
from rag_jax.rag import marginal
from rag_jax.rag.score import gold_logprobs


@flax.struct.dataclass
class Decoded:
    """Answers as token ids, with what they came from.

    Attributes:
      tokens: int32 [B,T], the end token included, padding after it.
      logprob: float32 [B], log p(y|x).
      posterior: float32 [B,K], p(z|x,y). For RAG-Token the mean over the answer's tokens of `token_posterior`.
      token_posterior: float32 [B,K,T] for RAG-Token, None for RAG-Sequence.
    """

    tokens: Any
    logprob: Any
    posterior: Any
    token_posterior: Any = None


def _encode(params: Any, config: BartConfig, source: Array, source_mask: Array) -> tuple[Array, Array]:
    """Encoder states of all pairs as rows [B*K, S, D], and their mask."""
    width = source.shape[-1]
    mask = source_mask.reshape(-1, width)
    model = Bart(config)
    return model.apply({"params": params}, source.reshape(-1, width), mask, method=model.encode), mask


def _greedy(
    params: Any,
    config: BartConfig,
    encoded: Float[Array, "R S D"],
    source_mask: Bool[Array, "R S"],
    prior: Float[Array, "B K"] | None,
    max_tokens: int,
) -> tuple[Int[Array, "R T"], Float[Array, "R T"]]:
    """One greedy hypothesis a row; with `prior`, the rows of a question are mixed before each choice and share it.

    Returns:
      Token ids, and the log-probability under each row of the token at each place.
    """
    split = unstack_layers(params, config)
    rows = encoded.shape[0]
    cross = cross_caches(split, config, encoded)
    slots = jnp.arange(max_tokens)

    def unfinished(state: Any) -> Array:
        step, _, _, _, done = state
        return (step < max_tokens) & ~done.all()

    def advance(state: Any) -> Any:
        step, tokens, logps, caches, done = state
        last = jnp.where(step == 0, config.decoder_start_id, tokens[:, jnp.maximum(step - 1, 0)])
        seen = jnp.broadcast_to(slots <= step, (rows, 1, max_tokens))
        logits, caches = decode_step(split, config, last[:, None], step, caches, cross, seen, source_mask)
        logits = logits[:, 0]
        if prior is None:
            chosen = logits.at[:, config.pad_id].set(-jnp.inf).argmax(-1)  # padding is not a word
        else:
            mixed = marginal.next_token_logprobs(prior, logits.reshape(*prior.shape, -1))
            chosen = jnp.repeat(mixed.at[:, config.pad_id].set(-jnp.inf).argmax(-1), prior.shape[1])
        chosen = jnp.where(done, config.pad_id, chosen).astype(jnp.int32)
        gained = jnp.where(done, 0.0, gold_logprobs(logits, chosen))
        done = done | (chosen == config.eos_id)
        return step + 1, tokens.at[:, step].set(chosen), logps.at[:, step].set(gained), caches, done

    start = (
        jnp.zeros((), jnp.int32),
        jnp.full((rows, max_tokens), config.pad_id, jnp.int32),
        jnp.zeros((rows, max_tokens), jnp.float32),
        empty_caches(config, rows, max_tokens),
        jnp.zeros(rows, bool),
    )
    _, tokens, logps, _, _ = jax.lax.while_loop(unfinished, advance, start)
    return tokens, logps


def decode_token(
    params: Any,
    config: BartConfig,
    source: Int[Array, "B K S"],
    source_mask: Bool[Array, "B K S"],
    prior: Float[Array, "B K"],
    max_tokens: int,
) -> Decoded:
    """RAG-Token, greedy: at each step the likeliest token of sum_z p(z|x) p(. | x, z, y_<t).

    Args:
      params: the generator's parameters.
      config: its sizes.
      source: joined question and passage.
      source_mask: true on real tokens.
      prior: log p(z|x); -inf for a passage that does not exist.
      max_tokens: the longest answer, its end token included.
    """
    batch, passages = prior.shape
    encoded, mask = _encode(params, config, source, source_mask)
    tokens, logps = _greedy(params, config, encoded, mask, prior, max_tokens)
    tokens = tokens.reshape(batch, passages, -1)[:, 0]
    logp, real = logps.reshape(batch, passages, -1), tokens != config.pad_id
    by_token = marginal.token_posterior(prior, logp, real)
    mean = by_token.sum(-1) / jnp.maximum(real.sum(-1), 1)[:, None]
    return Decoded(tokens, marginal.token_loglik(prior, logp, real), mean, by_token)


def decode_sequence(
    params: Any,
    config: BartConfig,
    source: Int[Array, "B K S"],
    source_mask: Bool[Array, "B K S"],
    prior: Float[Array, "B K"],
    max_tokens: int,
) -> Decoded:
    """RAG-Sequence, thorough, with one greedy hypothesis a passage: every hypothesis is scored under every passage.

    The answer is the hypothesis y of largest sum_z p(z|x) p(y|x,z). Equal hypotheses have equal scores, so none needs
    to be removed. Arguments as `decode_token`.
    """
    batch, passages = prior.shape
    encoded, mask = _encode(params, config, source, source_mask)
    tokens, _ = _greedy(params, config, encoded, mask, None, max_tokens)
    candidates = tokens.reshape(batch, passages, max_tokens)
    # A passage that does not exist has a hypothesis too: it must not be chosen, whatever the others give it.
    exists = prior > -jnp.inf

    def score(candidate: Int[Array, "B T"]) -> tuple[Float[Array, "B"], Float[Array, "B K"]]:
        logp = _score_under_all(params, config, encoded, mask, candidate, passages)
        real = candidate != config.pad_id
        return marginal.sequence_loglik(prior, logp, real), marginal.sequence_posterior(prior, logp, real)

    logprob, posterior = jax.lax.map(score, candidates.swapaxes(0, 1))  # one candidate of each question at a time
    best = jnp.where(exists.T, logprob, -jnp.inf).argmax(0)
    rows = jnp.arange(batch)
    return Decoded(candidates[rows, best], logprob[best, rows], posterior[best, rows])


def _score_under_all(
    params: Any, config: BartConfig, encoded: Array, mask: Array, answer: Int[Array, "B T"], passages: int
) -> Float[Array, "B K T"]:
    """log p of one answer's tokens under each passage of its question, from encoder states."""
    model = Bart(config)
    inputs = jnp.repeat(shift_right(answer, config.decoder_start_id), passages, axis=0)
    states = model.apply({"params": params}, inputs, encoded, mask, method=model.decode)
    logits = model.apply({"params": params}, states, method=model.logits)
    gold = gold_logprobs(logits, jnp.repeat(answer, passages, axis=0))
    return gold.reshape(answer.shape[0], passages, -1)
