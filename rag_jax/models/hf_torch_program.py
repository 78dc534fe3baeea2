"""HOST. The pickle inside a file of torch.save, read without running it, and written.

A pickle is a program for a stack machine, and some of its instructions import and call whatever the file names. The
standard unpickler can be given a list of allowed names, but then safety hangs on every name in the list and on the
unpickler's own shortcuts. Here nothing is unpickled: `pickletools.genops` cuts the bytes into instructions, and
`interpret` carries out only the few dozen that torch.save needs for a state dict. None of them imports; a "call" is a
lookup among four names, each of which makes a plain value in this file. Every other instruction and every other name is
refused before anything happens.
"""

from __future__ import annotations

import io
import math
import pickletools
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rag_jax.models.hf_stored import BFLOAT16, CheckpointError

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


class _Name(NamedTuple):
    """What the file calls a function or a class. Never resolved."""

    module: str
    name: str


class Storage(NamedTuple):
    """A run of values in the file; several tensors may look at one."""

    dtype: np.dtype
    key: str
    count: int


class View(NamedTuple):
    """A tensor: a window on a storage. Offsets and strides count elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = {"BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()


def _named(pairs: Any) -> dict[str, Any]:
    """A dict by name. Other keys are refused unhashed: hashing a tuple nested deep enough overflows the C stack."""
    named = {}
    for name, value in pairs:
        if not isinstance(name, str):
            raise CheckpointError(f"it holds an entry whose name is a {type(name).__name__}")
        named[name] = value
    return named


def _call(function: Any, arguments: Any) -> Any:
    """The value of the few calls that a state dict holds."""
    match function, arguments:
        case _Name("collections", "OrderedDict"), ():
            return {}
        case _Name("collections", "OrderedDict"), (list(pairs),):
            return _named(pairs)
        case _Name("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2"), (
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
        case _Name("torch._utils", "_rebuild_parameter"), (View() as view, *_):
            return view
        case _Name(module, name), _:
            raise CheckpointError(f"it asks to call {module}.{name}, which weights have no need of; nothing was run")
    raise CheckpointError("it asks to call something that is not a name; nothing was run")


def _storage(reference: Any) -> Storage:
    match reference:
        case ("storage", _Name("torch" | "torch.storage", kind), str(key), _, int(count), *rest) if kind in _DTYPES:
            if rest and rest != [None]:
                raise CheckpointError("its storages are views of each other, as torch wrote before 0.4; save it again")
            return Storage(_DTYPES[kind], key, count)
        case ("storage", _Name(_, kind), *_):
            raise CheckpointError(f"a tensor of type {kind}; known are {', '.join(_DTYPES)}")
    raise CheckpointError("a reference to something that is not a tensor's storage")


def interpret(stream: io.BufferedIOBase) -> Any:
    """Carries out one pickle up to its STOP, and leaves the stream behind it.

    Raises:
      CheckpointError: an instruction or a name that a state dict has no need of, or bytes that are no pickle.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        place = len(stack) - 1
        while stack[place] is not _MARK:  # without a mark this runs off the stack: an IndexError, so a damaged file
            place -= 1
        taken = stack[place + 1 :]
        del stack[place:]
        return taken

    try:
        for code, argument, _ in pickletools.genops(stream):
            name = code.name
            if name == "PROTO":
                continue
            if name == "STOP":
                return stack.pop()
            if name in _LITERALS:
                stack.append(argument)
            elif name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            elif name in _SHORT_TUPLES:
                size = _SHORT_TUPLES[name]
                stack[-size:] = [tuple(stack[-size:])]
            elif name == "EMPTY_DICT":
                stack.append({})
            elif name == "EMPTY_LIST":
                stack.append([])
            elif name == "MARK":
                stack.append(_MARK)
            elif name == "TUPLE":
                stack.append(tuple(since_mark()))
            elif name == "APPEND":
                last = stack.pop()
                stack[-1].append(last)
            elif name == "APPENDS":
                last = since_mark()
                stack[-1].extend(last)
            elif name == "SETITEM":
                key, last = stack[-2:]
                del stack[-2:]
                stack[-1].update(_named([(key, last)]))
            elif name == "SETITEMS":
                last = since_mark()
                stack[-1].update(_named(zip(last[::2], last[1::2], strict=True)))
            elif name in ("BINPUT", "LONG_BINPUT"):
                memo[argument] = stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                stack.append(memo[argument])
            elif name == "GLOBAL":
                stack.append(_Name(*argument.split(" ", 1)))
            elif name == "REDUCE":
                function, arguments = stack[-2:]
                stack[-2:] = [_call(function, arguments)]
            elif name == "BINPERSID":
                stack.append(_storage(stack.pop()))
            elif name == "BUILD":
                stack.pop()  # attributes of a state dict (versions of its modules): not weights
                if not isinstance(stack[-1], dict):
                    raise CheckpointError("it sets attributes of something that is not a state dict; nothing was run")
            else:
                raise CheckpointError(f"its pickle holds the instruction {name}, which torch.save does not write")
    except CheckpointError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"its pickle is damaged ({type(error).__name__}: {error})") from None
    raise CheckpointError("its pickle has no end")


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
