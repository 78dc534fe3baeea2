"""DEVICE. What a decoder may write next: the options of decoding and the rules that they put on each step.

Names and meanings are those of transformers' generation options. Lengths count the answer's tokens with its end token
and without the start token.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


@dataclasses.dataclass(frozen=True)
class DecodeOptions:
    """How answers are searched for. Hashable: jitted functions take it as static.

    Attributes:
      max_new_tokens: the longest answer, T.
      min_new_tokens: the end token is forbidden before so many tokens.
      num_beams: hypotheses kept at every step; 1 is greedy, or plain sampling with `do_sample`.
      num_return_sequences: answers given back, the best first (samples as drawn); at most `num_beams` unless sampling
        with one beam.
      length_penalty: a finished hypothesis of n tokens is ranked by log p / n**length_penalty.
      early_stopping: True stops once `num_beams` hypotheses are finished; False once the best running one, divided by
        its present length, cannot beat the worst finished one; 'never' only when no length could make it better.
      no_repeat_ngram_size: no n tokens in a row twice (the start token counts as the first); 0 is off.
      forced_bos_token_id, forced_eos_token_id: the first token, and the one at the limit.
      bad_words_ids: sequences of ids that must not be written.
      do_sample: draw instead of taking the likeliest. Needs a key.
      temperature, top_k, top_p: the distribution drawn from; top_k=0 and top_p=1 leave it whole.

    Raises:
      ValueError: an option out of range, or two that contradict each other.
    """

    max_new_tokens: int = 24
    min_new_tokens: int = 0
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    no_repeat_ngram_size: int = 0
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = None
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        """Refuses what has no meaning, with the field's name and the legal values."""
        for name in ("max_new_tokens", "num_beams", "num_return_sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        for name in ("min_new_tokens", "no_repeat_ngram_size", "top_k"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 0")
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(f"min_new_tokens={self.min_new_tokens} is above max_new_tokens={self.max_new_tokens}")
        if self.early_stopping not in (True, False, "never"):
            raise ValueError(f"early_stopping={self.early_stopping!r}: choose True, False or 'never'")
        if self.temperature <= 0 or not 0 < self.top_p <= 1:
            raise ValueError(f"temperature={self.temperature} must be above 0 and top_p={self.top_p} in (0, 1]")
        if any(not word for word in self.bad_words_ids):
            raise ValueError("bad_words_ids holds an empty sequence")
        if self.num_return_sequences > self.num_beams and not (self.do_sample and self.num_beams == 1):
            raise ValueError(
                f"num_return_sequences={self.num_return_sequences} is above num_beams={self.num_beams}: "
                "raise num_beams, or sample with one beam"
            )


def restrict(
    logp: Float[Array, "B N V"],
    tokens: Int[Array, "B N T"],
    step: Int[Array, ""],
    options: DecodeOptions,
    *,
    start_id: int,
    eos_id: int,
    pad_id: int,
) -> Float[Array, "B N V"]:
    """Next-token scores with -inf on what must not follow. Padding is never a word.

    Args:
      logp: scores of the token at place `step`.
      tokens: each beam's answer so far; places from `step` on are not read.
      step: its length.
      options: the rules.
      start_id, eos_id, pad_id: the generator's special tokens.
    """
    ids = jnp.arange(logp.shape[-1])
    banned = ids == pad_id  # masks, not writes, of which each would copy all scores
    history = jnp.concatenate([jnp.full_like(tokens[..., :1], start_id), tokens], axis=-1)
    for word in options.bad_words_ids:
        if word != (eos_id,):  # transformers' rule: the end token alone is never a bad word
            matches = _ends_with(history, step + 1, word[:-1])
            banned = banned | (matches[..., None] & (ids == word[-1]))
    if options.min_new_tokens:
        banned = banned | ((ids == eos_id) & (step < options.min_new_tokens))
    logp = jnp.where(banned, -jnp.inf, logp)
    if options.no_repeat_ngram_size:
        logp = _ban_repeats(logp, history, step + 1, options.no_repeat_ngram_size)
    forced = ((options.forced_bos_token_id, 0), (options.forced_eos_token_id, options.max_new_tokens - 1))
    for token, place in forced:
        if token is not None:
            logp = jnp.where(step == place, jnp.where(ids == token, 0.0, -jnp.inf), logp)
    return logp


def warp(logp: Float[Array, "B N V"], options: DecodeOptions) -> Float[Array, "B N V"]:
    """The scores to draw from: temperature, then the `top_k` best, then the smallest set of mass `top_p`.

    With several beams at least two tokens stay, so that the search cannot run dry.
    """
    least = 2 if options.num_beams > 1 else 1
    logp = logp / options.temperature
    if options.top_k:
        kept = min(max(options.top_k, least), logp.shape[-1])
        logp = jnp.where(logp < jax.lax.top_k(logp, kept)[0][..., -1:], -jnp.inf, logp)
    if options.top_p < 1:
        order = jnp.argsort(-logp, axis=-1)
        p = jax.nn.softmax(jnp.take_along_axis(logp, order, axis=-1), axis=-1)
        before = jnp.cumsum(p, axis=-1) - p
        keep = (before < options.top_p) | (jnp.arange(logp.shape[-1]) < least)
        keep = jnp.take_along_axis(keep, jnp.argsort(order, axis=-1), axis=-1)
        logp = jnp.where(keep, logp, -jnp.inf)
    return logp


def _ends_with(history: Int[Array, "B N L"], length: Int[Array, ""], word: tuple[int, ...]) -> Array:
    """Whether the first `length` ids of each row end with these, bool [B,N]."""
    matches = jnp.broadcast_to(length >= len(word), history.shape[:-1])
    for back, token in enumerate(reversed(word), 1):
        matches &= jnp.take(history, jnp.maximum(length - back, 0), axis=-1) == token
    return matches


def _ban_repeats(
    logp: Float[Array, "B N V"], history: Int[Array, "B N L"], length: Int[Array, ""], size: int
) -> Float[Array, "B N V"]:
    """-inf on every token that would end an n-gram which already stands in the first `length` ids."""
    places = history.shape[-1]
    same = jnp.broadcast_to(jnp.arange(places) + size - 1 < length, history.shape)
    for offset in range(size - 1):
        newest = jnp.take(history, jnp.clip(length - size + 1 + offset, 0), axis=-1)
        same &= jnp.roll(history, -offset, axis=-1) == newest[..., None]
    follower = jnp.roll(history, -(size - 1), axis=-1)
    rows, beams = jnp.indices(history.shape[:-1])
    # An n-gram that does not match bans nothing: its place is out of range and dropped.
    banned = jnp.where(same, follower, logp.shape[-1])
    return logp.at[rows[..., None], beams[..., None], banned].set(-jnp.inf, mode="drop")
