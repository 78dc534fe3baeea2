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
import optax

from rag_jax.config import Config
from rag_jax.experiment import device_settings, evaluation_layout, make_layout, sizes
from rag_jax.index import DeviceSettings, abstract_index, abstract_rows
from rag_jax.index.device import DeviceIndex
from rag_jax.index.manifest import MANIFEST, read_manifest
from rag_jax.models.layers import LANES
from rag_jax.models.null_document import init_null_document
from rag_jax.models.presets import BART_PRESETS
from rag_jax.rag.device_retrieve import Resident, columns
from rag_jax.rag.model import Architecture, init_params
from rag_jax.sharding import Layout
from rag_jax.text.world_facts import SECTIONS
from rag_jax.tpu.chips import CHIPS, Chip
from rag_jax.tpu.topology import devices as libtpu_devices
from rag_jax.training.optimizer import partition
from rag_jax.training.pretrain import reader_optimizer, reader_stages, towers_config
from rag_jax.training.step import TrainState, init_state
from rag_jax.training.steps import check_batch, rules_and_optimizer

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
      passages: how many there are in the index; 0 where nothing is looked for.
      trains: what the step trains: a 'rag'; its two 'towers' alone; or the generator alone, as a 'reader'.
      pretraining: whether the step is a part of recipe 'world_pretrain'.
    """

    config: Config
    topology: str
    devices: tuple[jax.Device, ...] | int
    chip: Chip
    arch: Architecture
    names: tuple[str, ...]
    layout: Layout
    passages: int
    trains: str = "rag"
    pretraining: bool = False

    @property
    def questions(self) -> int:
        """Of a train step."""
        return self.config.pretrain.reader_batch_size if self.trains == "reader" else self.config.train.batch_size

    @property
    def batch_field(self) -> tuple[str, int]:
        """What sets the questions of a step, and how many questions one of it is."""
        if not self.pretraining:
            return "train.batch_size", 1
        return (
            ("pretrain.reader_batch_size", 1) if self.trains == "reader" else ("pretrain.tower_groups", len(SECTIONS))
        )

    @property
    def accumulate(self) -> int:
        """Parts that a batch is cut into."""
        return self.config.train.accumulate if self.trains == "rag" else 1

    @property
    def chips(self) -> int:
        """How many."""
        return self.devices if isinstance(self.devices, int) else len(self.devices)

    @property
    def hosts(self) -> int:
        """How many machines hold them; one, if they are nowhere."""
        return hosts_of(self.devices)

    @property
    def searches_from_host(self) -> bool:
        """Whether hosts search an index that lies on a chip."""
        c = self.config
        there = self.trains == "rag" and c.retriever == "dpr" and c.index.backend == "device"
        return there and not c.index.in_step

    @property
    def searches_in_step(self) -> bool:
        """Whether the step finds the passages of its questions itself."""
        return self.trains == "rag" and self.config.index.in_step

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
      FileNotFoundError, ValueError: unknown sizes, devices that cannot share a batch or a layer evenly, or a recipe
        that trains one thing after another, see `make_plans`.
    """
    if config.recipe == "world_pretrain":
        raise ValueError(
            "config.recipe: world_pretrain trains towers, then a reader, and so has two plans; see make_plans"
        )
    arch, names = sizes(config)
    generator = dataclasses.replace(arch.generator, cache_row=LANES)  # whatever this machine's own backend is
    arch = dataclasses.replace(arch, generator=generator)
    layout = make_layout(config, devices=devices)
    check_batch(config, layout)
    if config.recipe == "dpr":
        passages = 0
    if passages is None:
        directory = pathlib.Path(config.index.directory)
        there = config.index.directory and (directory / MANIFEST).is_file()
        passages = read_manifest(directory).count if there else WIKIPEDIA
    devices = devices if isinstance(devices, int) else tuple(devices)
    trains = "towers" if config.recipe == "dpr" else "rag"
    return Plan(config, topology, devices, chip, arch, names, layout, passages, trains)


