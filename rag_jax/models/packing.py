"""DEVICE. Sequence packing: short sources share the rows that a long one needs alone.

Passages differ in length, and one width for all makes most of the encoder's work padding. Packed, several sources lie
one behind the other in a row; each keeps its own positions and looks at itself alone, so its states are those it has
in a row of its own. What the decoder looks at is taken apart again: one row a source.

Axis names: R sources of S tokens; G groups of sources that are packed apart (one for each shard of a batch), P rows of
W tokens in a group.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped


class Packing(NamedTuple):
    """Where every token lies.

    Attributes:
      slots: int32 [G,P,W], the token of each slot, counted over the group's R/G x S; -1 for an empty slot.
      back: int32 [G,R/G*S], the slot of each token, counted over the group's P x W. Of padding, any slot.
      sources: int32 [G*P,W], the source of each slot; -1 for an empty slot.
      places: int32 [G*P,W], its place in the source.
    """

    slots: Array
    back: Array
    sources: Array
    places: Array

    @property
    def mask(self) -> Bool[Array, "Rows W W"]:
        """Who looks at whom: tokens of one source at each other."""
        return self.sources[:, :, None] == self.sources[:, None, :]


def packing(slots: Int[Array, "G P W"], sources: int, width: int) -> Packing:
    """The whole of a packing from its slots.

    Args:
      slots: see `Packing`; every real token stands in one of them.
      sources: R.
      width: S.
    """
    groups, rows, wide = slots.shape
    tokens = sources // groups * width
    flat = slots.reshape(groups, -1)
    place = jnp.arange(rows * wide, dtype=jnp.int32)
    # An empty slot's number is out of range, and dropped.
    write = lambda own: jnp.zeros(tokens, jnp.int32).at[jnp.where(own < 0, tokens, own)].set(place, mode="drop")  # noqa: E731
    by_row = slots.reshape(groups * rows, wide)
    return Packing(slots, jax.vmap(write)(flat), by_row // width, jnp.maximum(by_row, 0) % width)


def pack(rows: Shaped[Array, "R S"], packing: Packing, empty: int) -> Shaped[Array, "Rows W"]:
    """Token ids (or anything of that shape) from one row a source into packed rows."""
    groups = len(packing.slots)
    flat = rows.reshape(groups, -1)
    taken = jax.vmap(lambda own, slots: own[jnp.maximum(slots, 0)])(flat, packing.slots)
    return jnp.where(packing.slots < 0, empty, taken).reshape(packing.places.shape)


def unpack(x: Float[Array, "Rows W D"], packing: Packing, width: int) -> Float[Array, "R S D"]:
    """Vectors from packed rows into one row a source of `width` = S, or one for n sources of n S.

    Those of padding are some other token's.
    """
    groups = len(packing.slots)
    apart = _take(x.reshape(groups, -1, x.shape[-1]), packing.back, packing.slots)
    return apart.reshape(-1, width, x.shape[-1])


@jax.custom_vjp
def _take(x: Float[Array, "G N D"], back: Int[Array, "G M"], slots: Int[Array, "G P W"]) -> Float[Array, "G M D"]:
    return jax.vmap(lambda own, index: own[index])(x, back)


def _take_forward(x: Array, back: Array, slots: Array) -> tuple[Array, Array]:
    return _take(x, back, slots), slots


def _take_backward(slots: Array, gradient: Array) -> tuple[Array, None, None]:
    # The transpose of a gather is a scatter; of one that takes each real token once it is the gather that goes back.
    # (No gradient comes from padding: nobody looks there.)
    flat = slots.reshape(len(slots), -1)
    taken = jax.vmap(lambda own, index: own[jnp.maximum(index, 0)])(gradient, flat)
    return jnp.where(flat[..., None] < 0, 0, taken), None, None


_take.defvjp(_take_forward, _take_backward)
