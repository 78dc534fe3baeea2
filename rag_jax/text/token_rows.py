"""HOST. Token ids of all passages, made once and kept beside the passages as a memory-mapped array.

The rows for one role (the passage tower's or the generator's) are a file named by a key that is made from the passages,
the tokenizer and the limit, so rows of other passages or of another tokenizer are never taken for these.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Int, Shaped
from transformers import PreTrainedTokenizerBase

from rag_jax.text.table import PassageTable
from rag_jax.text.tokens import Tokenizers
from rag_jax.types import Passage

FORMAT = 1  # raised when a role's rows are laid out differently, so that rows made before are made again
BATCH = 4096  # passages tokenized at a time
Role = Literal["passage", "source"]


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """sha256 over all that decides the ids of a text: vocabulary, merges, normalisation, special tokens. 64 digits.

    A limit or a padding that an earlier call left in the tokenizer is no part of it.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:  # one written in Python has no file that says it all
        content = {"class": type(tokenizer).__name__, "vocab": tokenizer.get_vocab()}
        content["settings"] = {name: repr(value) for name, value in tokenizer.init_kwargs.items()}
    else:
        content = {**json.loads(backend.to_str()), "truncation": None, "padding": None}
    special = [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id]
    return hashlib.sha256(json.dumps([content, special], sort_keys=True).encode()).hexdigest()


def passage_rows(
    folder: str | pathlib.Path, passages: PassageTable, tokenizers: Tokenizers, role: Role
) -> Shaped[np.ndarray, "N P"]:
    """The token ids of every passage, as `Tokenizers.passages` or `Tokenizers.source_passages` makes them.

    The first call tokenizes all passages, a few thousand at a time, and writes a file; later calls map it. For the 21
    million passages of Wikipedia at 160 tokens that is 6.7 GB a role.

    Args:
      folder: where the file is kept; made if it is not there. Beside a table `wiki`, say, `wiki.tokens`.
      passages: the table.
      tokenizers: with the limit `max_passage`, which is P.
      role: "passage" for the passage tower's ids, "source" for the generator's.

    Returns:
      A read-only map, row for row the table's; uint16 where the vocabulary fits, else int32 (convert before counting
      with it). Ends are filled with the role's padding id.

    Raises:
      ValueError: another role, or a file there that is not these rows; remove it.
    """
    roles = {
        "passage": (tokenizers.passage, tokenizers.passages),
        "source": (tokenizers.source, tokenizers.source_passages),
    }
    if role not in roles:
        raise ValueError(f"no role {role!r} that reads passages; choose from {', '.join(roles)}")
    tokenizer, encode = roles[role]
    shape = (len(passages), tokenizers.max_passage)
    dtype = np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.int32)
    about = [FORMAT, role, passages.fingerprint, tokenizer_fingerprint(tokenizer), tokenizers.max_passage]
    path = pathlib.Path(folder) / f"{role}-{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}.npy"
    if not path.exists():
        _write(path, shape, dtype, passages, encode, tokenizer.pad_token_id)
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path}: not an array of token ids ({error}); remove it") from error
    if rows.shape != shape or rows.dtype != dtype:
        raise ValueError(f"{path}: {rows.dtype} {rows.shape}, expected {dtype} {shape}; remove it")
    return rows


class FoundPassages:
    """The generator's ids of passages by their rows, tokenized when they are asked for: a question finds few of many.

    Args:
      passages: N of them.
      tokenizers: with the limit `max_passage`, which is P.
    """

    def __init__(self, passages: Sequence[Passage], tokenizers: Tokenizers):
        self.passages, self.tokenizers = passages, tokenizers

    def __getitem__(self, rows: Int[np.ndarray, "*axes"]) -> Int[np.ndarray, "*axes P"]:
        """As `Tokenizers.source_passages` makes them, int32, padded to P whatever was found."""
        wanted, places = np.unique(rows, return_inverse=True)
        ids = self.tokenizers.source_passages([self.passages[int(row)] for row in wanted])
        out = np.full((len(wanted), self.tokenizers.max_passage), self.tokenizers.source.pad_token_id, np.int32)
        out[:, : ids.shape[1]] = ids
        return out[places.reshape(rows.shape)]


def _write(
    path: pathlib.Path,
    shape: tuple[int, int],
    dtype: np.dtype,
    passages: PassageTable,
    encode: Callable[[Sequence[Passage]], Int[np.ndarray, "N P"]],
    pad_id: int,
) -> None:
    """Writes beside and renames: whoever sees the file sees all of it, and of two that write at once one wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        # Not through a map: writing to one kills the process when the disk is full.
        with beside.open("wb") as sink:
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(sink, header)
            for start in range(0, shape[0], BATCH):
                ids = encode(passages[start : start + BATCH])
                rows = np.full((len(ids), shape[1]), pad_id, dtype)
                rows[:, : ids.shape[1]] = ids
                sink.write(rows.tobytes())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
