"""HOST. What a compiled program costs on a chip: `price(compiled.as_text(), CHIPS["v5e"])`.

An estimate made without the chip, for ratios and regressions: instructions are taken one after the other, without
overlap, each for the greatest of three times (its bytes over the memory's bandwidth, its matrix products at peak, the
compiler's own estimate of fusions with a product); collectives are listed with their bytes and have no time. XLA's own
cost analysis counts the body of a loop once; here it counts as often as it runs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict

from rag_jax.tpu.chips import Chip
from rag_jax.tpu.flops import flops_of
from rag_jax.tpu.hlo import HOST_MEMORY, Computation, Instruction, Program, read_program
from rag_jax.tpu.loops import Loop, loop_of
from rag_jax.tpu.traffic import bytes_of

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")


@dataclasses.dataclass(frozen=True)
class Line:
    """One instruction's share.

    Attributes:
      name, operation: as in the text.
      source: the jax operation that it came from.
      times: how often it runs.
      hbm_bytes: bytes to and from HBM of one run, whole tiles counted.
      flops: of one run's matrix products.
      cycles: the compiler's estimate for one run, if it has a matrix product and the compiler gave one; else 0.
      seconds: one run's estimated time.
    """

    name: str
    operation: str
    source: str
    times: int
    hbm_bytes: float
    flops: float
    cycles: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Collective:
    """An exchange between chips: `bytes` of one run, on one chip, the larger of what goes in and what comes out."""

    name: str
    operation: str
    times: int
    bytes: float


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a program costs one chip.

    Attributes:
      lines: every instruction that costs something, in the order of the text.
      collectives: exchanges between chips; their time is not in `seconds`.
      host_transfers: names of instructions that move data between chip and host while the program runs.
      uncounted: loops whose number of passes the text does not tell: their bodies are counted once.
    """

    lines: tuple[Line, ...]
    collectives: tuple[Collective, ...]
    host_transfers: tuple[str, ...]
    uncounted: tuple[Loop, ...]

    @property
    def hbm_bytes(self) -> float:
        """Bytes to and from HBM."""
        return sum((line.times * line.hbm_bytes for line in self.lines), 0.0)

    @property
    def flops(self) -> float:
        """Floating-point operations of all matrix products."""
        return sum((line.times * line.flops for line in self.lines), 0.0)

    @property
    def seconds(self) -> float:
        """Estimated time, one instruction after the other."""
        return sum((line.times * line.seconds for line in self.lines), 0.0)

    @property
    def product_seconds(self) -> float:
        """The part of `seconds` in instructions with matrix products."""
        return sum((line.times * line.seconds for line in self.lines if line.flops), 0.0)

    @property
    def collective_bytes(self) -> dict[str, float]:
        """Bytes of all runs by kind of exchange."""
        total: defaultdict[str, float] = defaultdict(float)
        for collective in self.collectives:
            total[collective.operation] += collective.times * collective.bytes
        return dict(total)


def price(program: str | Program, chip: Chip, computation: str | None = None) -> Cost:
    """The cost of a program, or of one run of one of its computations, such as a loop's body.

    Args:
      program: `compiled.as_text()`, or what `read_program` made of it.
      chip: its peak numbers.
      computation: the name of the one to price; the whole program by default.

    Raises:
      ValueError: the text is not that of a compiled program.
      KeyError: no such computation.
    """
    program = read_program(program) if isinstance(program, str) else program
    walk = _Walk(program, chip)
    walk.add(program.computations[computation or program.entry], 1)
    return Cost(tuple(walk.lines), tuple(walk.collectives), tuple(dict.fromkeys(walk.transfers)), tuple(walk.uncounted))


