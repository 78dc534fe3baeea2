"""HOST. What to change when a train step or decoding does not fit, each with what it would need then.

The new peaks are estimates from the compiled one: what is cut over chips is counted anew, activations are taken to grow
with the (question, passage) pairs that a chip has at a time, and those of full rematerialisation are arithmetic.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from rag_jax.config import k_at_test
from rag_jax.fit.activations import estimated
from rag_jax.fit.batches import passages_of_a_question
from rag_jax.fit.plan import Plan, bytes_on_a_chip, params_shapes, resident_shapes, state_shapes
from rag_jax.index.footprint import BYTES
from rag_jax.sharding import state_rules

MOST_CHIPS = 64  # times as many
WORTH_TELLING = 0.02  # of the bytes beyond the capacity


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of one chip in the train step, by what they are for.

    Attributes:
      parameters, optimizer, index, tokens: lie there all the time.
      batch: the batch, and what tiles pad the others with.
      activations: all that the step makes, at its peak.
      capacity: what a program may use.
      compiled: whether the peak is the compiler's. Else the step was far too large, and activations are arithmetic.
    """

    parameters: float
    optimizer: float
    index: float
    tokens: float
    batch: float
    activations: float
    capacity: float
    compiled: bool = True

    @property
    def peak(self) -> float:
        """All together."""
        return self.fixed + self.activations

    @property
    def fixed(self) -> float:
        """Without activations."""
        return self.parameters + self.optimizer + self.index + self.tokens + self.batch

    @property
    def over(self) -> float:
        """Bytes beyond the capacity."""
        return max(self.peak - self.capacity, 0.0)


@dataclasses.dataclass(frozen=True)
class Advice:
    """A change, the peak that is expected after it, and whether that is enough."""

    change: str
    peak: float
    enough: bool


def advise(plan: Plan, memory: Memory) -> tuple[Advice, ...]:
    """Changes that lower the peak of a step that does not fit; none for one that fits.

    Those that suffice come first, and of these the ones that need no further chips.
    """
    if not memory.over:
        return ()
    if plan.pretraining:  # of a tiny model, on one host: nothing but its batches can be set
        return tuple(_told(memory, _fewer(plan, memory)))
    here = [
        *_state_cut(plan, memory), *_index_smaller(plan, memory), *_recomputed(plan, memory), *_fewer(plan, memory)
    ]  # fmt: skip
    found = _told(memory, here)
    if not any(one.enough for one in found):
        found += _together(plan, memory)
    more = _told(memory, _more_chips(plan, memory, plan.accumulate))
    return tuple(sorted(found + more, key=lambda one: (not one.enough, one in more, one.peak)))


def _told(memory: Memory, changes: list[Change]) -> list[Advice]:
    """Those that save a part of what is too much that is worth a line."""
    least = memory.peak - WORTH_TELLING * memory.over
    return [Advice(change, after.peak, not after.over) for change, after in changes if after.peak <= least]


Change = tuple[str, Memory]
"""A setting, and the memory with it."""


def _state_cut(plan: Plan, memory: Memory) -> list[Change]:
    if plan.config.sharding.params == "fsdp" or plan.layout.parts == 1:
        return []
    layout = dataclasses.replace(plan.layout, rules=state_rules("fsdp", "sharded"))
    state, frozen = state_shapes(plan, layout)
    after = dataclasses.replace(
        memory,
        parameters=bytes_on_a_chip((state.trainable, state.index_encoder, frozen)),
        optimizer=bytes_on_a_chip(state.optimizer),
    )
    return [("sharding.params=fsdp", after)]


def _index_smaller(plan: Plan, memory: Memory) -> list[Change]:
    i, found = plan.config.index, []
    if not memory.index:
        return []
    if i.remainders:
        found.append(("index.remainders=false", dataclasses.replace(memory, index=memory.index / 2)))
    dtype = i.dtype or "float32"
    if dtype != "int8":
        after = dataclasses.replace(memory, index=memory.index * BYTES["int8"] / BYTES[dtype])
        found.append(("index.dtype=int8", after))
    if plan.searches_from_host and plan.chips > 1:
        after = dataclasses.replace(memory, index=memory.index / plan.layout.parts)
        found.append(("index.in_step=true, which cuts the index over the chips", after))
    after = dataclasses.replace(memory, index=0.0, tokens=0.0)
    return [*found, ("index.backend=scann, index.in_step=false: the index in the hosts' memory", after)]


def _recomputed(plan: Plan, memory: Memory) -> list[Change]:
    if plan.config.model.remat == "full":
        return []
    less = min(estimated(plan, "full"), memory.activations)
    in_a_loop = " with model.unroll=1" if plan.config.model.unroll > 1 else ""
    return [(f"model.remat=full{in_a_loop}", dataclasses.replace(memory, activations=less))]


