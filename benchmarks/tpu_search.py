"""Retrieval on TPU slices that are not there, for `tpu_aot`.

21,015,324 vectors of 768 cut over the chips of a slice, `approx_max_k` with a recall target of .99, 128
questions. The bound of the time is the memory's: every chip reads its part of the index once. Times are AOT estimates
(`rag_jax.tpu.price`), exchanges between chips not in them: for ratios and regressions only. They take int8 products at
bfloat16's peak, which is too slow for all but v4 and makes int8 look bound by its products. Beside them stand the
compiler's own numbers; its time of a program that gathers is no time at all.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from rag_jax.index import DeviceSettings, abstract_index, abstract_rows, device
from rag_jax.index.device import DeviceIndex
from rag_jax.rag.device_retrieve import Resident, columns, fill
from rag_jax.rag.model import architecture
from rag_jax.tpu.chips import CHIPS, GIB, Chip
from rag_jax.tpu.hlo import HBM, Program, read_program
from rag_jax.tpu.price import Cost, price
from rag_jax.tpu.topology import devices
from rag_jax.types import Batch

WIKIPEDIA, DIM = 21_015_324, 768
TOPOLOGIES = ("v5e:2x4", "v5e:4x4", "v4:2x2x2", "v5p:2x2x2", "v6e:2x4")
BF16, INT8 = DeviceSettings("bfloat16", 0.99), DeviceSettings("int8", 0.99)
SETTINGS = {
    "bf16": BF16,
    "int8": INT8,
    "int8 rescored": dataclasses.replace(INT8, over_retrieve=4, remainders=True),
}
PASSAGE_TOKENS = 192
MIB = 2**20
TIME_LIMIT, MOST_MIB = 1.15, 100  # over the memory's bound; MiB a chip


@dataclasses.dataclass(frozen=True)
class Search:
    """A compiled search and what it costs one chip.

    Attributes:
      chip: what it is priced for.
      cost: its price.
      program: its text, read.
      scores: elements of one chip's score matrix.
      index_bytes: one chip's part of the vectors and scales.
      temporaries: bytes of a chip that are neither arguments nor results.
      own_estimate: the compiler's `optimal_seconds`.
      own_bytes: the compiler's `bytes accessed`.
    """

    chip: Chip
    cost: Cost
    program: Program
    scores: int
    index_bytes: int
    temporaries: int
    own_estimate: float
    own_bytes: float

    @property
    def bound(self) -> float:
        """Seconds to read the index once."""
        return self.index_bytes / self.chip.hbm_bandwidth


def mesh_of(topology: str) -> Mesh:
    """All chips of a topology along one axis."""
    return Mesh(np.array(devices(topology)), ("data",), axis_types=(AxisType.Auto,))


def compile_search(
    topology: str, settings: DeviceSettings, questions: int = 128, k: int = 5, count: int = WIKIPEDIA
) -> Search:
    """Compiles `device.search` for all chips of a topology, the questions cut over them where they can be."""
    mesh = mesh_of(topology)
    index = abstract_index(count, DIM, settings, mesh)
    search = jax.jit(device.search, static_argnames="k")
    return _read(search.lower(index, _asked(questions, mesh), k=k).compile(), topology, index, questions)


def compile_retrieval(topology: str, settings: DeviceSettings, questions: int = 128, k: int = 5) -> Search:
    """As `compile_search`, and the vectors and tokens of what was found are fetched, each chip's for its questions."""
    mesh = mesh_of(topology)
    index = abstract_index(WIKIPEDIA, DIM, settings, mesh)
    tokens = abstract_rows(WIKIPEDIA, (columns(PASSAGE_TOKENS),), "uint16", mesh)

    @jax.jit
    def run(resident: Resident, query: jax.Array) -> Batch:
        return fill(resident, architecture(), Batch(None, None), device.search(resident.index, query, k)[0])

    compiled = run.lower(Resident(index, tokens, k, PASSAGE_TOKENS), _asked(questions, mesh)).compile()
    return _read(compiled, topology, index, questions)


def _asked(questions: int, mesh: Mesh) -> jax.ShapeDtypeStruct:
    cut = PartitionSpec("data") if questions % mesh.size == 0 else PartitionSpec()
    return jax.ShapeDtypeStruct((questions, DIM), jnp.float32, sharding=NamedSharding(mesh, cut))


def _read(compiled: Any, topology: str, index: DeviceIndex, questions: int) -> Search:
    program, chip = read_program(compiled.as_text()), CHIPS[topology.partition(":")[0]]
    memory, own = compiled.memory_analysis(), compiled.cost_analysis()
    chips = index.mesh.size
    rows = index.vectors.shape[0] // chips
    read = [part for part in (index.vectors, index.scales) if part is not None]
    return Search(
        chip,
        price(program, chip),
        program,
        rows * questions,
        sum(part.size * part.dtype.itemsize for part in read) // chips,
        max(memory.temp_size_in_bytes, memory.peak_memory_in_bytes - memory.argument_size_in_bytes),
        own["optimal_seconds"],
        own["bytes accessed"],
    )


def fused_into_the_product(program: Program) -> bool:
    """Whether the best of each bucket is taken (PartialReduce) in the fusion that holds the product, and only there."""
    homes = []
    for instruction in program.computations[program.entry].instructions.values():
        inside = [instruction, *(part for name in instruction.called() for part in program.within(name))]
        if any('custom_call_target="PartialReduce"' in part.attributes for part in inside):
            products = any(part.operation in ("convolution", "dot") for part in inside)
            homes.append(instruction.operation == "fusion" and products)
    return len(homes) == 1 and homes[0]


