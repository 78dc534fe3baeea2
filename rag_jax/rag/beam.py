"""DEVICE. Greedy decoding, sampling and beam search over any step function, as one jitted loop of fixed shapes.

A step function gives the next token's distribution for every beam; what it reads and keeps (parameters, caches) is its
own. The loop never reorders what it keeps: an ancestor table says in which slot each beam's past lies, and the mask
made from it selects the past (slot = place x beams + beam). The search itself is that of transformers, option by
option, so that both give the same token ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.rag.rules import DecodeOptions, restrict, warp

Under = Callable[[Array, Array], Array]
"""(beam [B,M], token [B,M]) -> float32 [B,M,K]: log p of that next token after that beam, under each passage."""

Step = Callable[[Any, Array, Array, Array], tuple[Array, Any, Under]]
"""(kept, newest token [B,N], its place, slots seen [B,N,L]) -> (next-token log-probabilities [B,N,V], kept, Under)."""

BLOCK = 128  # tokens
NEVER = -1.0e9  # a score that no hypothesis reaches, finite as in transformers


class Hypotheses(NamedTuple):
    """Answers of a search, the best first (samples as drawn), finished or while they grow.

    Attributes:
      tokens: int32 [B,n,T], the end token included, padding after it.
      score: float32 [B,n], what they were ranked by: log p / length**length_penalty with beams, else the sum of log p.
      under: float32 [B,n,T,K], log p of each token under each passage; 0 on padding.
      ancestors: int32 [B,n,T], at which beam the token before each token was; its keys lie at place x beams + beam.
    """

    tokens: Any
    score: Any
    under: Any
    ancestors: Any

    def take(self, index: Int[Array, "B M"]) -> Hypotheses:
        """Those of these numbers."""
        return Hypotheses(*(pick(table, index) for table in self))

    def put(self, place: Int[Array, ""], token: Int[Array, "B n"], under: Float[Array, "B n K"]) -> Hypotheses:
        """Each with a token at `place`."""
        return self._replace(tokens=self.tokens.at[:, :, place].set(token), under=self.under.at[:, :, place].set(under))

    def first(self, count: int) -> Hypotheses:
        """The best of them."""
        return Hypotheses(*(table[:, :count] for table in self))


class Special(NamedTuple):
    """The generator's special tokens."""

    start_id: int
    eos_id: int
    pad_id: int


def search(
    step: Step,
    kept: Any,
    options: DecodeOptions,
    special: Special,
    *,
    batch: int,
    passages: int,
    key: Array | None = None,
) -> tuple[Hypotheses, Any]:
    """The search that the options ask for, and what the step function has kept in the end.

    Args:
      step: see `Step`. Its caches need `max_new_tokens * beams(options)` slots.
      kept: what the step function keeps, before the first step.
      options: greedy, sampling, or beams; lengths and rules.
      special: start, end and padding ids.
      batch: questions B (or any rows that are searched apart).
      passages: K of `Under`.
      key: for sampling.

    Raises:
      ValueError: sampling without a key.
    """
    if options.do_sample and key is None:
        raise ValueError("do_sample=True needs a random key")
    key = key if options.do_sample else None
    if options.num_beams == 1:
        return _single(step, kept, options, special, batch, passages, key)
    return _beams(step, kept, options, special, batch, passages, key)


def beams(options: DecodeOptions) -> int:
    """Beams N that a step function sees: those of the search, or the samples drawn beside each other."""
    return options.num_beams if options.num_beams > 1 else options.num_return_sequences


def pick(values: Array, index: Int[Array, "B M"]) -> Array:
    """values[b, index[b, m]] for an array [B, N, ...]: [B, M, ...]."""
    return jax.vmap(lambda rows, at: rows[at])(values, index)


def _seen(ancestors: Int[Array, "B N T"], place: Array) -> Bool[Array, "B N L"]:
    """The slots of each beam's ancestors up to and including this place."""
    batch, count, length = ancestors.shape
    mine = (ancestors[..., None] == jnp.arange(count)) & (jnp.arange(length) <= place)[:, None]
    return mine.reshape(batch, count, length * count)


