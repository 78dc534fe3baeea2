"""HOST. A pickle, read without running it.

A pickle is a program for a stack machine, and some of its instructions import and call whatever the file names. The
standard unpickler can be given a list of allowed names, but then safety hangs on every name in the list and on the
unpickler's own shortcuts. Here nothing is unpickled: `pickletools.genops` cuts the bytes into instructions, and
`interpret` carries out only those that plain values need. None of them imports. A name in the file stays a name; what a
"call" of it gives is decided by the reader at hand, out of a few plain values of its own. Every other instruction and
every other name is refused before anything happens.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, NamedTuple

from rag_jax.models.hf_stored import CheckpointError


class Name(NamedTuple):
    """What the file calls a function or a class. Never resolved."""

    module: str
    name: str


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = {"BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
BYTES = frozenset({"SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"})
_SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NEW = {"EMPTY_DICT": dict, "EMPTY_LIST": list}
_IGNORED = {"PROTO", "FRAME"}
_MARK = object()


def refuse_call(function: Any) -> None:
    """What a reader does with a call that it does not know.

    Raises:
      CheckpointError: always; it names the call.
    """
    if isinstance(function, Name):
        name = f"{function.module}.{function.name}"
        raise CheckpointError(f"it asks to call {name}, which its kind of file has no need of; nothing was run")
    raise CheckpointError("it asks to call something that is not a name; nothing was run")


def refuse(what: Any) -> None:
    """What a reader without references to other files does with one.

    Raises:
      CheckpointError: always.
    """
    raise CheckpointError("it refers to something outside of itself; nothing was run")


def named(pairs: Any) -> dict[str, Any]:
    """A dict by name. Other keys are refused unhashed: hashing a tuple nested deep enough overflows the C stack.

    Raises:
      CheckpointError: a key that is no text.
    """
    found = {}
    for name, value in pairs:
        if not isinstance(name, str):
            raise CheckpointError(f"it holds an entry whose name is a {type(name).__name__}")
        found[name] = value
    return found


def interpret(
    stream: Any,
    call: Callable[[Any, Any], Any],
    build: Callable[[Any, Any], None],
    refer: Callable[[Any], Any] = refuse,
    also: frozenset[str] = frozenset(),
) -> Any:
    """Carries out one pickle up to its STOP, and leaves the stream behind it.

    Args:
      stream: opened for reading bytes.
      call: (name, arguments) -> the value that stands for the call; `refuse_call` for all others.
      build: (value, state) -> None; takes the state that the file sets on a value that `call` made.
      refer: persistent id -> the value that stands for it.
      also: literal instructions that this kind of file has, beside the common ones; see `BYTES`.

    Raises:
      CheckpointError: an instruction or a name that is not allowed, or bytes that are no pickle.
    """
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    literals = _LITERALS | also

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
            if name in literals:
                stack.append(argument)
            elif name in ("BINPUT", "LONG_BINPUT"):
                memo[argument] = stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                stack.append(memo[argument])
            elif name == "MEMOIZE":
                memo[len(memo)] = stack[-1]
            elif name in _SHORT_TUPLES:
                size = _SHORT_TUPLES[name]
                stack[-size:] = [tuple(stack[-size:])]
            elif name == "MARK":
                stack.append(_MARK)
            elif name == "TUPLE":
                stack.append(tuple(since_mark()))
            elif name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            elif name in _NEW:
                stack.append(_NEW[name]())
            elif name == "APPEND":
                last = stack.pop()
                stack[-1].append(last)
            elif name == "APPENDS":
                last = since_mark()
                stack[-1].extend(last)
            elif name == "SETITEM":
                key, last = stack[-2:]
                del stack[-2:]
                stack[-1].update(named([(key, last)]))
            elif name == "SETITEMS":
                last = since_mark()
                stack[-1].update(named(zip(last[::2], last[1::2], strict=True)))
            elif name == "GLOBAL":
                stack.append(Name(*str(argument).split(" ", 1)))
            elif name == "STACK_GLOBAL":
                module, last = stack[-2:]
                stack[-2:] = [Name(str(module), str(last))]
            elif name == "REDUCE":
                function, arguments = stack[-2:]
                stack[-2:] = [call(function, arguments)]
            elif name == "BUILD":
                state = stack.pop()
                build(stack[-1], state)
            elif name == "BINPERSID":
                stack.append(refer(stack.pop()))
            elif name == "STOP":
                return stack.pop()
            elif name not in _IGNORED:
                raise CheckpointError(f"its pickle holds the instruction {name}, which its kind of file does not")
    except CheckpointError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"its pickle is damaged ({type(error).__name__}: {error})") from None
    raise CheckpointError("its pickle has no end")
