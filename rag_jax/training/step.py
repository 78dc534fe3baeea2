"""DEVICE. One step of training: loss, gradient of what is trained, update. What is frozen is a constant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from rag_jax.rag.device_retrieve import Resident, retrieve
from rag_jax.rag.loss import means, rag_sums
from rag_jax.rag.model import Architecture
from rag_jax.sharding import ONE_DEVICE, Layout
from rag_jax.training.optimizer import merge
from rag_jax.types import Batch


@flax.struct.dataclass
class TrainState:
    """Everything that a run goes on from.

    Attributes:
      step: int32, number of updates made.
      trainable: the parameters that are trained, nested dict.
      optimizer: optax state over `trainable` alone.
      index_encoder: where the passage encoder is trained, its parameters when the index was last made; steps leave them
        as they are. Else None.
    """

    step: Any
    trainable: Any
    optimizer: Any
    index_encoder: Any = None


def make_train_step(
    arch: Architecture,
    optimizer: optax.GradientTransformation,
    *,
    variant: str,
    label_smoothing: float,
    dropout: bool,
    seed: int,
    accumulate: int = 1,
    layout: Layout = ONE_DEVICE,
) -> Callable[..., tuple[TrainState, dict[str, jax.Array]]]:
    """A jitted `step(state, frozen, batch, width, resident=None, rows=None) -> (state, report)`; donates the state.

    With `resident` the step finds the passages of its questions by itself, with the question encoder that it is given.
    Else `rows` [B,K] may say which the host found. With either the report has `distinct_passages`.

    Dropout keys are folded from the seed and the step's number, so a resumed run draws the same ones.

    Args:
      arch: sizes.
      optimizer: over the trainable part.
      variant: 'sequence', 'token' or 'fid'.
      label_smoothing: see `rag_loss`.
      dropout: whether dropout is on.
      seed: of the dropout keys.
      accumulate: parts that a batch is cut into and run one after the other, for the memory of one part. Loss and
        gradient are those of the whole batch; dropout draws other keys.
      layout: where the state lies; the batch is cut by rows over its mesh.
    """

    @functools.partial(jax.jit, static_argnames="width", donate_argnums=0, compiler_options=layout.compiler_options)
    def step(
        state: TrainState,
        frozen: Any,
        batch: Batch,
        width: int,
        resident: Resident | None = None,
        rows: jax.Array | None = None,
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        if resident is not None:
            encoder = merge(state.trainable, frozen)["question_encoder"]
            with layout.rows_stay():
                batch, rows = retrieve(resident, arch, layout.ready(encoder), batch)
        key = jax.random.fold_in(jax.random.key(seed), state.step) if dropout else None
        settings: dict[str, Any] = {"variant": variant, "width": width, "label_smoothing": label_smoothing}
        settings["devices"] = layout.parts

        def sums(trainable: Any, part: Batch, key: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
            with layout.rows_stay():
                params = layout.ready(merge(trainable, frozen))
                found = rag_sums(params, arch, part, dropout_key=key, **settings)
            return -found["loglik"], found

        def cut(gradient: Any) -> Any:
            # As the optimiser's state is cut, so that each device updates its own part.
            return layout.constrain(gradient, "optimizer/")

        if accumulate == 1:
            gradient, report = _at_once(sums, state.trainable, batch, key)
            gradient = cut(gradient)
        else:
            parts = _parts(batch, accumulate, layout.parts)
            gradient, report = _one_after_the_other(sums, state.trainable, parts, key, cut)
        report = report | {"gradient_norm": optax.global_norm(gradient)}
        if rows is not None:
            report["distinct_passages"] = distinct_passages(rows)
        return updated(state, gradient, optimizer, layout), report

    return step


def updated(
    state: TrainState, gradient: Any, optimizer: optax.GradientTransformation, layout: Layout = ONE_DEVICE
) -> TrainState:
    """The state after one update; inside a jitted step."""
    updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.trainable)
    trainable = optax.apply_updates(state.trainable, updates)
    new = TrainState(state.step + 1, trainable, optimizer_state, state.index_encoder)
    return layout.constrain(new)


Sums = Callable[[Any, Batch, Any], tuple[jax.Array, dict[str, jax.Array]]]
"""(trainable, batch or a part of it, dropout key or None) -> the summed loss, and `rag_sums`."""


def _at_once(sums: Sums, trainable: Any, batch: Batch, key: Any) -> tuple[Any, dict[str, jax.Array]]:
    """Gradient of the weighted mean loss, and its report."""

    def mean(trainable: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        report = means(sums(trainable, batch, key)[1])
        return report["loss"], report

    return jax.grad(mean, has_aux=True)(trainable)


def _parts(batch: Batch, accumulate: int, devices: int) -> Batch:
    """The batch with an axis of its parts in front; each device's rows are cut into so many, so that none moves."""

    def one(x: jax.Array) -> jax.Array:
        each = x.shape[0] // devices // accumulate
        apart = x.reshape(devices, accumulate, each, *x.shape[1:])
        return apart.swapaxes(0, 1).reshape(accumulate, devices * each, *x.shape[1:])

    return jax.tree.map(one, batch)


