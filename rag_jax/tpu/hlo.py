"""HOST. The text of a compiled program (`compiled.as_text()`) as records: shapes as laid out, instructions, functions.

Only what pricing needs is read. Programs compiled for TPUs say in every shape how it lies in memory: which dimension
runs fastest, the tiles that it is padded to, and the memory space (none is HBM).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator

BITS = {"pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "c64": 64, "c128": 128, "token": 0, "opaque": 0}
HBM, HOST_MEMORY = 0, 5

_ARRAY = re.compile(r"(\w+)\[([^\]]*)\](?:\{([^{}]*)\})?")
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_NAME = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_OPERATION = re.compile(r"\s*([a-z][a-z0-9\-]*)\(")
_NAMES = re.compile(r"[%\w.\-]+")
_CALLED = re.compile(r"(calls|to_apply|body|condition|branch_computations|true_computation|false_computation)=")


@dataclasses.dataclass(frozen=True)
class Shape:
    """An array as it lies in memory.

    Attributes:
      dtype: XLA's name, such as bf16.
      dims: sizes.
      order: dimensions, the fastest first; row-major where the text says nothing.
      tile: sizes of the first tile, which covers the fastest dimensions; () is none.
      space: memory space: 0 is HBM, 1 a TPU's vector memory, 5 the host's.
    """

    dtype: str
    dims: tuple[int, ...]
    order: tuple[int, ...]
    tile: tuple[int, ...] = ()
    space: int = HBM

    @property
    def elements(self) -> int:
        """Number of elements, without padding."""
        return math.prod(self.dims)

    @property
    def bits(self) -> int:
        """Bits of an element."""
        digits = re.search(r"\d+", self.dtype)
        return BITS[self.dtype] if self.dtype in BITS else int(digits[0]) if digits else 0

    @property
    def bytes(self) -> float:
        """Bytes of the elements, without padding."""
        return self.elements * self.bits / 8

    def laid_out(self, dims: tuple[int, ...] | None = None) -> float:
        """Bytes of all tiles that the array fills, or that a part of it does (`dims`, taken to begin at a tile)."""
        sizes = [(self.dims if dims is None else dims)[axis] for axis in self.order]
        sizes += [1] * (len(self.tile) - len(sizes))
        for place, tile in enumerate(reversed(self.tile)):
            sizes[place] = -(-sizes[place] // tile) * tile
        return math.prod(sizes) * self.bits / 8


def read_shapes(text: str) -> tuple[Shape, ...]:
    """The arrays of a type; a tuple's leaves in order."""
    return tuple(_read_shape(*match.groups()) for match in _ARRAY.finditer(text))


@functools.lru_cache(maxsize=4096)
def _read_shape(dtype: str, dims: str, layout: str | None) -> Shape:
    sizes = tuple(int(size.lstrip("<=")) for size in dims.split(",") if size)
    order, _, rest = (layout or "").partition(":")
    tile, space = re.search(r"T\(([\d,]+)\)", rest), re.search(r"S\((\d+)\)", rest)
    return Shape(
        dtype,
        sizes,
        tuple(map(int, order.split(","))) if order else tuple(reversed(range(len(sizes)))),
        tuple(map(int, tile[1].split(","))) if tile else (),
        int(space[1]) if space else HBM,
    )


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation.

    Attributes:
      name: unique in the program.
      operation: such as fusion, while, dot.
      shapes: of the result; of a tuple, its leaves.
      operands: names of instructions.
      inside: the text between the parentheses: a constant's value, a parameter's number.
      attributes: the text after them.
      root: whether it is the computation's result.
    """

    name: str
    operation: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    inside: str
    attributes: str
    root: bool

    def called(self, role: str = "") -> tuple[str, ...]:
        """Names of the computations that it calls, in any role or in one (calls, body, condition, ...)."""
        found = []
        for match in _CALLED.finditer(self.attributes):
            if match[1] == role or not role:
                rest = self.attributes[match.end() :]
                listed = rest[1 : rest.index("}")] if rest.startswith("{") else _match(_NAMES, rest)[0]
                found += [name.strip(" %") for name in listed.split(",")]
        return tuple(found)

    def attribute(self, pattern: str) -> str | None:
        """The first group of a pattern's first match in the attributes."""
        match = re.search(pattern, self.attributes)
        return match[1] if match else None

    def needed(self, pattern: str) -> str:
        """As `attribute`, of what such an instruction always has.

        Raises:
          ValueError: it has not.
        """
        found = self.attribute(pattern)
        if found is None:
            raise ValueError(f"{self.name}: no {pattern} in its attributes: {self.attributes[:80]}")
        return found

    @property
    def source(self) -> str:
        """The jax operation that it came from; of a fusion, that of its root."""
        return self.attribute(r'op_name="([^"]*)"') or ""


