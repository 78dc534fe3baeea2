"""HOST. What a configuration needs of a chip and how long its step takes there, from its compiled programs.

Times are AOT estimates (`rag_jax.tpu.price`), never compared with a chip: instructions one after the other. Exchanges
between chips are priced by hand: bytes over the links' bandwidth, a sum twice, as it travels to be made and to be
spread. Whether they run beside other work is not known, so both ends are given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from rag_jax.fit import programs
from rag_jax.fit.activations import estimated, layer_inputs
from rag_jax.fit.advice import Advice, Memory, advise, advise_decoding
from rag_jax.fit.batches import source_width
from rag_jax.fit.model_flops import model_flops
from rag_jax.fit.plan import Plan, bytes_on_a_chip, index_shapes, resident_shapes, state_shapes
from rag_jax.fit.programs import Program
from rag_jax.tpu.chips import Chip
from rag_jax.tpu.price import Cost

SENT_TWICE = ("all-reduce",)


@dataclasses.dataclass(frozen=True)
class Exchange:
    """All exchanges of one kind: how many run, their bytes on one chip, and the links' time for these."""

    operation: str
    count: int
    bytes: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Times:
    """One run of a program on one chip.

    Attributes:
      products: seconds of what holds matrix products.
      other: seconds of all other work, bound by memory.
      exchanges: between chips, by kind.
      flops: of the matrix products, recomputed ones included.
      hbm_bytes: to and from memory.
      host_transfers: instructions that move data between chip and host.
      loops_counted_once: loops that end on their data, so that nobody knows how often they run.
    """

    products: float
    other: float
    exchanges: tuple[Exchange, ...]
    flops: float
    hbm_bytes: float
    host_transfers: int
    loops_counted_once: int

    @property
    def on_chip(self) -> float:
        """Seconds without exchanges: as long as it takes if all of them run beside other work."""
        return self.products + self.other

    @property
    def exchanging(self) -> float:
        """Seconds of exchanges."""
        return sum(exchange.seconds for exchange in self.exchanges)

    @property
    def total(self) -> float:
        """Seconds if nothing runs beside anything."""
        return self.on_chip + self.exchanging


@dataclasses.dataclass(frozen=True)
class Part:
    """A compiled program of a run: `peak` bytes of HBM, its times (None: the compiler refused it), the reason."""

    peak: float
    capacity: float
    times: Times | None
    refusal: str
    compile_seconds: float

    @property
    def over(self) -> float:
        """Bytes that it needs beyond the chip's."""
        return max(self.peak - self.capacity, 0.0)


@dataclasses.dataclass(frozen=True)
class Report:
    """Everything that `rag-jax fit` says.

    Attributes:
      plan: what was compiled.
      width: tokens of a source.
      memory: of the train step, by what takes it.
      step: the train step.
      model_flops: of one step on one chip, without recomputation.
      whole: whether retrieval and decoding were compiled too, where there are any.
      retrieval: alone; None where the host searches without the chips, or nobody does.
      decode: a batch of questions, loops over tokens as if every answer were as long as may be; None: not compiled, or
        no whole RAG is trained.
      token: one token of it.
      decoded: questions of that batch.
      bound: what takes most of the step.
      advice: what would make the step fit; empty where it does.
      decode_advice: the same for decoding.
    """

    plan: Plan
    width: int
    memory: Memory
    step: Part
    model_flops: float
    whole: bool
    retrieval: Part | None
    decode: Part | None
    token: Times | None
    decoded: int
    bound: str
    advice: tuple[Advice, ...]
    decode_advice: tuple[Advice, ...]

    @property
    def fits(self) -> bool:
        """Whether all programs that were compiled do."""
        return not any(part.over or part.refusal for part in (self.step, self.retrieval, self.decode) if part)

    def utilisation(self, seconds: float) -> float:
        """Share of the chip's peak that the model's operations are, if a step takes so long."""
        return self.model_flops / self.plan.chip.flops / seconds

    @property
    def retrieval_share(self) -> float | None:
        """Retrieval's time over the step's, both without overlap; beside a step that does not hold it, added to it."""
        if self.retrieval is None or self.retrieval.times is None or self.step.times is None:
            return None
        inside = self.plan.searches_in_step
        whole = self.step.times.total + (0 if inside else self.retrieval.times.total)
        return self.retrieval.times.total / whole


