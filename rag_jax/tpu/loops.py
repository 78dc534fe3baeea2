"""HOST. How often a compiled loop runs: read from the compiler's note, or from the condition's comparison."""

from __future__ import annotations

import dataclasses
import re
from typing import NamedTuple

from rag_jax.tpu.hlo import Computation, Instruction, Program

_SAME_VALUE = ("bitcast", "copy", "convert", "reshape", "broadcast")


@dataclasses.dataclass(frozen=True)
class Loop:
    """A `while` of the program.

    Attributes:
      name: of the instruction.
      body, condition: names of its computations.
      trips: how often the body runs; None where the text does not say. The counter is taken to go up by one.
      at_most: the condition says more than the counter, so that the loop may end before.
    """

    name: str
    body: str
    condition: str
    trips: int | None
    at_most: bool


def loop_of(program: Program, caller: Computation, instruction: Instruction) -> Loop:
    """The loop that a `while` instruction of the computation `caller` stands for."""
    (body,), (condition,) = instruction.called("body"), instruction.called("condition")
    known = instruction.attribute(r'"known_trip_count":\{"n":"(\d+)"')
    if known:
        return Loop(instruction.name, body, condition, int(known), False)
    test = _comparison(program, condition)
    if test is None:
        return Loop(instruction.name, body, condition, None, False)
    trips = _trips(test, _start_values(caller, instruction))
    return Loop(instruction.name, body, condition, trips, trips is not None and not test.whole)


def loops(program: Program) -> list[Loop]:
    """All loops of the program, in the order of the text."""
    return [
        loop_of(program, computation, instruction)
        for computation in program.computations.values()
        for instruction in computation.instructions.values()
        if instruction.operation == "while"
    ]


Value = tuple[str, int]
"""('constant', its value) or ('state', which element of the loop's tuple)."""


class _Test(NamedTuple):
    """A comparison of whole numbers in a condition; `whole` when it is all that the condition says."""

    direction: str
    left: Value
    right: Value
    whole: bool


def _comparison(program: Program, condition: str) -> _Test | None:
    """The first one whose sides are known; it may be inside a fusion."""
    computation = program.computations[condition]
    for instruction in computation.instructions.values():
        compare, where, outside = instruction, computation, None
        if instruction.operation == "fusion":
            where = program.computations[instruction.called("calls")[0]]
            compare = next((i for i in where.instructions.values() if i.operation == "compare"), instruction)
            outside = [_value(computation, name) for name in instruction.operands]
        if compare.operation == "compare":
            left, right = (_value(where, name, outside) for name in compare.operands)
            if left and right:
                whole = instruction.root and compare.root
                return _Test(compare.attribute(r"direction=(\w+)") or "", left, right, whole)
    return None


def _value(computation: Computation, name: str, outside: list[Value | None] | None = None) -> Value | None:
    """What a value of a condition is; `outside` gives those of a fusion's operands."""
    instruction = computation.instructions[name]
    if instruction.operation in _SAME_VALUE:
        return _value(computation, instruction.operands[0], outside)
    if instruction.operation == "constant" and re.fullmatch(r"-?\d+", instruction.inside):
        return "constant", int(instruction.inside)
    if instruction.operation == "parameter" and outside is not None:
        return outside[int(instruction.inside)]
    if instruction.operation == "get-tuple-element":
        return "state", int(instruction.needed(r"index=(\d+)"))
    return None


def _start_values(caller: Computation, instruction: Instruction) -> dict[int, int]:
    """The elements of the loop's tuple that are constants before the first pass."""
    start = caller.instructions[instruction.operands[0]]
    if start.operation != "tuple":
        return {}
    values = {place: _value(caller, name) for place, name in enumerate(start.operands)}
    return {place: value[1] for place, value in values.items() if value and value[0] == "constant"}


def _trips(test: _Test, start: dict[int, int]) -> int | None:
    """Passes of `counter < limit`, either side first; a counter of unknown start begins at 0."""
    direction, left, right, _ = test
    if left[0] == "constant":
        direction = {"GT": "LT", "GE": "LE"}.get(direction, "")
        left, right = right, left
    limit = right[1] if right[0] == "constant" else start.get(right[1])
    if left[0] == "constant" or limit is None or direction not in ("LT", "LE"):
        return None
    return max(limit - start.get(left[1], 0) + (direction == "LE"), 0)
