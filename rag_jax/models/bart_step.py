"""DEVICE. BART's decoder one token at a time, with caches that the caller holds.

Four facts make a step cheap. The source's keys and values are computed once a (question, passage) pair and shared by
all beams, which are query positions of one attention. The self-attention cache is never reordered: every beam's tokens
keep their slots, and a mask picks each beam's ancestors. The layers are unrolled with a cache each, written in place:
stacked in a scan, every layer's slice would be copied in and out. Heads share the rows of a cache as far as those are
wide, see `head_groups`. The pairs' rows are R, the beams N, the slots L = steps x N.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.models.bart import Bart, BartConfig, DecoderLayer
from rag_jax.models.cache_rows import BLOCK, Blocks, take_rows, write_slots
from rag_jax.models.layers import Segment
from rag_jax.models.packing import Packing

KeysValues = tuple[Array, Array]  # [R, G, length, w] each, see `head_groups`; for the source `source_key_axes`


class StepParams(NamedTuple):
    """The decoder's parameters with the scanned axis taken apart: one tree a layer."""

    model: Any
    layers: tuple[Any, ...]


def unstack_layers(params: Any, config: BartConfig) -> StepParams:
    """Cuts the scanned decoder into layers and casts to the compute dtype, once, outside the loop over steps.

    Norms stay as they are: they compute in float32.
    """

    def cast(path: Any, leaf: Array) -> Array:
        return leaf if "norm" in jax.tree_util.keystr(path) else leaf.astype(config.dtype)

    params = jax.tree_util.tree_map_with_path(cast, params)
    stacked = params["decoder_layers"]
    layers = tuple(jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(config.decoder_layers))
    return StepParams(params, layers)


def cross_caches(
    params: StepParams,
    config: BartConfig,
    encoded: Float[Array, "Rows W D"],
    packing: Packing | None = None,
    width: int = 0,
) -> tuple[KeysValues, ...]:
    """Every layer's keys and values of the sources, in rows of `width` (0: as wide as those of `encoded`).

    Where `encoded` is packed, it is taken apart into them; where `width` is that of n sources, n make a row.
    """
    layer = DecoderLayer(config)
    given = encoded, packing, width or encoded.shape[1]
    return tuple(layer.apply({"params": p}, *given, method=layer.cross_keys_values) for p in params.layers)