def make_report(plan: Plan, whole: bool = True, progress: Callable[[str], None] = lambda name: None) -> Report:
    """Compiles the programs and prices them.

    Args:
      plan: the configuration on a slice.
      whole: whether to compile retrieval and decoding beside the step.
      progress: is told what is compiled next.
    """
    memory = hopeless(plan)
    step = None
    if memory is None:
        progress("train step" if plan.trains == "rag" else f"train step of the {plan.trains}")
        step = programs.train_step(plan)
        memory = memory_of(plan, step)
    retrieval = decoding = None
    whole = whole and plan.trains == "rag"
    if whole:
        progress("retrieval")
        retrieval = programs.retrieval(plan)
        progress("decoding")
        decoding = programs.decoding(plan)
    reason = "not compiled: what the layers keep for the backward pass is more than a chip holds"
    part = Part(memory.peak, memory.capacity, None, reason, 0.0)
    if step is not None:
        part = dataclasses.replace(_part(plan, step), peak=memory.peak)
    return Report(
        plan,
        source_width(plan),
        memory,
        part,
        model_flops(plan) / plan.chips,
        whole,
        _part(plan, retrieval) if retrieval else None,
        _part(plan, decoding) if decoding else None,
        times_of(decoding.loop, plan.chip) if decoding and decoding.loop else None,
        programs.decoded_questions(plan) if whole else 0,
        bound_of(part.times, plan.chip),
        advise(plan, memory),
        advise_decoding(plan, decoding.peak) if decoding else (),
    )


def memory_of(plan: Plan, step: Program) -> Memory:
    """What takes a chip's memory in the train step. The parts add up to the peak."""
    parts = _lying_there(plan)
    # Searched from the host, the index is no argument of the step, but lies beside it.
    beside = parts["index"] if plan.searches_from_host else 0
    given = sum(parts.values()) - beside
    rest = max(step.arguments - given, 0)
    return Memory(**parts, batch=rest, activations=max(step.peak - rest - given, 0.0), capacity=plan.chip.usable_bytes)


def hopeless(plan: Plan) -> Memory | None:
    """The memory of a step that cannot fit whatever the compiler does, which would take it long to find out; else None.

    That is one whose layers' inputs do not.
    """
    parts, capacity = _lying_there(plan), plan.chip.usable_bytes
    if sum(parts.values()) + layer_inputs(plan) <= capacity:
        return None
    activations = estimated(plan, plan.config.model.remat)
    return Memory(**parts, batch=0, activations=activations, capacity=capacity, compiled=False)


def _lying_there(plan: Plan) -> dict[str, Any]:
    """Bytes of one chip that lie there all the time, without what tiles pad them with."""
    state, frozen = state_shapes(plan)
    resident = resident_shapes(plan, plan.layout, plan.config.k, training=True)
    return {
        "parameters": bytes_on_a_chip((state.trainable, state.index_encoder, frozen)),
        "optimizer": bytes_on_a_chip(state.optimizer),
        "index": bytes_on_a_chip(index_shapes(plan, plan.layout)),
        "tokens": bytes_on_a_chip((resident.tokens, resident.encoder_tokens)) if resident else 0,
    }


def times_of(cost: Cost, chip: Chip) -> Times:
    """A price as the report has it."""
    kinds: dict[str, Exchange] = {}
    for one in cost.collectives:
        before = kinds.get(one.operation, Exchange(one.operation, 0, 0.0, 0.0))
        moved = one.times * one.bytes
        seconds = moved * (2 if one.operation in SENT_TWICE else 1) / chip.ici_bandwidth
        kinds[one.operation] = Exchange(
            one.operation, before.count + one.times, before.bytes + moved, before.seconds + seconds
        )
    return Times(
        cost.product_seconds,
        cost.seconds - cost.product_seconds,
        tuple(sorted(kinds.values(), key=lambda exchange: -exchange.seconds)),
        cost.flops,
        cost.hbm_bytes,
        len(cost.host_transfers),
        len(cost.uncounted),
    )


def bound_of(times: Times | None, chip: Chip) -> str:
    """What takes most of a step, in words with its share."""
    if times is None or not times.total:
        return ""
    shares = {
        "matrix products": times.products,
        "memory traffic beside the matrix products": times.other,
        "exchanges between chips": times.exchanging,
    }
    name = max(shares, key=lambda kind: shares[kind])
    said = f"{name}, {shares[name] / times.total:.0%} of the step without overlap"
    if name == "matrix products":
        said += f"; at the chip's peak they would take {times.flops / chip.flops / times.products:.0%} of their time"
    return said


def _part(plan: Plan, program: Program) -> Part:
    times = None if program.cost is None else times_of(program.cost, plan.chip)
    return Part(program.peak, plan.chip.usable_bytes, times, program.refusal, program.compile_seconds)