def _newest(tokens: Int[Array, "B N T"], place: Array, start_id: int) -> Int[Array, "B N"]:
    return jnp.where(place == 0, start_id, jnp.take(tokens, jnp.maximum(place - 1, 0), axis=-1))


def _empty(batch: int, count: int, options: DecodeOptions, passages: int, pad_id: int) -> Hypotheses:
    length = options.max_new_tokens
    own = jnp.broadcast_to(jnp.arange(count)[:, None], (batch, count, length))
    return Hypotheses(
        jnp.full((batch, count, length), pad_id, jnp.int32),
        jnp.zeros((batch, count), jnp.float32),
        jnp.zeros((batch, count, length, passages), jnp.float32),
        own.astype(jnp.int32),
    )


def _single(
    step: Step, kept: Any, options: DecodeOptions, special: Special, batch: int, passages: int, key: Array | None
) -> tuple[Hypotheses, Any]:
    """Greedy, or with a key samples drawn beside each other: every row goes on from itself."""
    count = beams(options)
    here = jnp.broadcast_to(jnp.arange(count), (batch, count))

    def unfinished(state: Any) -> Array:
        place, _, done, _ = state
        return (place < options.max_new_tokens) & ~done.all()

    def advance(state: Any) -> Any:
        place, rows, done, kept = state
        newest = _newest(rows.tokens, place, special.start_id)
        logp, kept, under = step(kept, newest, place, _seen(rows.ancestors, place))
        logp = restrict(logp, rows.tokens, place, options, **special._asdict())
        if key is not None:
            token = jax.random.categorical(jax.random.fold_in(key, place), warp(logp, options))
        else:
            token = logp.argmax(-1)
        token = jnp.where(done, special.pad_id, token).astype(jnp.int32)
        gained = jnp.where(done[..., None], 0.0, under(here, token))
        value = jnp.where(done, 0.0, jnp.take_along_axis(logp, token[..., None], axis=-1)[..., 0])
        rows = rows.put(place, token, gained)._replace(score=rows.score + value)
        return place + 1, rows, done | (token == special.eos_id), kept

    rows = _empty(batch, count, options, passages, special.pad_id)
    start = (jnp.zeros((), jnp.int32), rows, jnp.zeros((batch, count), bool), kept)
    _, rows, _, kept = jax.lax.while_loop(unfinished, advance, start)
    return rows, kept


