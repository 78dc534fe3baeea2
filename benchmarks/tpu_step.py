"""Train steps on TPU slices that are not there, for `tpu_aot`.

The experiment is configs/nq.py: BERT-base towers, BART-large, bfloat16, five passages a question of 21,015,324 whose
int8 vectors and tokens lie on the chips, retrieval inside the step. Prices are those of `rag-jax fit`: AOT estimates,
never compared with a chip.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from absl import flags
from jax.sharding import NamedSharding, PartitionSpec
from tpu_search import TOPOLOGIES, show

from rag_jax.fit import Plan, make_plan, make_report, topology_devices
from rag_jax.fit.programs import retrieval, train_step
from rag_jax.fit.report import times_of
from rag_jax.flags import define_flag, from_flag, parse_flags
from rag_jax.models.presets import BART_PRESETS
from rag_jax.rag import score
from rag_jax.sharding import make_mesh
from rag_jax.tpu.chips import GIB

NQ = pathlib.Path(__file__).parent.parent / "configs" / "nq.py"
UTILISATION, MOST_GIB, RETRIEVAL_SHARE, COMPILE_SECONDS = 0.42, 14.0, 0.03, 360.0
LOSS_GIB = 1.5
QUESTIONS_A_CHIP, PASSAGES, TOKENS = 8, 50, 64  # of the loss alone


def plan_of(topology: str, questions: int) -> Plan:
    """The experiment on a slice, `questions` in a batch."""
    chip, devices = topology_devices(topology)
    values, argv = flags.FlagValues(), ["tpu_aot", f"--config={NQ}:train.batch_size={questions}"]
    holder = define_flag(values, argv)
    parse_flags(argv, values)
    return make_plan(from_flag(holder), topology, devices, chip)


def step(topology: str, questions: int = 64) -> None:
    """Prints the figures of one train step."""
    plan = plan_of(topology, questions)
    report = make_report(plan, whole=False)
    case = f"train {topology} nq q={questions}"
    show(case=case, metric="peak, GiB a chip", ours=report.step.peak / GIB, bound=MOST_GIB,
         ratio=report.step.peak / GIB / MOST_GIB)  # fmt: skip
    times = report.step.times
    if times is None:
        show(case=case, metric="fits", ours=0, bound=1, ratio=0.0, refusal=report.step.refusal)
        return
    for name, seconds in (("exchanges behind other work", times.on_chip), ("without overlap", times.total)):
        used = report.utilisation(seconds)
        show(case=case, metric=f"utilisation, {name} (AOT estimate)", ours=used, bound=UTILISATION,
             ratio=used / UTILISATION, ms=seconds * 1e3)  # fmt: skip
    search = retrieval(plan)
    share = times_of(search.cost, plan.chip).total / times.total
    show(case=case, metric="retrieval's share of the step", ours=share, bound=RETRIEVAL_SHARE,
         ratio=share / RETRIEVAL_SHARE)  # fmt: skip
    for exchange in times.exchanges:
        show(case=case, metric=f"{exchange.operation}, MB a chip", ours=exchange.bytes / 1e6, bound=None, ratio=None,
             count=exchange.count)  # fmt: skip
    show(case=case, metric="transfers to and from the host", ours=times.host_transfers, bound=0, ratio=None)
    show(case=case, metric="seconds to lower and compile", ours=report.step.compile_seconds, bound=COMPILE_SECONDS,
         ratio=report.step.compile_seconds / COMPILE_SECONDS, bound_by=report.bound)  # fmt: skip


def depth(topology: str = "v5e:4x4") -> None:
    """Prints the compile time of the step with half of its layers and with all."""
    plan = plan_of(topology, 64)
    generator = dataclasses.replace(plan.arch.generator, encoder_layers=6, decoder_layers=6)
    tower = dataclasses.replace(plan.arch.question_encoder, layers=6)
    arch = dataclasses.replace(plan.arch, question_encoder=tower, passage_encoder=tower, generator=generator)
    half, whole = (train_step(p).compile_seconds for p in (dataclasses.replace(plan, arch=arch), plan))
    show(case=f"law: train {topology} nq", metric="seconds to compile, 12 layers over 6", ours=whole, bound=half,
         ratio=whole / half)  # fmt: skip


def loss(topology: str = "v5e:2x2") -> None:
    """Prints the temporaries of the loss alone, from the decoder's states on, with time in chunks and without."""
    for name, limit in (("chunked", score.LOGITS_BYTES), ("at once", math.inf)):
        with _logits_limit(limit):
            used = _loss_temporaries(topology) / GIB
        case = f"loss {topology} q={QUESTIONS_A_CHIP} a chip, k={PASSAGES}, T={TOKENS}, {name}"
        show(case=case, metric="temporaries, GiB a chip", ours=used, bound=LOSS_GIB, ratio=used / LOSS_GIB)


@contextmanager
def _logits_limit(limit: float) -> Iterator[None]:
    before, score.LOGITS_BYTES = score.LOGITS_BYTES, limit
    try:
        yield
    finally:
        score.LOGITS_BYTES = before


def _loss_temporaries(topology: str) -> int:
    config = dataclasses.replace(BART_PRESETS["bart-large"], vocab_multiple=128, dtype=jnp.bfloat16)
    mesh = make_mesh(devices=topology_devices(topology)[1])
    rows = QUESTIONS_A_CHIP * PASSAGES * mesh.size

    def total(table: jax.Array, states: jax.Array, gold: jax.Array) -> jax.Array:
        params = {"tokens": {"embedding": table}}
        settings: dict[str, Any] = {"label_smoothing": 0.1, "devices": mesh.size}
        return -score.state_logprobs(params, config, states, gold, **settings).sum()

    def like(cut: PartitionSpec, dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, cut))

    by_rows = functools.partial(like, PartitionSpec("data"))
    table = like(PartitionSpec(), jnp.float32, config.table_rows, config.width)
    states, gold = by_rows(jnp.bfloat16, rows, TOKENS, config.width), by_rows(jnp.int32, rows, TOKENS)
    compiled = jax.jit(jax.value_and_grad(total, argnums=(0, 1))).lower(table, states, gold).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def step_figures(quick: bool) -> None:
    """Every case; quick: the loss alone."""
    loss()
    if quick:
        return
    for topology in TOPOLOGIES:
        step(topology)
    step("v5e:4x4", 128)
    depth()