def _one_after_the_other(
    sums: Sums, trainable: Any, parts: Batch, key: Any, cut: Callable[[Any], Any]
) -> tuple[Any, dict[str, jax.Array]]:
    """What `_at_once` gives, from the parts of a batch; `cut` says where their gradients lie."""

    def add(total: Any, numbered: tuple[jax.Array, Batch]) -> tuple[Any, None]:
        number, part = numbered
        own = None if key is None else jax.random.fold_in(key, number)
        gradient, found = jax.grad(sums, has_aux=True)(trainable, part, own)
        return jax.tree.map(jnp.add, total, (cut(gradient), found)), None

    first = jax.tree.map(lambda x: x[0], parts)
    shapes = jax.eval_shape(jax.grad(sums, has_aux=True), trainable, first, key)
    gradient, found = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    numbers = jnp.arange(len(parts.question))
    (gradient, found), _ = jax.lax.scan(add, (cut(gradient), found), (numbers, parts))
    return jax.tree.map(lambda x: x / jnp.maximum(found["weight"], 1e-9), gradient), means(found)


def distinct_passages(rows: Int[Array, "B K"]) -> Float[Array, ""]:
    """The share of different passages among all that a batch found; 1 = no passage twice, 0 = none found.

    Args:
      rows: row numbers; -1 where there is none.
    """
    ordered = jnp.sort(rows, axis=None)
    new = jnp.concatenate([ordered[:1] >= 0, (ordered[1:] >= 0) & (ordered[1:] != ordered[:-1])])
    return new.sum() / jnp.maximum((rows >= 0).sum(), 1)


def init_state(trainable: Any, optimizer: optax.GradientTransformation, index_encoder: Any = None) -> TrainState:
    """The state before the first step; works under `jax.eval_shape`."""
    return TrainState(jnp.zeros((), jnp.int32), trainable, optimizer.init(trainable), index_encoder)


def create_state(
    trainable: Any, optimizer: optax.GradientTransformation, layout: Layout, index_encoder: Any = None
) -> TrainState:
    """The state before the first step on its devices; no device ever holds more than its part.

    Args:
      trainable: arrays on the host, the same in every process. They stay as they are.
      optimizer: over them.
      layout: where the state shall lie; with a mesh.
      index_encoder: see `TrainState`; on the host.
    """
    shapes = jax.eval_shape(lambda: init_state(trainable, optimizer, index_encoder))
    placed, encoder = layout.place(trainable), layout.place(index_encoder, "index_encoder/")
    create = jax.jit(lambda *trees: init_state(trees[0], optimizer, trees[1]), out_shardings=layout.shardings(shapes))
    return create(placed, encoder)
