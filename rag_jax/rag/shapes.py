"""HOST. The static shapes of a batch: how wide its sources are, and how they share the encoder's rows.

Few shapes are compiled: widths go in steps of 32, packed rows in steps of a sixteenth of the sources.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from rag_jax.rag.device_retrieve import Resident
from rag_jax.rag.source import SPECIALS, bucket
from rag_jax.sharding import Layout
from rag_jax.types import Batch

WORTHWHILE = 0.75  # of the rows; packing costs copies, so a smaller gain is none


def source_width(batch: Batch, pad_id: int, most: int, resident: Resident | None = None) -> int:
    """The static source width for a batch: what its longest pair needs, in steps of 32, at most `most`.

    `most` gives way to the questions, which are never cut. Sources that are joined already have their width. Where the
    step retrieves by itself (from `resident`), nobody knows the passages yet: there is room for the longest.
    """
    if resident is not None:
        return widest_source(batch.source_question.shape[1], resident.longest, most)
    if not batch.source_question.shape[1]:
        return batch.passages.shape[-1]
    longest = batch.source_question.shape[1]
    needed = int(_lengths(batch, pad_id).max())
    return max(longest + SPECIALS, bucket(needed, 32, most))


def widest_source(question: int, passage: int, most: int) -> int:
    """The source width that has room for a question and a passage of so many tokens; see `source_width`."""
    return max(question + SPECIALS, bucket(question + passage + SPECIALS, 32, most))


def to_devices(
    batch: Batch,
    pad_id: int,
    most: int,
    layout: Layout,
    accumulate: int = 1,
    resident: Resident | None = None,
    one_shape: bool = False,
) -> tuple[Batch, int]:
    """The batch that `shaped` gives, cut by rows over the mesh, and its source width."""
    batch, width = shaped(batch, pad_id, most, layout, accumulate, resident, one_shape)
    return layout.rows(batch), width


def shaped(
    batch: Batch,
    pad_id: int,
    most: int,
    layout: Layout,
    accumulate: int = 1,
    resident: Resident | None = None,
    one_shape: bool = False,
) -> tuple[Batch, int]:
    """A batch packed for a mesh, and its source width: the widest that any process needs.

    Args:
      batch: this process's rows, on the host.
      pad_id, most, resident: see `source_width`.
      layout: where it will go.
      accumulate: parts of each device's rows, one after the other, that are run apart.
      one_shape: sources are as wide as the batch's columns allow, and have a row each, so that another batch of these
        columns has the same shape. For questions that come singly: computing more is quicker than compiling again.
    """
    width = layout.largest(_room(batch, most) if one_shape else source_width(batch, pad_id, most, resident))
    if resident is None and not batch.source_question.shape[1]:
        short = ((0, 0), (0, 0), (0, width - batch.passages.shape[-1]))
        batch = dataclasses.replace(batch, passages=np.pad(batch.passages, short, constant_values=pad_id))
    if one_shape:
        return batch, width
    groups = len(layout.my_rows(layout.parts)) * accumulate
    return packed(batch, pad_id, width, groups, layout.largest), width


def padding_share(batch: Batch, pad_id: int, width: int) -> float | None:
    """Which share of the generator's encoder tokens is padding, from 0 to 1; None where only the step will know.

    Args:
      batch: from `shaped`.
      pad_id: the generator's.
      width: S.
    """
    if batch.passages is None:
        return None
    lengths = np.minimum(_lengths(batch, pad_id), width)
    slots = lengths.size * width if batch.slots is None else batch.slots.size
    return 1.0 - int(lengths.sum()) / slots


def power_of_two(count: int) -> int:
    """The smallest power of two that is at least `count` (1 for none)."""
    return 1 << max(count - 1, 0).bit_length()


def _room(batch: Batch, most: int) -> int:
    """The source width that has room for whatever may stand in the columns of this batch."""
    if not batch.source_question.shape[1]:
        return most
    return widest_source(batch.source_question.shape[1], batch.passages.shape[-1], most)


def packed(
    batch: Batch, pad_id: int, width: int, groups: int = 1, largest: Callable[[int], int] = lambda rows: rows
) -> Batch:
    """The batch with the `slots` of its sources, where packing them saves a quarter of the encoder's rows.

    Sources that only the step will know (`rag_jax.rag.device_retrieve`) have a row each.

    Args:
      batch: on the host.
      pad_id: the generator's.
      width: S, from `source_width`.
      groups: parts of the batch that are packed apart, one for each shard of it.
      largest: the most rows that a process needs, from what this one needs.

    Raises:
      ValueError: the batch does not divide into so many groups.
    """
    if batch.passages is None:
        return batch
    batch_size = len(batch.passages)
    if batch_size % groups:
        raise ValueError(f"{batch_size} questions cannot be packed in {groups} equal groups")
    lengths = np.minimum(_lengths(batch, pad_id), width).reshape(groups, -1)
    rows = lengths.shape[1]
    layouts = [first_fit_decreasing(own, width) for own in lengths]
    step = max(rows // 16, 1)
    needed = largest(step * -(-max(int(row.max()) + 1 for row, _ in layouts) // step))
    if needed > WORTHWHILE * rows:
        return batch
    slots = np.full((groups, needed * width), -1, np.int32)
    for group, (own, (row, start)) in enumerate(zip(lengths, layouts, strict=True)):
        source = np.repeat(np.arange(rows), own)
        place = np.arange(len(source)) - np.repeat(np.cumsum(own) - own, own)
        slots[group, (row * width + start)[source] + place] = source * width + place
    return dataclasses.replace(batch, slots=slots.reshape(groups, needed, width))


def first_fit_decreasing(
    lengths: Int[np.ndarray, "R"], width: int
) -> tuple[Int[np.ndarray, "R"], Int[np.ndarray, "R"]]:
    """A row of `width` tokens for each source, and where in it the source begins.

    The longest first, each into the first row that has room: at most 11/9 of the fewest rows possible, and one more.
    """
    room = np.full(len(lengths), width)
    row, start = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
    for source in np.argsort(-lengths, kind="stable"):
        row[source] = np.argmax(room >= lengths[source])
        start[source] = width - room[row[source]]
        room[row[source]] -= lengths[source]
    return row, start


def _lengths(batch: Batch, pad_id: int) -> Int[np.ndarray, "B K"]:
    """Tokens of every source, if nothing is cut."""
    read = (batch.passages != pad_id).sum(-1)
    if not batch.source_question.shape[1]:
        return read
    return (batch.source_question != pad_id).sum(-1)[:, None] + read + SPECIALS