def top_of_blocks(
    values: Float[Array, "B N V"], count: int, block: int = BLOCK
) -> tuple[Float[Array, "B N c"], Int[Array, "B N c"]]:
    """`jax.lax.top_k` of a long axis: the `count` best lie in the `count` blocks whose maxima are the greatest.

    Only maxima look at everything, with the vocabulary first as the decoder's head gives it, and on all cores.
    """
    batch, rows, size = values.shape
    blocks = -(-size // block)
    if blocks <= count:
        best, at = jax.lax.top_k(values, count)
        return best, at
    by_token = jnp.moveaxis(values, -1, 0)
    by_token = jnp.pad(by_token, ((0, blocks * block - size), (0, 0), (0, 0)), constant_values=-jnp.inf)
    cut = by_token.reshape(blocks, block, batch, rows)
    _, which = jax.lax.top_k(jnp.moveaxis(cut.max(1), 0, -1), count)
    which = which.sort(axis=-1)  # of equal values the first counts
    # Written out, because an index that counts the questions would bring all devices' scores to each.
    axes = jax.lax.GatherDimensionNumbers((3,), (0,), (0,), (2, 3), (0, 1))
    chosen = jax.lax.gather(cut, which[..., None], axes, (1, block, 1, 1))  # [B,N,c,block]
    best, at = jax.lax.top_k(chosen.reshape(batch, rows, -1), count)
    return best, jnp.take_along_axis(which, at // block, axis=-1) * block + at % block


def _continuations(logp: Float[Array, "B N V"], count: int, gumbel: Array | None) -> tuple[Array, Array, Array]:
    """The `count` best continuations over all beams (scores, beams, tokens), or as many drawn without replacement."""
    ranked = logp if gumbel is None else logp + gumbel
    batch, _, size = logp.shape
    each = min(count, size)
    value, token = top_of_blocks(ranked, each)  # of every beam first: far fewer are left to merge
    value, place = jax.lax.top_k(value.reshape(batch, -1), count)
    parent = place // each
    token = jnp.take_along_axis(token.reshape(batch, -1), place, axis=1)
    if gumbel is not None:
        value = jnp.take_along_axis(pick(logp, parent), token[..., None], axis=-1)[..., 0]
        value, order = jax.lax.top_k(value, count)
        parent, token = pick(parent, order), pick(token, order)
    return value, parent, token


def _beams(
    step: Step, kept: Any, options: DecodeOptions, special: Special, batch: int, passages: int, key: Array | None
) -> tuple[Hypotheses, Any]:
    """Beam search, or with a key beam sampling. Twice as many continuations as beams: at most half of them end here."""
    count, length = options.num_beams, options.max_new_tokens

    def unfinished(state: Any) -> Array:
        place, _, _, closed, improvable, _ = state
        full = closed.all() if options.early_stopping is True else False
        return (place < length) & improvable.any() & ~jnp.asarray(full)

    def advance(state: Any) -> Any:
        place, rows, done, closed, improvable, kept = state
        ancestors = rows.ancestors.at[:, :, place].set(jnp.arange(count))
        newest = _newest(rows.tokens, place, special.start_id)
        logp, kept, under = step(kept, newest, place, _seen(ancestors, place))
        logp = restrict(logp, rows.tokens, place, options, **special._asdict())
        gumbel = None
        if key is not None:
            logp = warp(logp, options)
            gumbel = jax.random.gumbel(jax.random.fold_in(key, place), logp.shape)
        score, parent, token = _continuations(logp + rows.score[..., None], 2 * count, gumbel)
        grown = rows._replace(ancestors=ancestors).take(parent).put(place, token, under(parent, token))
        ends = (token == special.eos_id) | (place == length - 1)

        open_score = score + ends * NEVER
        _, best = jax.lax.top_k(open_score, count)
        running = grown.take(best)._replace(score=pick(open_score, best))

        # Only the first `count` may enter the finished ones: the others are there to keep the search running.
        enters = ends & (jnp.arange(2 * count) < count)
        shut = ~improvable[:, None]
        if options.early_stopping is True:
            shut = shut | closed.all(-1, keepdims=True)
        ranked = score / (place + 1.0) ** options.length_penalty + shut * NEVER + ~enters * NEVER
        both = [jnp.concatenate(pair, axis=1) for pair in zip(done, grown._replace(score=ranked), strict=True)]
        flags = jnp.concatenate([closed, enters], axis=1)
        _, best = jax.lax.top_k(both[1], count)
        done, closed = Hypotheses(*both).take(best), pick(flags, best)

        hopeful = length if options.early_stopping == "never" and options.length_penalty > 0 else place + 1.0
        reachable = running.score[:, :1] / hopeful**options.length_penalty
        worst = jnp.where(closed, done.score.min(-1, keepdims=True), NEVER)
        improvable = improvable & (reachable > worst).any(-1)
        return place + 1, running, done, closed, improvable, kept

    rows = _empty(batch, count, options, passages, special.pad_id)
    first = jnp.where(jnp.arange(count) == 0, 0.0, NEVER)  # all beams are equal at first: one of them goes on
    running = rows._replace(score=jnp.broadcast_to(first, (batch, count)))
    done = rows._replace(score=jnp.full((batch, count), NEVER))
    closed = jnp.zeros((batch, count), bool)
    start = (jnp.zeros((), jnp.int32), running, done, closed, jnp.ones(batch, bool), kept)
    _, _, done, _, _, kept = jax.lax.while_loop(unfinished, advance, start)
    return done.first(options.num_return_sequences), kept