def empty_caches(config: BartConfig, rows: int, slots: int) -> tuple[KeysValues, ...]:
    """Zeroed self-attention caches, one a layer, [rows, groups of heads, slots, width of a group]."""
    groups = config.cache_groups
    shape = (rows, groups, slots, config.width // groups)
    zero = lambda: jnp.zeros(shape, config.dtype)  # noqa: E731
    return tuple((zero(), zero()) for _ in range(config.decoder_layers))


def step_states(
    params: StepParams,
    config: BartConfig,
    tokens: Int[Array, "R N"],
    positions: Int[Array, "#R #N"],
    slot: Int[Array, ""],
    caches: tuple[KeysValues, ...],
    cross: tuple[KeysValues, ...],
    own_mask: Bool[Array, "R N L"],
    source_mask: Bool[Array, "R C"],
) -> tuple[Float[Array, "R N D"], tuple[KeysValues, ...]]:
    """The decoder's states for N new tokens of R rows: of N beams, or of N prefixes of any lengths.

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
      The states, for `Bart.logits` and `Bart.token_logits`, and the caches with the new keys and values.
    """
    count = tokens.shape[1]
    fresh = jnp.arange(own_mask.shape[2]) - slot
    before = own_mask & ((fresh < 0) | (fresh >= count))
    beside = jax.lax.dynamic_slice_in_dim(own_mask, slot, count, axis=2)

    def keep(cache: KeysValues, own: KeysValues, x: Array) -> Any:
        later = _known_after(x, slot)
        write = lambda old, part: jax.lax.dynamic_update_slice_in_dim(old, part.astype(old.dtype), later, axis=2)  # noqa: E731
        return tuple(map(write, cache, own))

    past = lambda cache: Segment(cache[0], cache[1], before[:, None])  # noqa: E731
    return _layers(params, config, tokens, positions, caches, cross, past, beside, source_mask, keep)


def prefix_states(
    params: StepParams,
    config: BartConfig,
    tokens: Int[Array, "S W"],
    positions: Int[Array, "S W"],
    start: Int[Array, "S"],
    rows: Int[Array, "Parts n"],
    caches: tuple[KeysValues, ...],
    cross: tuple[KeysValues, ...],
    before: Bool[Array, "S W L"],
    beside: Bool[Array, "S W W"],
    source_mask: Bool[Array, "R C"],
) -> tuple[Float[Array, "S W D"], tuple[KeysValues, ...]]:
    """The decoder's states for W prefixes of any lengths, whose ancestors lie in the caches or beside them.

    Args:
      params, config, tokens, positions, cross, source_mask: as in `step_states`, the last two of all rows.
      start: the first of the W slots that are written in each row; those before it are.
      rows: the S rows, counted in their part of all, see `rag_jax.models.cache_rows`.
      caches: of all rows, with a multiple of BLOCK slots.
      before: which slots below `start` each prefix sees.
      beside: which of the W it sees; each itself.

    Returns:
      The states, and the caches of all rows with the new keys and values.
    """
    cross, source_mask = jax.tree.map(lambda x: take_rows(x, rows), (cross, source_mask))
    written = -(-start.max() // BLOCK)
    past = lambda cache: Blocks(cache[0], cache[1], rows, before[:, None], written)  # noqa: E731

    def keep(cache: KeysValues, own: KeysValues, x: Array) -> Any:
        later = _known_after(x, start)
        return tuple(write_slots(old, part, rows, later) for old, part in zip(cache, own, strict=True))

    return _layers(params, config, tokens, positions, caches, cross, past, beside, source_mask, keep)


def _layers(
    params: StepParams,
    config: BartConfig,
    tokens: Int[Array, "R N"],
    positions: Int[Array, "#R #N"],
    caches: tuple[KeysValues, ...],
    cross: tuple[KeysValues, ...],
    past: Callable[[KeysValues], Segment | Blocks],
    beside: Bool[Array, "R N N"],
    source_mask: Bool[Array, "R C"],
    keep: Callable[[KeysValues, KeysValues, Array], Any],
) -> tuple[Float[Array, "R N D"], tuple[Any, ...]]:
    """The states, and what `keep` makes of each layer's cache and new keys and values, told the states.

    A TPU's compiler that finds a cache written early in a pass of the loop reads it ahead for the next pass, and then
    writes it back as a whole.
    """
    model, layer = Bart(config), DecoderLayer(config)
    x = model.apply({"params": params.model}, tokens, positions, "decoder", method=model.embed)
    source_mask = source_mask[:, None, None, :]
    new = []
    for p, cache, source in zip(params.layers, caches, cross, strict=True):
        own: KeysValues = layer.apply({"params": p}, x, method=layer.own_keys_values)
        looked_at = past(cache), Segment(*own, beside[:, None])
        read = Segment(*source, source_mask, config.source_key_axes)
        x = layer.apply({"params": p}, x, looked_at, read, True, method=layer.combine)
        new.append((cache, own))
    return x, tuple(keep(cache, own, x) for cache, own in new)


def _known_after(x: Float[Array, "R N D"], slot: Int[Array, "*rows"]) -> Int[Array, "*rows"]:
    """The slot or slots, in a form that waits for the states: caches are written after all of them were read.

    A cache that is read after the write is taken into vector memory by a TPU's compiler, and written back as a whole;
    one that is read before it by nothing but chance is copied first, so that the order does not matter.
    """
    # 0 whatever x is, NaN included, which no compiler sees through. One that did would be right as well.
    nothing = jnp.minimum(jnp.abs(x.ravel()[0].astype(jnp.float32)), 0.0).astype(jnp.int32)
    return slot + nothing
