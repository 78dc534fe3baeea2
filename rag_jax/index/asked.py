"""HOST. An index as somebody asks for it: opened if it is that one, made if there is none, and told what differs."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import numpy as np
from jaxtyping import Float

from rag_jax.index.backends import backend_named
from rag_jax.index.change import Embed
from rag_jax.index.manifest import MAX_PASSAGE_TOKENS, IndexMismatch, Manifest, read_manifest
from rag_jax.index.resume import build_resumable
from rag_jax.index.store import Index, build_index, open_index
from rag_jax.text.printable import printable
from rag_jax.text.table import PassageTable


def open_or_build(
    directory: pathlib.Path,
    passages: PassageTable,
    embed: Embed,
    *,
    encoder_fingerprint: str,
    backend: str,
    dtype: str,
    vectors: Float[np.ndarray, "N D"] | None,
    made_with: dict[str, Any],
    derived: bool,
) -> Index:
    """Opens the index at `directory`, or makes it there if there is none.

    Args:
      directory: where the index is or shall be.
      passages: N passages.
      embed: the passage encoder; not called where the backend searches texts, or where `vectors` are given.
      encoder_fingerprint: of that encoder; "" where the backend searches texts.
      backend: how to search.
      dtype: what the vectors are scored as; "" takes an index as it is, and float32 for a new one.
      vectors: of the passages, if they are known.
      made_with: see `Manifest`. An index whose passages were cut to another "max_passage_tokens" is another one; one
        that does not say it is taken.
      derived: whether an index that is damaged or another one is made again, which is told on standard error.

    Raises:
      FileNotFoundError: something is at `directory`, and it is no index; it is never overwritten.
      IndexMismatch: a damaged index, or another one with all in which it is another; and not `derived`.
      ValueError: as `build_index`.
    """
    asked = {
        "passages": passages.fingerprint,
        "backend": backend,
        "dtype": dtype,
        "encoder": encoder_fingerprint,
        MAX_PASSAGE_TOKENS: made_with.get(MAX_PASSAGE_TOKENS),
    }
    chosen = backend_named(backend)
    while True:
        there = directory.exists()
        if there:
            try:
                return _open(directory, asked)
            except IndexMismatch as error:
                if not derived:
                    raise
                print(printable(f"{error}: a derived file, which is made again now"), file=sys.stderr, flush=True)
        made: dict[str, Any] = {
            "encoder_fingerprint": encoder_fingerprint,
            "backend": backend,
            "settings": chosen.with_dtype(len(passages), dtype or "float32"),
            "overwrite": there,
            "made_with": made_with,
        }
        try:
            if vectors is not None:
                return build_index(directory, passages, vectors, **made)
            return build_resumable(directory, passages, None if chosen.texts else embed, **made)
        except FileExistsError:
            # Whoever held the lock while this process waited for it has made the index: look at that one.
            if there or not directory.exists():
                raise


def _open(directory: pathlib.Path, asked: dict[str, Any]) -> Index:
    """Opens an index that is what is asked for, in the words of `_has`; "" or None asks for nothing."""
    has = _has(read_manifest(directory), asked["backend"])
    if other := [name for name in asked if asked[name] and has[name] and asked[name] != has[name]]:
        listed = "; ".join(f"{name}: {_short(has[name])} there, asked for {_short(asked[name])}" for name in other)
        raise IndexMismatch(f"{directory}: another index than the one asked for ({listed})")
    return open_index(directory, encoder_fingerprint=asked["encoder"] or None, passages_fingerprint=asked["passages"])


def _has(manifest: Manifest, backend: str) -> dict[str, Any]:
    """What a manifest says to each of the names that are asked for; where it says nothing, something false."""
    return {
        "passages": manifest.passages,
        "backend": manifest.backend,
        # Another backend's dtype has another name, and is of no interest.
        "dtype": manifest.parameters.get(backend_named(backend).dtype_field) if manifest.backend == backend else "",
        "encoder": manifest.encoder,
        MAX_PASSAGE_TOKENS: manifest.made_with.get(MAX_PASSAGE_TOKENS),
    }


def _short(value: Any) -> str:
    """A fingerprint by its beginning, as all messages show it."""
    return str(value)[:12]
