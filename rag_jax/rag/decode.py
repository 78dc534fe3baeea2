"""DEVICE. Decoding of RAG-Token and RAG-Sequence (the paper's section 2.5), jitted, many questions at once.

Every (question, passage) pair is encoded once. Its keys and values, computed once, serve all beams of all steps, and
the exact rescoring of thorough decoding after them. Fusion-in-Decoder is decoded by the same pieces.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.models.bart import Bart, BartConfig
from rag_jax.models.bart_step import cross_caches, empty_caches, prefix_states, step_states, unstack_layers
from rag_jax.rag import marginal
from rag_jax.rag.beam import Hypotheses, Special, beams, pick, search
from rag_jax.rag.candidates import candidates, lower_bounds
from rag_jax.rag.rescore import Prefixes, rescore, slots_needed
from rag_jax.rag.rules import DecodeOptions

LOGITS_BYTES = 2**26  # logits made at a time: half of a TPU's vector memory
CHUNK = 16  # prefixes that rescoring computes at a time for each passage


@flax.struct.dataclass
class Decoded:
    """Answers as token ids, with what they came from; n = `num_return_sequences`, the best first.

    Samples of RAG-Token and Fusion-in-Decoder stand in the order in which they were drawn.

    Attributes:
      tokens: int32 [B,n,T], the end token included, padding after it.
      logprob: float32 [B,n], log p(y|x); of fast decoding, as far as the beams know it. -inf for an answer that is not
        there: fewer than n were found.
      posterior: float32 [B,n,K], p(z|x,y). For RAG-Token the mean over the answer's tokens of `token_posterior`; None
        for Fusion-in-Decoder.
      token_posterior: float32 [B,n,K,T] for RAG-Token, None for the others.
      computed: int32 [B], pairs of a prefix and a passage that thorough decoding computed after its searches; None for
        the others.
    """

    tokens: Any
    logprob: Any
    posterior: Any
    token_posterior: Any = None
    computed: Any = None


class _Decoder:
    """The generator on the sources of one batch: encoded once, one token for some prefixes at a time.

    Rows are (question, passage) pairs; a question's prefixes are computed under each of its passages. Together, the
    passages of a question are one.
    """

    def __init__(
        self,
        params: Any,
        config: BartConfig,
        source: Array,
        source_mask: Array,
        slots: Array | None,
        together: bool = False,
        parts: int = 1,
    ):
        self.config, self.parts = config, parts
        self.batch, passages, width = source.shape
        self.passages = 1 if together else passages
        self.rows = self.batch * self.passages
        self.mask = source_mask.reshape(self.rows, -1)
        model = Bart(config)
        given = source.reshape(-1, width), source_mask.reshape(-1, width), slots
        encoded, packing = model.apply({"params": params}, *given, method=model.encode_sources)
        self.split = unstack_layers(params, config)
        self.cross = cross_caches(self.split, config, encoded, packing, self.mask.shape[1])

    def caches(self, options: DecodeOptions) -> Any:
        if options.max_new_tokens > self.config.max_positions:
            raise ValueError(
                f"max_new_tokens={options.max_new_tokens}: the generator has {self.config.max_positions} positions"
            )
        return empty_caches(self.config, self.rows, options.max_new_tokens * beams(options))

    def states(
        self,
        caches: Any,
        tokens: Int[Array, "R N"],
        places: Int[Array, "#R #N"],
        slot: Array,
        seen: Bool[Array, "R N L"],
    ) -> tuple[Float[Array, "R N D"], Any]:
        return step_states(self.split, self.config, tokens, places, slot, caches, self.cross, seen, self.mask)

    def states_under_all(
        self,
        caches: Any,
        tokens: Int[Array, "B N"],
        places: Int[Array, "#B #N"],
        slot: Array,
        seen: Bool[Array, "B N L"],
    ) -> tuple[Float[Array, "B K N D"], Any]:
        places = jnp.broadcast_to(places, tokens.shape)
        tokens, places, seen = (jnp.repeat(x, self.passages, axis=0) for x in (tokens, places, seen))
        states, caches = self.states(caches, tokens, places, slot, seen)
        return states.reshape(self.batch, self.passages, *states.shape[1:]), caches

    def prefixes(self, caches: Any, given: Prefixes) -> tuple[Float[Array, "V S W"], Any]:
        """See `rescore.Forward`."""
        where = given.start, given.rows, caches, self.cross, given.before, given.beside, self.mask
        states, caches = prefix_states(self.split, self.config, given.tokens, given.places, *where)
        return self.logprobs(states)[0], caches

    def logprobs(self, states: Float[Array, "*axes D"]) -> tuple[Float[Array, "V *axes"], Float[Array, "*axes"]]:
        """Log-probabilities of the next token, and what was taken from the logits to make them so."""
        model = Bart(self.config)
        logits = model.apply({"params": self.split.model}, states, method=model.logits_by_token)
        total = jax.nn.logsumexp(logits, axis=0)
        return logits - total, total

    def mixture(
        self, prior: Float[Array, "B K"], states: Float[Array, "K B N D"]
    ) -> tuple[Float[Array, "V B N"], Float[Array, "K B N"]]:
        """RAG-Token's next-token distribution, and `logprobs`' second result.

        The logits of many passages are made in parts: a part is still in fast memory when it is summed.
        """
        model, words = Bart(self.config), self.config.table_rows
        cuts = -(-4 * words * math.prod(states.shape[:-1]) // (LOGITS_BYTES * self.parts))
        count = -(-words // cuts)
        logits = [
            model.apply({"params": self.split.model}, states, first, count, method=model.logits_by_token)
            for first in range(0, words, count)
        ]
        total = functools.reduce(jnp.logaddexp, (jax.nn.logsumexp(part, axis=0) for part in logits))
        return jnp.concatenate([marginal.next_token_mixture(prior, part - total) for part in logits]), total

    def under(self, states: Float[Array, "B K N D"], total: Float[Array, "B K N"]) -> Callable[[Array, Array], Array]:
        """See `beam.Under`. From the states: looking into the logits would make XLA copy them into another layout."""
        model = Bart(self.config)

        def of(beam: Int[Array, "B M"], token: Int[Array, "B M"]) -> Float[Array, "B M K"]:
            chosen, lse = (jax.vmap(lambda rows, n: rows[:, n])(x, beam) for x in (states, total))
            tokens = jnp.broadcast_to(token[:, None], lse.shape)
            rows = model.apply({"params": self.split.model}, chosen, tokens, method=model.token_logits) - lse
            return rows.swapaxes(1, 2)

        return of


def _special(config: BartConfig) -> Special:
    return Special(config.decoder_start_id, config.eos_id, config.pad_id)


def decode_token(
    params: Any,
    config: BartConfig,
    source: Int[Array, "B K S"],
    source_mask: Bool[Array, "B K S"],
    prior: Float[Array, "B K"],
    options: DecodeOptions,
    key: Array | None = None,
    *,
    slots: Int[Array, "G P W"] | None = None,
    parts: int = 1,
) -> Decoded:
    """RAG-Token: each step's distribution is sum_z p(z|x) p(. | x, z, y_<t), and the search goes over that.

    Args:
      params: the generator's parameters.
      config: its sizes.
      source: joined question and passage.
      source_mask: true on real tokens.
      prior: log p(z|x); -inf for a passage that does not exist.
      options: greedy, sampling or beams; lengths and rules.
      key: for sampling.
      slots: how sources are packed, see `rag_jax.models.packing`; None: a row each.
      parts: parts of the batch that lie on different devices; they change the cost, not the answer.

    Raises:
      ValueError: sampling without a key; more tokens than the generator has positions.
    """
    decoder = _Decoder(params, config, source, source_mask, slots, parts=parts)
    found = _search_mixture(decoder, prior, options, key)

    def judge(tokens: Int[Array, "B T"], under: Float[Array, "B T K"]) -> tuple[Array, Array, Array]:
        real, logp = tokens != config.pad_id, under.swapaxes(1, 2)
        by_token = marginal.token_posterior(prior, logp, real)
        mean = by_token.sum(-1) / jnp.maximum(real.sum(-1), 1)[:, None]
        loglik = jnp.where(real[:, 0], marginal.token_loglik(prior, logp, real), -jnp.inf)  # no answer was found
        return loglik, mean, by_token

    logprob, mean, by_token = jax.vmap(judge, in_axes=1, out_axes=1)(found.tokens, found.under)
    return Decoded(found.tokens, logprob, mean, by_token)


def decode_together(
    params: Any,
    config: BartConfig,
    source: Int[Array, "B K S"],
    source_mask: Bool[Array, "B K S"],
    options: DecodeOptions,
    key: Array | None = None,
    *,
    slots: Int[Array, "G P W"] | None = None,
    parts: int = 1,
) -> Decoded:
    """Fusion-in-Decoder: one decoder looks at all passages of its question, and the search goes over its distribution.

    Args:
      params, config, source, options, key, slots, parts: as in `decode_token`.
      source_mask: true on real tokens of passages that exist.

    Raises:
      ValueError: as `decode_token`.
    """
    decoder = _Decoder(params, config, source, source_mask, slots, together=True, parts=parts)
    found = _search_mixture(decoder, jnp.zeros((decoder.batch, 1)), options, key)
    there = found.tokens[..., 0] != config.pad_id
    return Decoded(found.tokens, jnp.where(there, found.under.sum((-1, -2)), -jnp.inf), None)


def _search_mixture(
    decoder: _Decoder, prior: Float[Array, "B K"], options: DecodeOptions, key: Array | None
) -> Hypotheses:
    """A search over sum_z p(z|x) p(. | x, z, y_<t)."""
    count = beams(options)

    def step(caches: Any, newest: Array, place: Array, seen: Array) -> Any:
        states, caches = decoder.states_under_all(caches, newest, place[None, None], place * count, seen)
        mixture, total = decoder.mixture(prior, states.swapaxes(0, 1))
        return jnp.moveaxis(mixture, 0, -1), caches, decoder.under(states, total.swapaxes(0, 1))

    size = {"batch": decoder.batch, "passages": decoder.passages}
    return search(step, decoder.caches(options), options, _special(decoder.config), **size, key=key)[0]


def decode_sequence(
    params: Any,
    config: BartConfig,
    source: Int[Array, "B K S"],
    source_mask: Bool[Array, "B K S"],
    prior: Float[Array, "B K"],
    options: DecodeOptions,
    key: Array | None = None,
    *,
    slots: Int[Array, "G P W"] | None = None,
    fast: bool = False,
    chunk: int = CHUNK,
    parts: int = 1,
    prune: bool = True,
) -> Decoded:
    """RAG-Sequence: a search for each passage; the answers of all beams together are the candidates.

    Thorough decoding scores every candidate under every passage and returns those of largest
    sum_z p(z|x) p(y|x,z). Fast decoding counts a passage only for the candidates that its own beam holds. Equal
    candidates count once.

    Args:
      params, config, source, source_mask, prior, options, key, slots: as in `decode_token`; the options are those of
        each passage's search, and all `num_beams` of its answers (or all samples) become candidates.
      fast: no rescoring.
      chunk, parts, prune: see `rag_jax.rag.rescore.rescore`; they change the cost, not the answer.
    """
    decoder = _Decoder(params, config, source, source_mask, slots)
    batch, passages, count = decoder.batch, decoder.passages, beams(options)
    wanted = options.num_return_sequences
    each = dataclasses.replace(options, num_return_sequences=count)

    def step(caches: Any, newest: Array, place: Array, seen: Array) -> Any:
        states, caches = decoder.states(caches, newest, place[None, None], place * count, seen)
        logp, total = decoder.logprobs(states)
        return jnp.moveaxis(logp, 0, -1), caches, decoder.under(states[:, None], total[:, None])

    found, caches = search(
        step, decoder.caches(options), each, _special(config), batch=decoder.rows, passages=1, key=key
    )
    apart = lambda x: x.reshape(batch, passages, *x.shape[1:])  # noqa: E731
    known = candidates(apart(found.tokens), apart(found.under[..., 0]), apart(found.ancestors), prior, config.pad_id)
    if fast:
        score, index = jax.lax.top_k(lower_bounds(known, prior, known.logp, known.scored), wanted)
        under = jnp.where(known.scored.all(-1), known.logp.sum(-1), -jnp.inf).swapaxes(1, 2)
        under, computed = pick(under, index), None
    else:
        chunk = min(chunk, math.prod(known.tokens.shape[1:]))
        kept = options.max_new_tokens * count
        more = (0, 0), (0, 0), (0, slots_needed(known, kept, chunk) - kept), (0, 0)
        index, score, under, computed = rescore(
            decoder.prefixes,
            jax.tree.map(lambda cache: jnp.pad(cache, more), caches),
            known,
            prior,
            best=wanted,
            start_id=config.decoder_start_id,
            kept=kept,
            chunk=chunk,
            parts=parts,
            prune=prune,
        )
    posterior = marginal.normalise(prior[:, None] + under)
    return Decoded(pick(known.tokens, index), score, posterior, None, computed)
