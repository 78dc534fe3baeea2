"""HOST. What would lie on the chips of a slice: the shapes of everything that a configuration puts there.

Sizes alone are read: those of presets or of a weights directory's model.json, and an index's count. Nothing is loaded.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from rag_jax.config import Config, has_towers
from rag_jax.experiment import device_settings, evaluation_layout, make_layout, sizes
from rag_jax.index import DeviceSettings, abstract_index, abstract_rows
from rag_jax.index.device import DeviceIndex
from rag_jax.index.manifest import MANIFEST, read_manifest
from rag_jax.models.layers import LANES
from rag_jax.models.null_document import init_null_document
from rag_jax.rag.device_retrieve import Resident, columns
from rag_jax.rag.model import Architecture, init_params
from rag_jax.rag.shapes import widest_source
from rag_jax.sharding import DATA, Layout
from rag_jax.tpu.chips import CHIPS, Chip
from rag_jax.tpu.topology import devices as libtpu_devices
from rag_jax.training.optimizer import partition
from rag_jax.training.step import TrainState, init_state
from rag_jax.training.steps import check_batch, rules_and_optimizer
from rag_jax.types import Batch

WIKIPEDIA = 21_015_324  # DPR's passages


@dataclasses.dataclass(frozen=True)
class Plan:
    """A configuration on a slice.

    Attributes:
      config: final.
      topology: the slice's name.
      devices: its chips, or how many there are of chips that are nowhere: for them programs can be lowered.
      chip: their figures.
      arch: sizes of the networks.
      names: those that are used.
      layout: of the train step.
      passages: how many there are.
    """

    config: Config
    topology: str
    devices: tuple[jax.Device, ...] | int
    chip: Chip
    arch: Architecture
    names: tuple[str, ...]
    layout: Layout
    passages: int

    @property
    def chips(self) -> int:
        """How many."""
        return self.devices if isinstance(self.devices, int) else len(self.devices)

    @property
    def hosts(self) -> int:
        """How many machines hold them; one, if they are nowhere."""
        if isinstance(self.devices, int):
            return 1
        return len({device.process_index for device in self.devices})

    @property
    def searches_from_host(self) -> bool:
        """Whether hosts search an index that lies on a chip."""
        c = self.config
        return c.retriever == "dpr" and c.index.backend == "device" and not c.index.in_step

    def places(self, k: int) -> int:
        """K of a batch: the passages of a question, and the null document if there is one."""
        return k + (self.config.null_document != "none")

    @property
    def evaluation(self) -> Layout:
        """Where decoding has its parameters."""
        return evaluation_layout(self.config, self.devices)


def topology_devices(topology: str) -> tuple[Chip, list[jax.Device]]:
    """The chips of a topology such as 'v5e:4x4', and their figures.

    Raises:
      ValueError: libtpu is not installed or does not know the name, or there are no figures of such chips.
    """
    kind = topology.partition(":")[0]
    if kind not in CHIPS:
        raise ValueError(f"{topology}: no figures of chips {kind!r}; there are {', '.join(CHIPS)}, as in v5e:4x4")
    try:
        return CHIPS[kind], libtpu_devices(topology)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def make_plan(
    config: Config, topology: str, devices: Sequence[jax.Device] | int, chip: Chip, passages: int | None = None
) -> Plan:
    """Lays a configuration out.

    Args:
      config: final.
      topology: the name to show.
      devices: to compile for, or a number, see `Plan`.
      chip: what to price with.
      passages: None: as the manifest of `config.index.directory` says; without one, Wikipedia's.

    Raises:
      FileNotFoundError, ValueError: unknown sizes, devices that cannot share a batch or a layer evenly, or another
        recipe than 'rag'.
    """
    if config.recipe != "rag":
        raise ValueError(f"config.recipe: what is planned is the training of a RAG, not {config.recipe}")
    arch, names = sizes(config)
    generator = dataclasses.replace(arch.generator, cache_row=LANES)  # whatever this machine's own backend is
    arch = dataclasses.replace(arch, generator=generator)
    layout = make_layout(config, devices=devices)
    check_batch(config, layout)
    if passages is None:
        directory = pathlib.Path(config.index.directory)
        there = config.index.directory and (directory / MANIFEST).is_file()
        passages = read_manifest(directory).count if there else WIKIPEDIA
    devices = devices if isinstance(devices, int) else tuple(devices)
    return Plan(config, topology, devices, chip, arch, names, layout, passages)


def params_shapes(plan: Plan, training: bool = True) -> dict[str, Any]:
    """The parameters of a step or of decoding, as shapes: the passage encoder only where a step trains it."""
    shapes = _shapes(plan.arch)
    trained = training and plan.config.index.refresh_every > 0
    found = {name: shapes[name] for name in plan.names if trained or name != "passage_encoder"}
    kind, width = plan.config.null_document, plan.arch.question_encoder.width
    if kind != "none":
        found["null_document"] = jax.eval_shape(lambda: init_null_document(kind, width, jax.random.key(0)))
    return found


@functools.lru_cache
def _shapes(arch: Architecture) -> dict[str, Any]:
    """Of all parameters; finding them takes a second of tracing."""
    return jax.eval_shape(lambda: init_params(arch, jax.random.key(0)))


def state_shapes(plan: Plan, layout: Layout | None = None) -> tuple[TrainState, dict[str, Any]]:
    """The training state and the frozen parameters, as shapes that say where they lie."""
    layout = layout or plan.layout
    rules, optimizer = rules_and_optimizer(plan.config)
    params = params_shapes(plan)
    trainable, frozen = partition(params, rules)
    encoder = params.get("passage_encoder")
    state = jax.eval_shape(lambda *trees: init_state(trees[0], optimizer, trees[1]), trainable, encoder)
    return layout.abstract(state), layout.abstract(frozen)


def source_width(plan: Plan) -> int:
    """S: room for the longest question and passage, at most `config.data.max_source_tokens`."""
    d = plan.config.data
    passage = passage_columns(plan)
    if d.hf_compat_input:
        return d.max_source_tokens
    return widest_source(d.max_question_tokens, passage, d.max_source_tokens)


def passage_columns(plan: Plan) -> int:
    """P; in closed book there is one empty passage of padding."""
    d = plan.config.data
    if d.hf_compat_input:
        return d.max_source_tokens
    return 1 if plan.config.retriever == "none" else d.max_passage_tokens


def batch_shapes(plan: Plan, layout: Layout, questions: int, k: int, training: bool) -> Batch:
    """A batch as the step or the decoder is given it, at its longest; sources are not packed."""
    c, d = plan.config, plan.config.data
    rows = layout.sharding(PartitionSpec(DATA))

    def like(*shape: int, dtype: Any = jnp.int32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((questions, *shape), dtype, sharding=rows)

    asked = like(d.max_question_tokens), like(0 if d.hf_compat_input else d.max_question_tokens)
    batch = Batch(*asked, null_document=c.null_document != "none")
    if not c.index.in_step:
        places, by_vectors = plan.places(k), has_towers(c)
        batch = dataclasses.replace(
            batch,
            passages=like(places, passage_columns(plan)),
            vectors=like(places, plan.arch.passage_encoder.width if by_vectors else 0, dtype=jnp.float32),
            valid=like(places, dtype=bool),
            scores=None if by_vectors else like(places, dtype=jnp.float32),
        )
        if training and c.index.refresh_every:
            batch = dataclasses.replace(batch, encoder_passages=like(places, d.max_passage_tokens))
    if training:
        batch = dataclasses.replace(batch, target=like(d.max_target_tokens), weight=like(dtype=jnp.float32))
    return batch


def index_shapes(plan: Plan, layout: Layout) -> DeviceIndex | None:
    """The index on the chips: cut over them for a step that retrieves, whole on one for searches from a host."""
    i = plan.config.index
    if i.in_step:
        return _cut_index(plan, layout)
    if plan.searches_from_host:
        return abstract_index(plan.passages, plan.arch.passage_encoder.width, DeviceSettings(i.dtype or "float32"))
    return None


def _cut_index(plan: Plan, layout: Layout) -> DeviceIndex:
    settings = device_settings(plan.config, plan.config.index.dtype or "float32")
    return abstract_index(plan.passages, plan.arch.passage_encoder.width, settings, layout.several)


def resident_shapes(plan: Plan, layout: Layout, k: int, training: bool = False) -> Resident | None:
    """What a step or a decoding that retrieves reads: vectors and tokens; None for one that does not."""
    if not plan.config.index.in_step:
        return None
    dtype = "uint16" if plan.arch.generator.vocab_size <= 1 << 16 else "uint32"
    longest = plan.config.data.max_passage_tokens
    tokens = abstract_rows(plan.passages, (columns(longest),), dtype, layout.several)
    again = tokens if training and plan.config.index.refresh_every else None
    return Resident(_cut_index(plan, layout), tokens, k, longest, again)


def bytes_on_a_chip(tree: Any) -> int:
    """Bytes of one device's parts of some shapes, without the padding of tiles."""

    def one(leaf: Any) -> int:
        shape = leaf.shape if leaf.sharding is None else leaf.sharding.shard_shape(leaf.shape)
        return math.prod(shape) * jnp.dtype(leaf.dtype).itemsize

    return sum(one(leaf) for leaf in jax.tree.leaves(tree))