def _fewer(plan: Plan, memory: Memory) -> list[Change]:
    """Less at a time: more parts of a batch, fewer questions, fewer passages."""
    room, found = memory.capacity - memory.fixed, []
    if room <= 0:
        return []
    share = room / memory.activations  # < 1: of the pairs that it has at a time now
    parts = accumulations(plan, memory)
    if parts:
        found.append(_accumulated(plan, memory, parts))
    field, unit = plan.batch_field
    least = math.lcm(unit, plan.layout.parts * plan.accumulate)
    fewer = math.floor(plan.questions * share) // least * least
    if fewer:
        after = dataclasses.replace(memory, activations=memory.activations * fewer / plan.questions)
        found.append((f"{field}={fewer // unit}", after))
    if plan.trains == "towers":
        d, each = plan.config.data, passages_of_a_question(plan)
        tokens = d.max_question_tokens + each * d.max_passage_tokens
        passages = math.floor((tokens * share - d.max_question_tokens) / d.max_passage_tokens)
        if passages > 0:
            left = (d.max_question_tokens + passages * d.max_passage_tokens) / tokens
            after = dataclasses.replace(memory, activations=memory.activations * left)
            found.append((f"dpr.hard_negatives={passages - 1}", after))
    passages = math.floor(plan.config.k * share)
    if passages and plan.trains == "rag":
        after = dataclasses.replace(memory, activations=memory.activations * passages / plan.config.k)
        found.append((f"k={passages}", after))
    return found


def accumulations(plan: Plan, memory: Memory) -> int:
    """The fewest parts of a batch with which it fits, else the most that there may be; 0: there can be no more."""
    if plan.trains != "rag":  # in parts the towers' batch would have fewer negatives
        return 0
    each = plan.questions // plan.layout.parts
    possible = [n for n in range(plan.accumulate + 1, each + 1) if each % n == 0]
    return next((n for n in possible if not _accumulated(plan, memory, n)[1].over), possible[-1] if possible else 0)


def _accumulated(plan: Plan, memory: Memory, parts: int) -> Change:
    now = plan.accumulate
    gradient = memory.optimizer / 2 if now == 1 else 0.0  # the sum of the parts' gradients lies as Adam's moments do
    after = dataclasses.replace(memory, activations=memory.activations * now / parts + gradient)
    return f"train.accumulate={parts}", after


def _more_chips(plan: Plan, memory: Memory, accumulate: int) -> list[Change]:
    """As many more chips for the same batch in so many parts as it needs, or as there can be."""
    each = plan.questions // plan.layout.parts // accumulate
    found: list[Change] = []
    for times in chip_multiples(each):
        found = [(f"{plan.chips * times} chips", on_more_chips(plan, memory, times))]
        if not found[0][1].over:
            break
    return found


def chip_multiples(each: int) -> list[int]:
    """Twice, four times, ... as many chips, as far as the questions of a part on a chip divide evenly."""
    return [times for times in (2**n for n in range(1, MOST_CHIPS.bit_length())) if each % times == 0]


def on_more_chips(plan: Plan, memory: Memory, times: int) -> Memory:
    """The same batch over `times` as many chips: what is cut shrinks, what is whole stays."""
    s = plan.config.sharding
    cut = {"index": memory.index, "tokens": memory.tokens, "batch": memory.batch, "activations": memory.activations}
    if plan.searches_from_host:
        del cut["index"]
    if s.params == "fsdp":
        cut["parameters"] = memory.parameters
    if s.params == "fsdp" or s.optimizer == "sharded":
        cut["optimizer"] = memory.optimizer
    smaller: dict[str, Any] = {name: size / times for name, size in cut.items()}
    return dataclasses.replace(memory, **smaller)


def _together(plan: Plan, memory: Memory) -> list[Advice]:
    """All that saves memory without changing the batch, where no single change is enough."""
    changes, after = [], memory
    for find in (_state_cut, _index_smaller, _recomputed):
        for change, one in find(plan, after)[:1]:
            if one.peak < after.peak and "scann" not in change:
                changes.append(change)
                after = one
    parts = accumulations(plan, after) if after.over else 0
    if parts:
        change, after = _accumulated(plan, after, parts)
        changes.append(change)
    for change, one in _more_chips(plan, after, parts or plan.accumulate) if after.over else ():
        if not one.over:
            changes.append(change)
            after = one
    return [Advice(" with ".join(changes), after.peak, not after.over)] if len(changes) > 1 else []


def advise_decoding(plan: Plan, peak: float) -> tuple[Advice, ...]:
    """Smaller batches of questions, or fewer passages, for a decoding that needs `peak` bytes, if that is too much."""
    layout, k, capacity = plan.evaluation, k_at_test(plan.config), plan.chip.usable_bytes
    lying = (layout.abstract(params_shapes(plan, training=False)), resident_shapes(plan, layout, k))
    fixed = bytes_on_a_chip(lying)
    made, room = peak - fixed, capacity - fixed
    if peak <= capacity or room <= 0:
        return ()
    each = -(-plan.config.eval.batch_size // layout.parts)
    found = []
    if fewer := math.floor(each * room / made):
        found.append((f"eval.batch_size={fewer * layout.parts}", fixed + made * fewer / each))
    if passages := math.floor(k * room / made):
        found.append((f"eval.k={passages}", fixed + made * passages / k))
    if not found and (passages := math.floor(k * each * room / made)):
        both = f"eval.batch_size={layout.parts} with eval.k={passages}"
        found.append((both, fixed + made * passages / k / each))
    return tuple(Advice(change, after, True) for change, after in found)
