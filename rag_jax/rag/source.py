"""DEVICE. The generator's source: question first, then the passage, joined from token ids to one static width.

The question is never cut; what does not fit is cut from the passage's tail. Token ids of both are computed once, so
joining is a gather and can happen inside the jitted step, after a retrieval on device.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

SPECIALS = 3  # <s> question </s> passage </s>


def join_source(
    question: Int[Array, "B Q"],
    passages: Int[Array, "B K P"],
    width: int,
    *,
    bos_id: int,
    eos_id: int,
    pad_id: int,
) -> tuple[Int[Array, "B K S"], Bool[Array, "B K S"]]:
    """<s> question </s> passage </s> for every pair of a question and one of its passages.

    Args:
      question: the question's ids without special tokens, padded with `pad_id` at the end.
      passages: title and text ids without outer special tokens, padded with `pad_id`. A row of padding only gives
        `<s> question </s> </s>`: the closed-book source.
      width: S; must hold the longest question and three special tokens.

    Returns:
      ids and a mask that is true on real tokens.

    Raises:
      ValueError: `width` could cut a question.
    """
    longest = question.shape[1] + SPECIALS
    if width < longest:
        raise ValueError(f"width={width} cannot hold {question.shape[1]} question tokens and {SPECIALS} special tokens")
    asked = (question != pad_id).sum(-1)[:, None, None]
    room = width - SPECIALS - asked
    read = jnp.minimum((passages != pad_id).sum(-1)[..., None], room)
    place = jnp.arange(width)[None, None, :]
    batch, count, _ = passages.shape
    from_question = jnp.take_along_axis(
        jnp.broadcast_to(question[:, None], (batch, count, question.shape[1])),
        jnp.broadcast_to(jnp.clip(place - 1, 0, question.shape[1] - 1), (batch, count, width)),
        axis=-1,
    )
    start = asked + 2
    if passages.shape[-1]:
        from_passage = jnp.take_along_axis(passages, jnp.clip(place - start, 0, passages.shape[-1] - 1), axis=-1)
    else:
        from_passage = jnp.full((batch, count, width), pad_id, question.dtype)
    end = start + read
    ids = jnp.select(
        [place == 0, place <= asked, place == asked + 1, place < end, place == end],
        [bos_id, from_question, eos_id, from_passage.astype(question.dtype), eos_id],
        pad_id,
    )
    return ids, place <= end


def bucket(length: int, multiple: int = 32, most: int | None = None) -> int:
    """The smallest multiple of `multiple` that holds `length`, so that few shapes are compiled; never above `most`."""
    width = max(multiple, -(-length // multiple) * multiple)
    return width if most is None else min(width, most)
