"""DEVICE. BART's decoder one token at a time, with caches that the caller holds.

Three facts make a step cheap. The source's keys and values are computed once a (question, passage) pair and shared by
all beams, which are query positions of one attention. The self-attention cache is never reordered: every beam's tokens
keep their slots, and a mask picks each beam's ancestors. The layers are unrolled with a cache each, written in place:
stacked in a scan, every layer's slice would be copied in and out. The pairs' rows are R, the beams N, the slots L =
steps x N.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.models.bart import Bart, BartConfig, DecoderLayer

KeysValues = tuple[Array, Array]  # [R, H, length, d] each


class StepParams(NamedTuple):
    """The decoder's parameters with the scanned axis taken apart: one tree a layer."""

    model: Any
    layers: tuple[Any, ...]


def unstack_layers(params: Any, config: BartConfig) -> StepParams:
    """Cuts the scanned decoder into layers, once, outside the loop over steps."""
    stacked = params["decoder_layers"]
    layers = tuple(jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(config.decoder_layers))
    return StepParams(params, layers)


def cross_caches(params: StepParams, config: BartConfig, encoded: Float[Array, "R S D"]) -> tuple[KeysValues, ...]:
    """Every layer's keys and values of the source."""
    layer = DecoderLayer(config)
    return tuple(layer.apply({"params": p}, encoded, method=layer.cross_keys_values) for p in params.layers)


def empty_caches(config: BartConfig, rows: int, slots: int) -> tuple[KeysValues, ...]:
    """Zeroed self-attention caches, one a layer, [rows, heads, slots, head width]."""
    shape = (rows, config.decoder_heads, slots, config.width // config.decoder_heads)
    zero = lambda: jnp.zeros(shape, config.dtype)  # noqa: E731
    return tuple((zero(), zero()) for _ in range(config.decoder_layers))


def decode_step(
    params: StepParams,
    config: BartConfig,
    tokens: Int[Array, "R N"],
    positions: Int[Array, "#R #N"],
    slot: Int[Array, ""],
    caches: tuple[KeysValues, ...],
    cross: tuple[KeysValues, ...],
    own_mask: Bool[Array, "R N L"],
    source_mask: Bool[Array, "R S"],
) -> tuple[Float[Array, "R N V"], tuple[KeysValues, ...]]:
    """One decoding step for N beams of R rows, or N prefixes of any lengths.

    Args:
      params: from `unstack_layers`.
      config: the generator's sizes.
      tokens: each beam's newest token.
      positions: their places in the target, 0 for the start token.
      slot: the first of the N slots that are written.
      caches: from `empty_caches`, or the last step's.
      cross: from `cross_caches`.
      own_mask: which slots each beam sees: its ancestors' and its own new one.
      source_mask: true on real source tokens.

    Returns:
      float32 logits of the next token and the caches with the new keys and values.
    """
    model, layer = Bart(config), DecoderLayer(config)
    x = model.apply({"params": params.model}, tokens, positions, "decoder", method=model.embed)
    new = []
    for p, cache, source in zip(params.layers, caches, cross, strict=True):
        own = layer.apply({"params": p}, x, method=layer.own_keys_values)
        cache = tuple(
            jax.lax.dynamic_update_slice_in_dim(old, fresh.astype(old.dtype), slot, axis=2)
            for old, fresh in zip(cache, own, strict=True)
        )
        x = layer.apply(
            {"params": p},
            x,
            cache,
            own_mask[:, None],
            source,
            source_mask[:, None, None, :],
            True,
            method=layer.combine,
        )
        new.append(cache)
    return model.apply({"params": params.model}, x, method=model.logits), tuple(new)
