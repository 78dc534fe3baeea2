"""DEVICE. Exact scores of many candidate answers under every passage: thorough decoding's second half.

Candidates of one question share prefixes and the log-probability of a prefix is an upper bound on that of every answer
that begins with it. So the candidates are laid out as a tree whose nodes are prefixes, a node is computed once for all
candidates that pass through it, and a candidate that can no longer be among the best is dropped. Both are exact: no
answer that could be returned is lost.

Axis names: C candidates a question, M = C x T nodes, W nodes computed at a time, L slots of the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.rag import marginal
from rag_jax.rag.beam import pick

SLACK = 1e-3  # nats: what rounding may cost a bound

Forward = Callable[[Any, Array, Array, Array, Array], tuple[Array, Any]]
"""(caches, tokens [B,W], places [B,W], first slot, slots seen [B,W,L]) -> (log-probabilities [B,K,W,V], caches)."""


class Rescored(NamedTuple):
    """The best candidates, the best first.

    Attributes:
      index: int32 [B,n], which candidate.
      logprob: float32 [B,n], log p(y|x); -inf where there are fewer distinct candidates.
      under: float32 [B,n,K], log p(y|x,z).
      computed: int32 [B], nodes that were computed, of C x T.
    """

    index: Any
    logprob: Any
    under: Any
    computed: Any


def same_answers(candidates: Int[Array, "B C T"]) -> Bool[Array, "B C C"]:
    """Which candidates are equal."""
    return (candidates[:, :, None] == candidates[:, None, :]).all(-1)


def known_loglik(
    candidates: Int[Array, "B C T"], own: Float[Array, "B C"], owner: Int[Array, "C"], passages: int
) -> Float[Array, "B C K"]:
    """log p(y|x,z) as far as the searches have found it: under the passages whose beam holds y; -inf elsewhere."""
    same = same_answers(candidates)
    value = jnp.where(same, own[:, None, :], -jnp.inf)  # [B, C, C']
    holds = owner[:, None] == jnp.arange(passages)
    return jnp.where(holds, value[..., None], -jnp.inf).max(-2)


def fast_scores(
    candidates: Int[Array, "B C T"], prior: Float[Array, "B K"], known: Float[Array, "B C K"]
) -> Float[Array, "B C"]:
    """Fast decoding's score: log p(y|x) from the passages whose beam holds y, a lower bound on the whole.

    -inf for a candidate that repeats an earlier one, or that no passage has.
    """
    count = candidates.shape[1]
    earlier = jnp.tril(jnp.ones((count, count), bool), -1)
    repeats = (same_answers(candidates) & earlier).any(-1)
    return jnp.where(repeats, -jnp.inf, marginal.logsumexp(prior[:, None] + known))


def rescore(
    forward: Forward,
    caches: Any,
    candidates: Int[Array, "B C T"],
    prior: Float[Array, "B K"],
    known: Float[Array, "B C K"],
    *,
    best: int,
    start_id: int,
    pad_id: int,
    chunk: int,
    prune: bool = True,
) -> Rescored:
    """The `best` candidates by log p(y|x) = logsumexp_z( log p(z|x) + log p(y|x,z) ), equal ones once.

    Args:
      forward: runs nodes through the decoder. Its caches need `slots_needed(C, T, chunk)` slots.
      caches: what it keeps.
      candidates: answers with their end tokens, padding after it.
      prior: log p(z|x).
      known: from `known_loglik`. `fast_scores` of it are lower bounds, so pruning starts with a mark. A candidate
        that is -inf under every passage is none.
      best: how many are wanted.
      start_id, pad_id: the generator's special tokens.
      chunk: nodes W computed at a time for each question.
      prune: False computes every node, for comparison.
    """
    batch, count, length = candidates.shape
    passages, nodes = prior.shape[1], count * length
    inputs = jnp.concatenate([jnp.full_like(candidates[..., :1], start_id), candidates[..., :-1]], axis=-1)
    real = candidates != pad_id

    # The node of (c, t) is that of the first candidate with the same t tokens before.
    equal = jnp.cumprod(inputs[:, :, None] == inputs[:, None, :], axis=-1).astype(bool)  # [B, C, C', T]
    node = equal.argmax(2) * length + jnp.arange(length)  # [B, C, T]
    flat = node.reshape(batch, nodes)

    floor = fast_scores(candidates, prior, known)
    exists = floor > -jnp.inf
    # Shallow nodes first, and among them those of promising candidates: a parent always comes before its children.
    rank = jnp.argsort(jnp.argsort(-floor, axis=-1), axis=-1)
    urgency = -(jnp.arange(length) * count + rank[..., None]).astype(jnp.float32).reshape(batch, nodes)

    def bounds(logp: Float[Array, "B C T K"]) -> Float[Array, "B C"]:
        """An upper bound on each score: what is known whole, else the tokens computed so far."""
        so_far = logp.sum(2)
        return marginal.logsumexp(prior[:, None] + jnp.where(known > -jnp.inf, known, so_far))

    def wanted(logp: Array, scored: Bool[Array, "B C T"]) -> Bool[Array, "B M"]:
        """Nodes still to compute: of candidates that may yet be among the best."""
        whole = (scored | ~real).all(-1)
        bound = bounds(logp)
        sure = jnp.where(exists & whole, bound, floor)
        mark = jax.lax.top_k(sure, min(best, count))[0][:, -1:]
        alive = exists & ((bound >= mark - SLACK) | (not prune))
        open_ = (alive[..., None] & real & ~scored).reshape(batch, nodes)
        return jnp.zeros((batch, nodes), bool).at[jnp.arange(batch)[:, None], flat].max(open_)

    def unfinished(state: Any) -> Array:
        return state[-1].any()

    def advance(state: Any) -> Any:
        turn, caches, logp, scored, slot, computed, todo = state
        # A question with fewer nodes left than a chunk fills it up with nodes whose results are not read.
        most, chosen = jax.lax.top_k(jnp.where(todo, _by_node(urgency, flat), -jnp.inf), chunk)  # [B, W]
        taken = most > -jnp.inf
        mine = turn * chunk + jnp.arange(chunk)
        at = jnp.arange(batch)[:, None]
        slot = slot.at[at, jnp.where(taken, chosen, nodes)].set(mine, mode="drop")

        owner, place = chosen // length, chosen % length
        path = pick(pick(slot, flat).reshape(batch, count, length), owner)  # the slots of each node's ancestors
        path = jnp.where(jnp.arange(length) <= place[..., None], path, -1)
        seen = (path[..., None] == jnp.arange(slots_needed(count, length, chunk))).any(2)
        tokens = jnp.take_along_axis(pick(inputs, owner), place[..., None], axis=-1)[..., 0]
        next_logp, caches = forward(caches, tokens, place, turn * chunk, seen)

        now = pick(slot, flat).reshape(batch, count, length) - turn * chunk
        fresh = (now >= 0) & ~scored
        now = jnp.where(fresh, now, 0)
        gold = jax.vmap(lambda row, w, y: row[:, w, y])(next_logp, now, candidates)  # [B, K, C, T]
        logp = jnp.where((fresh & real)[..., None], jnp.moveaxis(gold, 1, -1), logp)
        scored = scored | fresh
        return turn + 1, caches, logp, scored, slot, computed + taken.sum(-1), wanted(logp, scored)

    logp = jnp.zeros((batch, count, length, passages), jnp.float32)
    scored = jnp.zeros((batch, count, length), bool)
    state = (
        jnp.zeros((), jnp.int32),
        caches,
        logp,
        scored,
        jnp.full((batch, nodes), -1, jnp.int32),
        jnp.zeros(batch, jnp.int32),
        wanted(logp, scored),
    )
    _, _, logp, scored, _, computed, _ = jax.lax.while_loop(unfinished, advance, state)
    under = logp.sum(2)
    whole = (scored | ~real).all(-1) & exists
    score = jnp.where(whole, marginal.logsumexp(prior[:, None] + under), -jnp.inf)
    score, index = jax.lax.top_k(score, min(best, count))
    return Rescored(index, score, pick(under, index), computed)


def slots_needed(count: int, length: int, chunk: int) -> int:
    """Cache slots that `rescore` may need: every node once, in whole chunks, and each question may end with a part."""
    return -(-count * length // chunk) * chunk


def _by_node(urgency: Float[Array, "B M"], flat: Int[Array, "B M"]) -> Float[Array, "B M"]:
    """Each node's urgency: the greatest of the candidates that pass through it."""
    batch, nodes = urgency.shape
    return jnp.full((batch, nodes), -jnp.inf).at[jnp.arange(batch)[:, None], flat].max(urgency)