def make_plans(
    config: Config, topology: str, devices: Sequence[jax.Device] | int, chip: Chip, passages: int | None = None
) -> tuple[Plan, ...]:
    """A plan for each thing that the recipe trains: of 'world_pretrain' the towers, then the reader on one chip.

    Arguments as for `make_plan`.

    Raises:
      FileNotFoundError, ValueError: see `make_plan`; or there are several hosts for a recipe that runs on one.
    """
    if config.recipe != "world_pretrain":
        return (make_plan(config, topology, devices, chip, passages),)
    if hosts_of(devices) > 1:
        what = f"world_pretrain runs on one host, and {topology} has {hosts_of(devices)}"
        raise ValueError(f"config.recipe: {what}; give a slice of one host, as v5e:2x2")
    towers = dataclasses.replace(make_plan(towers_config(config), topology, devices, chip), pretraining=True)
    generator = dataclasses.replace(BART_PRESETS["tiny"], dropout=0.0, cache_row=LANES)
    one = 1 if isinstance(devices, int) else tuple(devices)[:1]
    reader = dataclasses.replace(
        towers,
        config=config,
        devices=one,
        arch=dataclasses.replace(towers.arch, generator=generator),
        names=("generator",),
        layout=make_layout(towers.config, devices=one),
        trains="reader",
    )
    return towers, reader


def hosts_of(devices: Sequence[jax.Device] | int) -> int:
    """How many machines hold the devices; one, if they are nowhere."""
    return 1 if isinstance(devices, int) else len({device.process_index for device in devices})


def params_shapes(plan: Plan, training: bool = True) -> dict[str, Any]:
    """The parameters of a step or of decoding, as shapes: the passage encoder only where a step trains it."""
    shapes = _shapes(plan.arch)
    trained = plan.trains == "towers" or (training and plan.config.index.refresh_every > 0)
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
    layout, optimizer = layout or plan.layout, optimizer_of(plan)
    trainable, frozen = trained_and_frozen(plan)
    encoder = (trainable | frozen).get("passage_encoder") if plan.trains == "rag" else None
    if plan.trains == "reader":
        trainable = trainable["generator"]
    state = jax.eval_shape(lambda *trees: init_state(trees[0], optimizer, trees[1]), trainable, encoder)
    return layout.abstract(state), layout.abstract(frozen)


def trained_and_frozen(plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of a step as shapes, those that are trained and those that are not."""
    params = params_shapes(plan)
    return (params, {}) if plan.trains == "reader" else partition(params, rules_and_optimizer(plan.config)[0])


def optimizer_of(plan: Plan) -> optax.GradientTransformation:
    """What updates the state of a step."""
    if plan.trains == "reader":
        return reader_optimizer(reader_stages(plan.config), plan.config.pretrain.reader_learning_rate)
    return rules_and_optimizer(plan.config)[1]


def index_shapes(plan: Plan, layout: Layout) -> DeviceIndex | None:
    """The index on the chips: cut over them for a step that retrieves, whole on one for searches from a host."""
    if plan.searches_in_step:
        return _cut_index(plan, layout)
    if plan.searches_from_host:
        settings = DeviceSettings(plan.config.index.dtype or "float32")
        return abstract_index(plan.passages, plan.arch.passage_encoder.width, settings)
    return None


def _cut_index(plan: Plan, layout: Layout) -> DeviceIndex:
    settings = device_settings(plan.config, plan.config.index.dtype or "float32")
    return abstract_index(plan.passages, plan.arch.passage_encoder.width, settings, layout.several)


def resident_shapes(plan: Plan, layout: Layout, k: int, training: bool = False) -> Resident | None:
    """What a step or a decoding that retrieves reads: vectors and tokens; None for one that does not."""
    if not plan.searches_in_step:
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
