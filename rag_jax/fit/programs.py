"""HOST. The programs of a run, compiled for chips that are not there: train step, retrieval, decoding.

They are the very functions that training and evaluation run, given shapes in the place of arrays.
"""

from __future__ import annotations

import dataclasses
import re
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from rag_jax.config import k_at_test
from rag_jax.fit.batches import batch_shapes, reader_batch, source_width, tower_batch
from rag_jax.fit.plan import Plan, index_shapes, optimizer_of, params_shapes, resident_shapes, state_shapes
from rag_jax.index import device
from rag_jax.index.exact import QUERY_BUCKETS
from rag_jax.rag.answer import decode_batch
from rag_jax.rag.device_retrieve import Resident, retrieve
from rag_jax.rag.rules import DecodeOptions
from rag_jax.tpu.hlo import read_program
from rag_jax.tpu.loops import loops
from rag_jax.tpu.price import Cost, price
from rag_jax.training.contrastive import make_tower_step
from rag_jax.training.pretrain import make_reader_step
from rag_jax.training.step import make_train_step
from rag_jax.types import Batch

_TOO_LARGE = re.compile(r"\(([\d.]+)([KMGT])\) exceeds available|Used ([\d.]+)([KMGT]) of")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Call(NamedTuple):
    """A jitted function with what it is called with: shapes in the place of arrays."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def lower(self, platform: str | None = None) -> Any:
        """Lowers it, without compiling: for the devices of its shapes, or for a platform if their mesh is abstract."""
        traced = self.function.trace(*self.args, **self.kwargs)
        return traced.lower(lowering_platforms=(platform,) if platform else None)


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled program on one chip, or one that the compiler refused.

    Attributes:
      peak: bytes of HBM that it needs; of a refused one what the compiler says, 0 where it says no number.
      arguments: bytes that lie there before it starts; 0 of a refused one.
      cost: its price; None of a refused one.
      loop: price of one pass of the loop that decoding makes for each token; None elsewhere.
      refusal: the compiler's reason; "" of a compiled one.
      compile_seconds: time that lowering and compiling took.
    """

    peak: float
    arguments: int
    cost: Cost | None
    loop: Cost | None
    refusal: str
    compile_seconds: float


def train_step(plan: Plan) -> Program:
    """The train step, compiled."""
    return _compiled(plan, train_call(plan))


def train_call(plan: Plan) -> Call:
    """The step of what the plan trains; a RAG's with retrieval where the configuration has it inside."""
    c = plan.config
    (state, frozen), optimizer = state_shapes(plan), optimizer_of(plan)
    if plan.trains == "reader":
        reader = make_reader_step(plan.arch.generator, optimizer)
        return Call(reader, (state.trainable, state.optimizer), reader_batch(plan) | {"width": source_width(plan)})
    how: dict[str, Any] = {"dropout": c.model.dropout > 0, "seed": c.seed, "layout": plan.layout}
    if plan.trains == "towers":
        return Call(make_tower_step(plan.arch, optimizer, **how), (state, frozen, tower_batch(plan)), {})
    how |= {"label_smoothing": c.optimizer.label_smoothing, "accumulate": c.train.accumulate}
    step = make_train_step(plan.arch, optimizer, variant=c.variant, **how)
    batch = batch_shapes(plan, plan.layout, c.train.batch_size, c.k, training=True)
    resident = resident_shapes(plan, plan.layout, c.k, training=True)
    return Call(step, (state, frozen, batch, source_width(plan), resident), {})


def retrieval(plan: Plan) -> Program | None:
    """Retrieval for a train step's questions, alone; None where the host does it without the chips, or nobody."""
    c = plan.config
    if plan.searches_from_host and not isinstance(plan.devices, int):
        size = -(-c.train.batch_size // plan.hosts)  # each host searches for its own questions, on one of its chips
        size = next((bucket for bucket in QUERY_BUCKETS if size <= bucket), QUERY_BUCKETS[-1])
        place = SingleDeviceSharding(plan.devices[0])
        query = jax.ShapeDtypeStruct((size, plan.arch.question_encoder.width), jnp.float32, sharding=place)
        index = index_shapes(plan, plan.layout)
        return _compiled(plan, Call(jax.jit(device.search, static_argnames="k"), (index, query), {"k": c.k}))
    resident = resident_shapes(plan, plan.layout, c.k)
    if resident is None:
        return None
    layout = plan.layout

    def run(resident: Resident, encoder: Any, batch: Batch) -> Any:
        with layout.rows_stay():
            return retrieve(resident, plan.arch, layout.ready(encoder), batch)

    state, frozen = state_shapes(plan)
    encoder = (state.trainable | frozen)["question_encoder"]
    batch = batch_shapes(plan, layout, c.train.batch_size, c.k, training=False)
    run_jitted = jax.jit(run, compiler_options=layout.compiler_options)
    return _compiled(plan, Call(run_jitted, (resident, encoder, batch), {}))


def decoding(plan: Plan) -> Program | None:
    """The decoding of a batch of questions, compiled; None where no whole RAG is trained, which alone can answer."""
    if plan.trains != "rag":
        return None
    return _compiled(plan, decoding_call(plan), tokens=plan.config.data.max_target_tokens)


def decoding_call(plan: Plan) -> Call:
    """The decoding of a batch of questions as evaluation does it, with parameters whole on every chip."""
    c, layout = plan.config, plan.evaluation
    options = DecodeOptions(max_new_tokens=c.data.max_target_tokens, num_beams=c.eval.beams)
    inputs = (
        layout.abstract(params_shapes(plan, training=False)),
        plan.arch,
        batch_shapes(plan, layout, decoded_questions(plan), k_at_test(c), training=False),
        None,
        resident_shapes(plan, layout, k_at_test(c)),
    )
    how = {
        "variant": c.variant,
        "width": source_width(plan),
        "options": options,
        "fast": c.eval.decoding == "fast",
        "labels": tuple(range(len(c.data.labels))),  # any ids: they cost the same
        "layout": layout,
    }
    return Call(decode_batch, inputs, how)


def decoded_questions(plan: Plan) -> int:
    """Questions that are decoded at a time: the chips' next multiple."""
    parts = plan.evaluation.parts
    return -(-plan.config.eval.batch_size // parts) * parts


def _compiled(plan: Plan, call: Call, tokens: int = 0) -> Program:
    """`tokens`: how often the loop runs that is to be priced apart; 0 = there is none."""
    start = time.monotonic()
    lowered = call.lower()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        return Program(needed(reason), 0, None, None, reason, time.monotonic() - start)
    memory, program = compiled.memory_analysis(), read_program(compiled.as_text())
    of_tokens = [loop for loop in loops(program) if tokens and loop.trips == tokens and loop.at_most]
    loop = price(program, plan.chip, of_tokens[0].body) if of_tokens else None
    return Program(
        memory.peak_memory_in_bytes,
        memory.argument_size_in_bytes,
        price(program, plan.chip),
        loop,
        "",
        time.monotonic() - start,
    )


def needed(reason: str) -> float:
    """Bytes that a program wanted, from the compiler's message; 0 where it names none."""
    found = _TOO_LARGE.search(reason)
    if not found:
        return 0.0
    number, unit = found[1] or found[3], found[2] or found[4]
    return float(number) * _UNITS[unit]
