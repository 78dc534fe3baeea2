"""HOST. Token rows through a jitted encoder into vectors, and the fingerprint of the encoder that made them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Float32, Int

WIDTH_MULTIPLE = 16  # the height of a bfloat16 tile on a TPU


def fingerprint(params: Any) -> str:
    """sha256 over the sorted paths, shapes, dtypes and bytes of a pytree of arrays, 64 hex digits.

    Containers, the order of their entries and the devices of the arrays do not count; a single bit of a value does.

    Raises:
      ValueError: two arrays have one path.
    """
    leaves = jax.tree_util.tree_leaves_with_path(params)
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    if len(named) != len(leaves):
        raise ValueError("two parameters have one path; rename them")
    digest = hashlib.sha256()
    for path in sorted(named):
        value = np.asarray(jax.device_get(named[path]))
        value = value.astype(value.dtype.newbyteorder("<"), copy=False)
        digest.update(json.dumps([path, value.shape, value.dtype.name]).encode() + b"\n")
        digest.update(value.tobytes())
    return digest.hexdigest()


def embed(
    encode: Callable[[Int[np.ndarray, "B P"]], Any],
    rows: Int[np.ndarray, "N P"],
    *,
    pad_id: int,
    batch_size: int,
    progress: Callable[[int, int], None] | None = None,
    out: Float32[np.ndarray, "N D"] | None = None,
) -> Float32[np.ndarray, "N D"]:
    """Runs an encoder over token rows, in batches of rows of about one length.

    Every batch is [batch_size, W] int32, W a multiple of 16 or P, so an encoder is compiled once for each W at most.
    The longest rows come first: a batch that does not fit into memory is the first one.

    Args:
      encode: jitted, [B, W] int32 -> [B, D] floating; must not let one row change another's result.
      rows: token ids, padded at the end; may be memory-mapped.
      pad_id: the padding id. A row of nothing else is legal, if the encoder takes it.
      batch_size: rows of a batch; a last batch that falls short is filled with copies.
      progress: called with (rows done, N) after each batch.
      out: where to put the vectors, a memory map for instance; None makes an array.

    Returns:
      The vectors in the order of `rows`: `out`, if it was given.

    Raises:
      ValueError: no rows, batch_size < 1, an `out` of another shape, or an encoder whose result is not a finite [B, D].
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
    if 0 in rows.shape:
        raise ValueError(f"no token rows to embed: shape {rows.shape}")
    done = 0
    for numbers, vectors in _batches(encode, rows, pad_id, batch_size):
        out = _put(out, len(rows), numbers, vectors)
        done += len(numbers)
        if progress is not None:
            progress(done, len(rows))
    assert out is not None  # there are rows, so there was a batch
    return out


def _batches(
    encode: Callable[[Int[np.ndarray, "B P"]], Any], rows: Int[np.ndarray, "N P"], pad_id: int, batch_size: int
) -> Iterator[tuple[Int[np.ndarray, " n"], Any]]:
    """Row numbers and what the encoder gives for them; a batch runs on the device while the next is cut."""
    lengths = _lengths(rows, pad_id)
    order = np.argsort(-lengths, kind="stable")
    running = None
    for start in range(0, len(rows), batch_size):
        numbers = order[start : start + batch_size]
        width = min(-(-int(lengths[numbers[0]]) // WIDTH_MULTIPLE) * WIDTH_MULTIPLE, rows.shape[1])
        filled = np.concatenate([numbers, np.repeat(numbers[-1:], batch_size - len(numbers))])
        result = encode(np.ascontiguousarray(rows[filled, :width], np.int32))
        if running is not None:
            yield running
        running = numbers, result
    if running is not None:
        yield running


def _lengths(rows: Int[np.ndarray, "N P"], pad_id: int) -> Int[np.ndarray, " N"]:
    """Columns up to the last that is not padding, at least 1; in slices, as comparing takes a byte a token."""
    found = []
    for start in range(0, len(rows), 1 << 16):
        used = rows[start : start + (1 << 16)] != pad_id
        found.append(np.where(used.any(axis=1), rows.shape[1] - np.argmax(used[:, ::-1], axis=1), 1))
    return np.concatenate(found)


def _put(
    out: Float32[np.ndarray, "N D"] | None, count: int, numbers: Int[np.ndarray, " n"], vectors: Any
) -> Float32[np.ndarray, "N D"]:
    """Writes one batch's vectors to the rows they belong to, without the copies that filled it up."""
    vectors = np.asarray(vectors).astype(np.float32, copy=False)
    if vectors.ndim != 2 or len(vectors) < len(numbers):
        raise ValueError(f"the encoder must return [B, D] for [B, P] tokens, found shape {vectors.shape}")
    vectors = vectors[: len(numbers)]
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = int(numbers[np.argmin(finite)])
        raise ValueError(f"the encoder gives NaN or infinity for token row {row}; its parameters have diverged")
    if out is None:
        out = np.empty((count, vectors.shape[1]), np.float32)
    if out.shape != (count, vectors.shape[1]):
        raise ValueError(f"out has the shape {out.shape}, the vectors make {(count, vectors.shape[1])}")
    out[numbers] = vectors
    return out