@dataclasses.dataclass(frozen=True)
class Computation:
    """A function of the program; `instructions` by name, operands before their users."""

    name: str
    instructions: dict[str, Instruction]

    @functools.cached_property
    def root(self) -> Instruction:
        """The result."""
        return next(i for i in self.instructions.values() if i.root)

    @functools.cached_property
    def parameters(self) -> dict[int, Instruction]:
        """Parameters by number."""
        return {int(i.inside): i for i in self.instructions.values() if i.operation == "parameter"}

    def users(self, name: str) -> list[Instruction]:
        """Instructions that have this one as an operand."""
        return self._users.get(name, [])

    @functools.cached_property
    def _users(self) -> dict[str, list[Instruction]]:
        users: dict[str, list[Instruction]] = {}
        for instruction in self.instructions.values():
            for operand in dict.fromkeys(instruction.operands):
                users.setdefault(operand, []).append(instruction)
        return users


@dataclasses.dataclass(frozen=True)
class Program:
    """All computations, and the name of the one that runs first."""

    computations: dict[str, Computation]
    entry: str

    def within(self, computation: str) -> Iterator[Instruction]:
        """The instructions of a computation and of all that it calls."""
        for instruction in self.computations[computation].instructions.values():
            yield instruction
            for name in instruction.called():
                yield from self.within(name)


def read_program(text: str) -> Program:
    """Reads `compiled.as_text()`.

    Raises:
      ValueError: there is no entry computation: this is not such a text.
    """
    computations: dict[str, Computation] = {}
    lines: dict[str, Instruction] = {}
    entry = name = ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            name, lines = header[2], {}
            entry = name if header[1] else entry
        elif name and line.startswith("}"):
            computations[name] = Computation(name, lines)
            name = ""
        elif name and (start := _NAME.match(line)):
            instruction = _read_instruction(start[2], line[start.end() :], bool(start[1]))
            lines[instruction.name] = instruction
    if entry not in computations:
        raise ValueError("no ENTRY computation: give the text of a compiled program, compiled.as_text()")
    return Program(computations, entry)


def _read_instruction(name: str, text: str, root: bool) -> Instruction:
    """`text` is what follows the equals sign: type operation(operands), attributes."""
    end = _closing(text, 0) if text.startswith("(") else text.index(" ")
    operation = _match(_OPERATION, text, end)
    close = _closing(text, operation.end() - 1)
    inside = text[operation.end() : close - 1]
    # An operand may be printed with its type before it; the name is the last word.
    operands = [part.split()[-1].lstrip("%") for part in _split(re.sub(r"/\*.*?\*/", "", inside)) if part.split()]
    literal = operation[1] in ("constant", "parameter")
    shapes = read_shapes(text[:end])
    return Instruction(name, operation[1], shapes, () if literal else tuple(operands), inside, text[close:], root)


def _match(pattern: re.Pattern[str], text: str, at: int = 0) -> re.Match[str]:
    """The match that begins there; a ValueError where there is none."""
    found = pattern.match(text, at)
    if found is None:
        raise ValueError(f"no instruction of a compiled program: {text[at : at + 80]}")
    return found


def _closing(text: str, start: int) -> int:
    """The index after the parenthesis that closes the one at `start`."""
    depth = 0
    for match in re.compile(r"[()]").finditer(text, start):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return match.end()
    raise ValueError(f"unbalanced parentheses: {text[:80]}")


def _split(text: str) -> list[str]:
    """Parts between commas that stand outside all brackets."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"[(){}\[\],]", text):
        if match[0] != ",":
            depth += 1 if match[0] in "({[" else -1
        elif not depth:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]