def arrays_in_hbm(program: Program, elements: int) -> list[str]:
    """Names of what the program itself puts into HBM with so many elements or more; insides of fusions stay inside."""
    found, open_ = [], [program.entry]
    while open_:
        for instruction in program.computations[open_.pop()].instructions.values():
            if instruction.operation in ("while", "conditional", "call"):
                open_ += instruction.called()
                continue
            large = any(shape.space == HBM and shape.elements >= elements for shape in instruction.shapes)
            if large and instruction.operation not in ("parameter", "bitcast", "get-tuple-element", "tuple"):
                found.append(instruction.name)
    return found


def retrieval(topology: str, name: str, questions: int = 128, k: int = 5) -> None:
    """Prints the figures of one search."""
    settings = SETTINGS[name]
    search = compile_search(topology, settings, questions, k)
    case = f"retrieval {topology} {name} q={questions}" + (f" k={k}" if k != 5 else "")
    ratio = search.cost.seconds / search.bound
    times = {"ours": search.cost.seconds * 1e3, "bound": search.bound * 1e3, "ratio": ratio, "limit": TIME_LIMIT}
    show(case=case, metric="a search, ms (AOT estimate)", **times)
    own = {"ours": search.own_estimate * 1e3, "bound": search.bound * 1e3, "ratio": search.own_estimate / search.bound}
    show(case=case, metric="a search, ms (the compiler's optimal_seconds)", **own)
    moved = {"ours": search.own_bytes / 1e9, "bound": search.index_bytes / 1e9}
    show(case=case, metric="GB accessed (the compiler's count)", **moved, ratio=search.own_bytes / search.index_bytes)
    used = search.temporaries / MIB
    show(case=case, metric="temporaries, MiB a chip", ours=used, bound=MOST_MIB, ratio=used / MOST_MIB)
    held = search.index_bytes * (2 if settings.remainders else 1)
    show(case=case, metric="index, GiB a chip", ours=held / GIB, bound=search.chip.hbm_bytes / GIB,
         ratio=held / search.chip.hbm_bytes)  # fmt: skip
    large = arrays_in_hbm(search.program, search.scores // 8)
    show(case=case, metric="arrays like the scores in HBM", ours=len(large), bound=0, ratio=None, which=large)
    fused = fused_into_the_product(search.program)
    show(case=case, metric="PartialReduce in the product's fusion", ours=int(fused), bound=1, ratio=float(fused))
    exchanged = search.cost.collective_bytes
    show(case=case, metric="exchanges between chips", ours=len(search.cost.collectives), bound=4,
         ratio=len(search.cost.collectives) / 4, bytes=exchanged)  # fmt: skip


def fetching(topology: str, name: str, questions: int = 128, k: int = 5) -> None:
    """Prints what fetching the passages adds to a search."""
    alone = compile_search(topology, SETTINGS[name], questions, k)
    whole = compile_retrieval(topology, SETTINGS[name], questions, k)
    case = f"retrieval {topology} {name} q={questions}" + (f" k={k}" if k != 5 else "")
    ratio = whole.cost.seconds / alone.cost.seconds
    times = {"ours": whole.cost.seconds * 1e3, "bound": alone.cost.seconds * 1e3, "ratio": ratio}
    show(case=case, metric="a search with vectors and tokens, ms (AOT estimate)", **times)
    exchanged = sum(whole.cost.collective_bytes.values()) / 1e6
    show(case=case, metric="exchanges with vectors and tokens, MB a chip", ours=exchanged, bound=4, ratio=exchanged / 4,
         exchanges=len(whole.cost.collectives), bytes=whole.cost.collective_bytes)  # fmt: skip
    used = whole.temporaries / MIB
    show(case=case, metric="temporaries with vectors and tokens, MiB a chip", ours=used, bound=MOST_MIB,
         ratio=used / MOST_MIB)  # fmt: skip


def laws(topology: str = "v5e:2x4") -> None:
    """Prints how a search's estimated time grows with the vectors and with the questions."""
    half, whole = (compile_search(topology, BF16, count=count) for count in (WIKIPEDIA // 2, WIKIPEDIA))
    grown = whole.cost.seconds / half.cost.seconds
    show(case=f"law: search {topology} bf16", metric="time for twice the vectors", ours=grown, bound=2, ratio=grown / 2)
    chip = whole.chip
    crossover = int(chip.flops / chip.hbm_bandwidth)  # questions whose products take as long as reading the index
    few, most = (compile_search(topology, BF16, count).cost.seconds for count in (1, crossover))
    show(case=f"law: search {topology} bf16", metric=f"time for {crossover} questions over 1", ours=most / few, bound=1,
         ratio=most / few)  # fmt: skip


def search_figures(quick: bool) -> None:
    """Every case; quick: one slice."""
    for topology in TOPOLOGIES[:1] if quick else TOPOLOGIES:
        for name in ("bf16", "int8"):
            retrieval(topology, name)
    if not quick:
        retrieval("v5e:2x4", "int8 rescored")
        for name in SETTINGS:
            fetching("v5e:2x4", name)
        for name in ("bf16", "int8"):
            for k in (50, 100):
                retrieval("v5e:2x4", name, k=k)
        laws()


def show(**line: Any) -> None:
    """One line."""
    print(json.dumps(line), flush=True)
