"""HOST. The pickle inside a file of torch.save, read without running it (`rag_jax.models.pickled`), and written.

Of a state dict four names are known, and each makes a plain value in this file.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rag_jax.models import pickled
from rag_jax.models.hf_stored import BFLOAT16, CheckpointError
from rag_jax.models.pickled import Name, named, refuse_call

_DTYPES = {
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": BFLOAT16,
    "DoubleStorage": np.dtype("<f8"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}
_STORAGES = {dtype: name for name, dtype in _DTYPES.items()}


class Storage(NamedTuple):
    """A run of values in the file; several tensors may look at one."""

    dtype: np.dtype
    key: str
    length: int


class View(NamedTuple):
    """A tensor: a window on a storage. Offsets and strides count elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _call(function: Any, arguments: Any) -> Any:
    """The value of the few calls that a state dict holds."""
    match function, arguments:
        case Name("collections", "OrderedDict"), ():
            return {}
        case Name("collections", "OrderedDict"), (list(pairs),):
            return named(pairs)
        case Name("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2"), (
            Storage() as at,
            offset,
            shape,
            strides,
            *_,
        ):
            numbers = (offset, *shape, *strides)
            if not all(type(number) is int for number in numbers) or len(shape) != len(strides):
                raise CheckpointError("a tensor whose shape or strides are no numbers")
            return View(at, offset, tuple(shape), tuple(strides))
        case Name("torch._utils", "_rebuild_parameter"), (View() as view, *_):
            return view
    return refuse_call(function)


def _storage(reference: Any) -> Storage:
    match reference:
        case ("storage", Name("torch" | "torch.storage", kind), str(key), _, int(count), *rest) if kind in _DTYPES:
            if rest and rest != [None]:
                raise CheckpointError("its storages are views of each other, as torch wrote before 0.4; save it again")
            return Storage(_DTYPES[kind], key, count)
        case ("storage", Name(_, kind), *_):
            raise CheckpointError(f"a tensor of type {kind}; known are {', '.join(_DTYPES)}")
    raise CheckpointError("a reference to something that is not a tensor's storage")


def _build(value: Any, state: Any) -> None:
    """Attributes of a state dict are the versions of its modules: no weights."""
    if not isinstance(value, dict):
        raise CheckpointError("it sets attributes of something that is not a state dict; nothing was run")


def interpret(stream: Any) -> Any:
    """The value of one pickle; the stream is left behind it.

    Raises:
      CheckpointError: an instruction or a name that a state dict has no need of, or bytes that are no pickle.
    """
    return pickled.interpret(stream, _call, _build, _storage)


def _integer(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    content = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(content)]) + content


def _text(value: str) -> bytes:
    content = value.encode("utf-8")
    return b"X" + struct.pack("<I", len(content)) + content


def program(tensors: Mapping[str, np.ndarray]) -> bytes:
    """The pickle of a state dict: the reader's instructions, written out."""
    parts = [b"\x80\x02}("]
    for number, (name, tensor) in enumerate(tensors.items()):
        strides = [math.prod(tensor.shape[axis + 1 :]) for axis in range(tensor.ndim)]
        storage = f"torch\n{_STORAGES[tensor.dtype]}\n".encode()
        parts += [_text(name), b"ctorch._utils\n_rebuild_tensor_v2\n(("]
        parts += [_text("storage"), b"c", storage, _text(str(number)), _text("cpu"), _integer(tensor.size), b"tQ"]
        parts += [_integer(0), b"(", *map(_integer, tensor.shape), b"t(", *map(_integer, strides), b"t"]
        parts += [b"\x89ccollections\nOrderedDict\n)RtR"]
    return b"".join([*parts, b"u."])
