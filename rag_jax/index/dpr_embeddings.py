"""HOST. The embeddings that DPR publishes: files of pickled (id, vector) pairs, read without unpickling anything.

DPR cuts a collection into files (`wikipedia_passages_0` to `_49`), each a list of tuples. What a pickle may hold here
is lists, tuples, strings, whole numbers and numpy's float arrays; see `rag_jax.models.pickled` for why nothing else can
happen.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from rag_jax.index.protocol import check_vectors
from rag_jax.models.hf_stored import CheckpointError
from rag_jax.models.pickled import BYTES, Name, interpret, refuse_call
from rag_jax.text.table import PassageTable

PREFIX = "wiki:"  # DPR's later files and code put it before the ids of psgs_w100.tsv
DTYPES = {"f2", "f4", "f8"}


class _Dtype:
    """A float type in the making: its byte order comes after it."""

    def __init__(self, code: str):
        self.dtype = np.dtype(code)

    def build(self, state: Any) -> None:
        match state:
            case (int(), "<" | ">" as order, None, None, None, *_):
                self.dtype = self.dtype.newbyteorder(order)
            case _:
                raise CheckpointError("an array of another kind than plain numbers")


class _Array:
    """An array in the making: its shape and its bytes come after it."""

    def __init__(self) -> None:
        self.value: np.ndarray | None = None

    def build(self, state: Any) -> None:
        match state:
            case (int(), tuple(shape), _Dtype() as kind, bool(), bytes(content)):
                self.value = _array(content, kind.dtype, shape)
            case _:
                raise CheckpointError("an array of another kind than plain numbers")


def _array(content: bytes | bytearray, dtype: np.dtype, shape: tuple[Any, ...]) -> np.ndarray:
    """A view of the bytes as a vector, [D]."""
    if len(shape) == 2 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) != 1 or type(shape[0]) is not int or shape[0] * dtype.itemsize != len(content):
        raise CheckpointError(f"an array of shape {shape} in {len(content)} bytes, where one vector is expected")
    return np.frombuffer(content, dtype)


def _call(function: Any, arguments: Any) -> Any:
    match function, arguments:
        case Name("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct"), (Name("numpy", "ndarray"), *_):
            return _Array()
        case Name("numpy", "dtype"), (str(code), *_) if code in DTYPES:
            return _Dtype(code)
        case Name("numpy", "dtype"), (code, *_):
            raise CheckpointError(f"an array of type {code!r}; vectors are {', '.join(sorted(DTYPES))}")
        case (
            Name("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer"),
            (bytes() | bytearray() as content, _Dtype() as kind, tuple(shape), "C" | "F"),
        ):
            array = _Array()
            array.value = _array(content, kind.dtype, shape)
            return array
        case Name("_codecs", "encode"), (str(text), "latin1"):  # how protocols 0 to 2 write bytes
            return text.encode("latin1")
    return refuse_call(function)


def _build(value: Any, state: Any) -> None:
    if not isinstance(value, _Dtype | _Array):
        raise CheckpointError("it sets attributes of something that is not an array; nothing was run")
    value.build(state)


def read_dpr_embeddings(path: str | pathlib.Path) -> Iterator[tuple[str, Float[np.ndarray, " D"]]]:
    """(id, vector) pairs of one file, in its order. The file is held in memory: under 2 GB for one of fifty.

    Ids are given as they stand there, numbers as texts.

    Raises:
      FileNotFoundError: no such file.
      ValueError: it holds anything but ids and vectors, or is damaged. Nothing in it is run.
    """
    path = pathlib.Path(path)
    try:
        with path.open("rb") as stream:
            pairs = interpret(stream, _call, _build, also=BYTES)
        if not isinstance(pairs, list):
            raise CheckpointError(f"it holds a {type(pairs).__name__}, not a list of (id, vector) pairs")
        checked = [_pair(number, pair) for number, pair in enumerate(pairs)]
    except CheckpointError as error:
        raise ValueError(f"{path}: not DPR's embeddings: {error}") from None
    yield from checked


def _pair(number: int, pair: Any) -> tuple[str, np.ndarray]:
    match pair:
        case (str() | int() as id, _Array(value=np.ndarray() as vector)):
            return str(id), vector
    raise CheckpointError(f"its entry {number} is no pair of an id and a vector")


def place_embeddings(
    table: PassageTable, pairs: Iterable[tuple[str, Float[np.ndarray, " D"]]], path: pathlib.Path
) -> Float[np.ndarray, "N D"]:
    """Writes vectors to an .npy file in the order of the passages, whatever their own, and maps it.

    Args:
      table: N passages.
      pairs: (id, vector) for each of them; ids may have the prefix "wiki:" on one side only.
      path: the file to make.

    Raises:
      ValueError: an id that no passage has or that comes twice, a passage without a vector, vectors of different D or
        ones that cannot be indexed.
    """
    prefixed = len(table) > 0 and table[0].id.startswith(PREFIX)
    seen = np.zeros(len(table), bool)
    out: np.memmap | None = None
    for id, vector in pairs:
        wanted = PREFIX + id.removeprefix(PREFIX) if prefixed else id.removeprefix(PREFIX)
        try:
            row = table.row_of(wanted)
        except KeyError:
            raise ValueError(
                f"the embeddings have the id {id!r}, no passage does; are they of these passages?"
            ) from None
        if seen[row]:
            raise ValueError(f"the embeddings have the id {id!r} twice; give each file once")
        if out is None:
            out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(len(table), len(vector)))
        if len(vector) != out.shape[1]:
            raise ValueError(f"the embedding of {id!r} has {len(vector)} dimensions, the first one {out.shape[1]}")
        seen[row], out[row] = True, vector
    if out is None or not seen.all():
        missing = int(np.argmin(seen))
        raise ValueError(
            f"{int((~seen).sum()):,} of {len(table):,} passages have no embedding, first "
            f"{table[missing].id!r}; give all files of the collection"
        )
    out.flush()
    check_vectors(out, "embeddings")
    return np.load(path, mmap_mode="r", allow_pickle=False)
