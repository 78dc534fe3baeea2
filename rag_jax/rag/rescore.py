"""DEVICE. Exact scores of many candidate answers under every passage: thorough decoding's second half.

Four things are not computed. What the searches know of a candidate under a passage is taken from them, with the keys
and values they kept. Candidates of one question share prefixes: they are laid out as a tree whose nodes are prefixes,
and a node is computed once for all that pass through it. The log-probability of a prefix is an upper bound on that of
every answer that begins with it, so a candidate that can no longer be among the best is dropped. And passages differ in
how many nodes they lack: those that lack most go on, the others wait for them or are done. All of it is exact: no
answer that could be returned is lost.

Axis names: C candidates a question, M = C x T nodes, R = B x K (question, passage) rows, S of them and W nodes of each
computed at a time, n in each of the Parts that lie on different devices; L slots of the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.models.cache_rows import BLOCK, take_rows, write_rows
from rag_jax.rag import marginal
from rag_jax.rag.beam import pick
from rag_jax.rag.candidates import Candidates, lower_bounds

SLACK = 1e-3  # nats: what rounding may cost a bound


class Prefixes(NamedTuple):
    """W nodes of each of some rows, for the generator.

    Attributes:
      rows: int32 [Parts,n], which rows, counted in their part of the batch.
      tokens: int32 [S,W], the newest token of each prefix.
      places: int32 [S,W], its place.
      start: int32 [S], the first of the W slots that each row's nodes get.
      before: bool [S,W,L], the slots of their ancestors that were computed earlier.
      beside: bool [S,W,W], the ancestors among these, and each itself.
    """

    rows: Any
    tokens: Any
    places: Any
    start: Any
    before: Any
    beside: Any


Forward = Callable[[Any, Prefixes], tuple[Array, Any]]
"""(caches, prefixes) -> (log-probabilities of the next token [V,S,W], caches with the nodes' keys and values)."""


class Rescored(NamedTuple):
    """The best candidates, the best first.

    Attributes:
      index: int32 [B,n], which candidate.
      logprob: float32 [B,n], log p(y|x); -inf where there are fewer distinct candidates.
      under: float32 [B,n,K], log p(y|x,z).
      computed: int32 [B], pairs of a node and a passage that were computed, of C x T x K.
    """

    index: Any
    logprob: Any
    under: Any
    computed: Any


class _State(NamedTuple):
    """The loop's: what is known, and `todo`, the nodes that each row still lacks."""

    caches: Any
    logp: Array  # [B,K,C,T]
    scored: Array  # [B,K,C,T]
    slots: Array  # [B,K,M]
    used: Array  # [B,K], slots
    computed: Array  # [B,K]
    todo: Array  # [B,K,M]


def rescore(
    forward: Forward,
    caches: Any,
    found: Candidates,
    prior: Float[Array, "B K"],
    *,
    best: int,
    start_id: int,
    kept: int,
    chunk: int,
    parts: int = 1,
    prune: bool = True,
) -> Rescored:
    """The `best` candidates by log p(y|x) = logsumexp_z( log p(z|x) + log p(y|x,z) ), equal ones once.

    Args:
      forward: runs nodes through the decoder.
      caches: those of the searches, made longer to `slots_needed`.
      found: the candidates and what is known of them.
      prior: log p(z|x).
      best: how many are wanted.
      start_id: the generator's start token.
      kept: slots of `caches` that the searches wrote.
      chunk: nodes W computed at a time for a row.
      parts: parts of the batch that lie on different devices, see `Prefixes`.
      prune: False computes all candidates, for comparison.
    """
    batch, passages, count, length = found.scored.shape
    nodes = count * length
    inputs = jnp.concatenate([jnp.full_like(found.tokens[..., :1], start_id), found.tokens[..., :-1]], axis=-1)
    node, order = _tree(found, inputs, prior)
    flat = node.reshape(batch, nodes)
    at_once = -(-batch * passages // parts // 2)  # half of the rows

    def wanted(logp: Array, scored: Array) -> Bool[Array, "B K M"]:
        """Nodes still to compute: of candidates that may yet be among the best."""
        bound = marginal.logsumexp((prior[..., None] + logp.sum(-1)).swapaxes(1, 2))
        mark = jax.lax.top_k(lower_bounds(found, prior, logp, scored), min(best, count))[0][:, -1:]
        alive = found.there & ((bound >= mark - SLACK) | (not prune))
        lacking = (alive[:, None, :, None] & ~scored).reshape(batch, passages, nodes)
        of_nodes = lambda row, at: jnp.zeros(nodes, bool).at[at].max(row)  # noqa: E731
        return jax.vmap(jax.vmap(of_nodes, in_axes=(0, None)))(lacking, flat)

    def unfinished(state: _State) -> Array:
        return state.todo.any()

    def advance(state: _State) -> _State:
        lacking = state.todo.sum(-1).reshape(parts, -1)
        _, rows = jax.lax.top_k(lacking, at_once)
        of_row = lambda x: take_rows(x.reshape(batch * passages, *x.shape[2:]), rows)  # noqa: E731
        of_question = lambda x: take_rows(x, rows // passages)  # noqa: E731

        # A row that lacks fewer nodes than a chunk fills it up with nodes whose results are not read.
        ranked = jnp.where(of_row(state.todo), of_question(order), -jnp.inf)
        most, chosen = jax.lax.top_k(ranked, chunk)  # [S,W]
        taken, start = most > -jnp.inf, of_row(state.used)
        mine = start[:, None] + jnp.arange(chunk)
        write = lambda row, at, slot: row.at[at].set(slot, mode="drop")  # noqa: E731
        slots = jax.vmap(write)(of_row(state.slots), jnp.where(taken, chosen, nodes), mine)
        own_slots = pick(slots, of_question(flat)).reshape(-1, count, length)

        owner, place = chosen // length, chosen % length
        path = jnp.where(jnp.arange(length) <= place[..., None], pick(own_slots, owner), -1)  # slots of the ancestors
        old = jnp.where(path < start[:, None, None], path, -1)
        tokens = jnp.take_along_axis(pick(of_question(inputs), owner), place[..., None], axis=-1)[..., 0]
        prefixes = Prefixes(
            rows,
            tokens,
            place,
            start,
            before=(old[..., None] == jnp.arange(slots_needed(found, kept, chunk))).any(2),
            beside=(path[..., None] - start[:, None, None, None] == jnp.arange(chunk)).any(2),
        )
        next_logp, caches = forward(state.caches, prefixes)

        scored = of_row(state.scored)
        now = own_slots - start[:, None, None]
        fresh = (now >= 0) & ~scored
        gold = jax.vmap(lambda of, w, y: of[y, w], in_axes=(1, 0, 0))(
            next_logp, jnp.where(fresh, now, 0), of_question(found.tokens)
        )

        def put(x: Array, new: Array) -> Array:
            return write_rows(x.reshape(batch * passages, *x.shape[2:]), new, rows).reshape(x.shape)

        logp = put(state.logp, jnp.where(fresh, gold, of_row(state.logp)))
        scored = put(state.scored, scored | fresh)
        number = taken.sum(-1)
        return _State(
            caches,
            logp,
            scored,
            put(state.slots, slots),
            put(state.used, start + number),
            put(state.computed, of_row(state.computed) + number),
            wanted(logp, scored),
        )

    slots = found.slots.reshape(batch, passages, nodes)  # a node's are those of the token that it is named after
    begin = jnp.full((batch, passages), kept, jnp.int32)
    todo = wanted(found.logp, found.scored)
    start = _State(caches, found.logp, found.scored, slots, begin, jnp.zeros_like(begin), todo)
    end = jax.lax.while_loop(unfinished, advance, start)
    whole = end.scored.all((1, 3))  # a pruned candidate is not
    score = jnp.where(whole, lower_bounds(found, prior, end.logp, end.scored), -jnp.inf)
    score, index = jax.lax.top_k(score, min(best, count))
    return Rescored(index, score, pick(end.logp.sum(-1).swapaxes(1, 2), index), end.computed.sum(-1))


def slots_needed(found: Candidates, kept: int, chunk: int) -> int:
    """Slots of a cache for `kept` of the searches and all that `rescore` may write, in whole blocks.

    A row's own hypotheses lack nothing; the last chunk may be a part.
    """
    _, passages, count, length = found.scored.shape
    return -(-(kept + (count - count // passages) * length + chunk) // BLOCK) * BLOCK


def _tree(
    found: Candidates, inputs: Int[Array, "B C T"], prior: Float[Array, "B K"]
) -> tuple[Int[Array, "B C T"], Float[Array, "B M"]]:
    """The node of every token's prefix, and each node's rank: the greatest is computed first.

    The node of (c, t) is that of the first candidate with the same t tokens before. Shallow nodes come first, so that a
    parent never comes after its children, and among them those of promising candidates.
    """
    batch, count, length = inputs.shape
    equal = jnp.cumprod(inputs[:, :, None] == inputs[:, None, :], axis=-1).astype(bool)  # [B,C,C',T]
    node = equal.argmax(2) * length + jnp.arange(length)
    floor = lower_bounds(found, prior, found.logp, found.scored)
    rank = jnp.argsort(jnp.argsort(-floor, axis=-1), axis=-1)
    urgency = -(jnp.arange(length) * count + rank[..., None]).astype(jnp.float32).reshape(batch, -1)
    nothing = jnp.full((batch, count * length), -jnp.inf)
    return node, jax.vmap(lambda all_, at, own: all_.at[at].max(own))(nothing, node.reshape(batch, -1), urgency)