class _Walk:
    """Collects the parts of a `Cost`."""

    def __init__(self, program: Program, chip: Chip):
        self.program, self.chip = program, chip
        self.lines: list[Line] = []
        self.collectives: list[Collective] = []
        self.continued: set[tuple[str, str | None]] = set()
        self.transfers: list[str] = []
        self.uncounted: list[Loop] = []

    def add(self, computation: Computation, times: int) -> None:
        for instruction in computation.instructions.values():
            if instruction.operation == "while":
                loop = loop_of(self.program, computation, instruction)
                if loop.trips is None:
                    self.uncounted.append(loop)
                trips = 1 if loop.trips is None else loop.trips
                self.add(self.program.computations[loop.condition], times * (trips + 1))
                self.add(self.program.computations[loop.body], times * trips)
            elif instruction.operation == "call":
                self.add(self.program.computations[instruction.called("to_apply")[0]], times)
            elif instruction.operation == "conditional":
                self.add(self.program.computations[self.dearest_branch(instruction)], times)
            else:
                self.add_instruction(computation, instruction, times)

    def dearest_branch(self, instruction: Instruction) -> str:
        """Which branch runs is not known: the one that takes longest."""
        return max(instruction.called(), key=lambda name: price(self.program, self.chip, name).seconds)

    def is_new(self, exchange: Instruction) -> bool:
        """An exchange that runs beside other work goes on through several fusions, under the number of one channel.

        One that stands by itself is always new: those of a `shard_map` may share a channel.
        """
        key = exchange.operation.removesuffix("-start"), exchange.attribute(r"channel_id=(\d+)")
        known = key in self.continued
        self.continued.add(key)
        return not known

    def add_instruction(self, computation: Computation, instruction: Instruction, times: int) -> None:
        for part in (instruction, *(p for name in instruction.called() for p in self.program.within(name))):
            if _exchanges(part) and (part is instruction or self.is_new(part)):
                where = computation if part is instruction else None
                self.collectives.append(_collective(where, part, times))
            if _leaves_the_chip(part):
                self.transfers.append(part.name)
        moved = bytes_of(self.program, computation, instruction)
        flops = flops_of(self.program, computation, instruction)
        if not moved and not flops:
            return
        cycles = float(instruction.attribute(r'"estimated_cycles":"(\d+)"') or 0) if flops else 0.0
        chip = self.chip
        seconds = max(moved / chip.hbm_bandwidth, flops / chip.flops, cycles / chip.clock)
        name, operation, source = instruction.name, instruction.operation, instruction.source
        self.lines.append(Line(name, operation, source, times, moved, flops, cycles, seconds))


def _exchanges(instruction: Instruction) -> bool:
    return instruction.operation.removesuffix("-start") in COLLECTIVES


def _collective(computation: Computation | None, instruction: Instruction, times: int) -> Collective:
    given = sum(
        shape.bytes
        for name in instruction.operands
        for shape in (computation.instructions[name].shapes if computation else ())
    )
    shown = sum(shape.bytes for shape in instruction.shapes)
    operation = instruction.operation
    if operation.endswith("-start") and operation != "all-reduce-start":
        shown -= given  # the start of an asynchronous exchange shows its operands before its results
    return Collective(instruction.name, operation.removesuffix("-start"), times, max(given, shown))


@functools.lru_cache(maxsize=256)
def _is_host_call(target: str) -> bool:
    return any(
        word in target.lower() for word in ("callback", "movetohost", "movetodevice", "annotate_device_placement")
    )


def _leaves_the_chip(instruction: Instruction) -> bool:
    """Feeds, sends to the host, callbacks, and copies to or from the host's memory."""
    if instruction.operation in ("infeed", "outfeed"):
        return True
    if instruction.operation in ("send", "recv"):
        return "is_host_transfer=true" in instruction.attributes
    if instruction.operation == "custom-call":
        return _is_host_call(instruction.attribute(r'custom_call_target="([^"]*)"') or "")
    if instruction.operation in ("copy", "copy-start"):
        return any(shape.space == HOST_MEMORY for shape in instruction.shapes)
    return False
