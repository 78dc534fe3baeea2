"""HOST and DEVICE. Where every array of a training state lies on a mesh: ordered rules (path pattern -> cut).

The first pattern that matches an array's path decides, as in the table of learning rates. A cut names at most one
dimension for the axis `model` (tensor parallelism: of BERT's and BART's layers one product of each pair is cut by
columns and the next by rows, so that they need one sum between them) and says whether the largest of the others goes
over the axis `data` (FSDP for parameters, ZeRO-1 for the optimiser's state).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Int

from rag_jax.sharding.mesh import DATA, MODEL, global_rows, largest, my_rows, place, to_host

# A path's end -> the dimension that the axis `model` cuts, counted from the last: layers are scanned, and their
# parameters have one axis more in front. Biases of a product that is cut by rows are added once, so they stay whole.
TENSOR_PARALLEL = (
    (r"(query|key|value|wide)/(kernel|bias)", -1),
    (r"(output|narrow)/kernel", -2),
    (r"tokens/embedding", -2),
    (r"final_logits_bias", -1),
)
_SCANNED = re.compile(r"(^|/)(\w+_)?layers/")  # the first axis of what lies below counts layers
_LAYERS = (nn.Dense, nn.Embed, nn.LayerNorm)


class Cut(NamedTuple):
    """How one array is cut.

    Attributes:
      data: cut the largest dimension that the axis `data` divides, if the array is not small and there is one.
      model: the dimension that the axis `model` cuts, negative; None, and where it does not divide: whole.
    """

    data: bool = False
    model: int | None = None


class CutRule(NamedTuple):
    """One row: a regex for a whole path ('optimizer/1/mu/generator/encoder_layers/...'), and the cut."""

    pattern: str
    cut: Cut


def state_rules(params: str = "replicated", optimizer: str = "sharded") -> tuple[CutRule, ...]:
    """The usual table.

    Args:
      params: 'replicated', or 'fsdp': parameters cut over `data`; then the optimiser's state is too.
      optimizer: 'sharded' over `data`, or 'replicated'.

    Raises:
      ValueError: another word.
    """
    if params not in ("replicated", "fsdp") or optimizer not in ("sharded", "replicated"):
        raise ValueError(f"no rules for params={params!r}, optimizer={optimizer!r}")
    groups = (("optimizer/", params == "fsdp" or optimizer == "sharded"), ("", params == "fsdp"))
    ends = (*((rf"(.*/)?{end}", model) for end, model in TENSOR_PARALLEL), (".*", None))
    return tuple(CutRule(group + end, Cut(data, model)) for group, data in groups for end, model in ends)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A mesh and the rules for it. Hashable, so that jitted functions take it as static.

    Attributes:
      mesh: with the axis `data`, perhaps `model`; an abstract one to compile for. None: the default device.
      rules: the first that matches decides; an array that none matches is whole on every device.
      min_elements: smaller arrays are not cut over `data`: fetching their parts costs more than their memory.
    """

    mesh: Mesh | AbstractMesh | None = None
    rules: tuple[CutRule, ...] = ()
    min_elements: int = 1 << 14

    @property
    def parts(self) -> int:
        """How many devices cut a batch."""
        return 1 if self.mesh is None else self.mesh.shape[DATA]

    @property
    def alone(self) -> bool:
        """Whether there is one device, so that a program needs no word on where its arrays lie."""
        return self.mesh is None or self.mesh.size == 1

    @property
    def several(self) -> Mesh | AbstractMesh | None:
        """The mesh, if it has several devices to cut something over; None where there is one."""
        return None if self.alone else self.mesh

    @property
    def compiler_options(self) -> dict[str, str] | None:
        """What a program over this mesh should be compiled with.

        On TPUs parameters that are cut over `data` are fetched before a product. By itself the compiler cuts a large
        product into as many small ones as there are devices, which use the matrix units half as well.
        """
        if self.alone or not isinstance(self.mesh, Mesh) or self.mesh.devices.flat[0].platform != "tpu":
            return None
        return {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000"}

    def spec(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        """How the array at `path` is cut."""
        cut = next((rule.cut for rule in self.rules if re.fullmatch(rule.pattern, path)), Cut())
        axes: list[str | None] = [None] * len(shape)
        size = None if self.mesh is None else self.mesh.shape.get(MODEL)
        if cut.model is not None and size and len(shape) >= -cut.model and shape[cut.model] % size == 0:
            axes[cut.model] = MODEL
        if cut.data and math.prod(shape) >= self.min_elements:
            free = [d for d, length in enumerate(shape) if axes[d] is None and length % self.parts == 0]
            # A scan takes one layer after the other: cut by layers, each would lie on one device alone.
            inside = [d for d in free if d or not _SCANNED.search(path)]
            if free:
                axes[max(inside or free, key=lambda d: (shape[d], d))] = DATA
        while axes and axes[-1] is None:
            axes.pop()
        return PartitionSpec(*axes)

    def sharding(self, spec: PartitionSpec) -> NamedSharding:
        """A cut over the mesh.

        Raises:
          ValueError: there is no mesh.
        """
        if self.mesh is None:
            raise ValueError("without a mesh nothing is cut; make a layout with `rag_jax.experiment.make_layout`")
        return NamedSharding(self.mesh, spec)

    @property
    def placed_on(self) -> Mesh | None:
        """The mesh, to put arrays on; None for the default device.

        Raises:
          ValueError: an abstract mesh, which is to compile for and holds nothing.
        """
        if isinstance(self.mesh, AbstractMesh):
            raise ValueError("an abstract mesh has no devices to put arrays on")
        return self.mesh

    def shardings(self, tree: Any, prefix: str = "") -> Any:
        """The tree with a `NamedSharding` for every array or shape; `prefix` stands before every path."""

        def one(path: Any, leaf: Any) -> NamedSharding:
            name = prefix + jax.tree_util.keystr(path, simple=True, separator="/")
            return self.sharding(self.spec(name, tuple(leaf.shape)))

        return jax.tree.map_with_path(one, tree)

    def abstract(self, tree: Any, prefix: str = "") -> Any:
        """Arrays or shapes as shapes with their shardings: to restore into, or to compile for."""

        def one(leaf: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

        return jax.tree.map(one, tree, self.shardings(tree, prefix))

    def place(self, tree: Any, prefix: str = "") -> Any:
        """Host arrays that every process holds whole, put where they belong."""
        return jax.device_put(tree) if self.mesh is None else place(tree, self.shardings(tree, prefix))

    def rows(self, tree: Any) -> Any:
        """This process's rows of a batch (`my_rows`), as global arrays. Without a mesh they stay as they are."""
        return tree if self.placed_on is None else global_rows(tree, self.placed_on)

    def my_rows(self, count: int) -> Int[np.ndarray, "N"]:
        """See `mesh.my_rows`; without a mesh all."""
        return np.arange(count) if self.placed_on is None else my_rows(count, self.placed_on)

    def to_host(self, tree: Any) -> Any:
        """See `mesh.to_host`."""
        return jax.device_get(tree) if self.placed_on is None else to_host(tree, self.placed_on)

    def largest(self, value: int) -> int:
        """See `mesh.largest`."""
        return value if self.placed_on is None else largest(value, self.placed_on)

    def constrain(self, tree: Any, prefix: str = "") -> Any:
        """The same for traced arrays: inside a jitted function."""
        if self.alone:
            return tree
        return jax.lax.with_sharding_constraint(tree, self.shardings(tree, prefix))

    def ready(self, params: Any, prefix: str = "") -> Any:
        """Traced parameters as the networks should read them: what lies outside scanned layers is fetched whole.

        A lookup in a table that is cut over `data` would else be done for all rows on every device. The same holds for
        the gradient, whose sum is cut afterwards. A scanned layer's parameters are fetched as its turn comes.
        """
        if self.alone:
            return params

        def one(path: Any, leaf: Any) -> Any:
            name = prefix + jax.tree_util.keystr(path, simple=True, separator="/")
            if _SCANNED.search(name):
                return leaf
            axes = (None if axis == DATA else axis for axis in self.spec(name, leaf.shape))
            return jax.lax.with_sharding_constraint(leaf, self.sharding(PartitionSpec(*axes)))

        return jax.tree.map_with_path(one, params)

    @contextlib.contextmanager
    def rows_stay(self) -> Iterator[None]:
        """While a network is traced in it, its activations stay cut by rows over `data`.

        Without that the compiler may as well follow a cut of the parameters, and then computes all rows everywhere.
        """
        if self.alone:
            yield
            return

        def pin(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
            out = call(*args, **kwargs)
            rows = isinstance(context.module, _LAYERS) and isinstance(out, jax.Array) and out.ndim > 2
            if not rows or out.shape[0] % self.parts:  # positions, which all rows share
                return out
            spec = PartitionSpec(DATA, *(PartitionSpec.UNCONSTRAINED,) * (out.ndim - 1))
            return jax.lax.with_sharding_constraint(out, self.sharding(spec))

        with nn.intercept_methods(pin):
            yield


ONE_DEVICE = Layout()
