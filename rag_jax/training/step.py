"""DEVICE. One step of training: loss, gradient of what is trained, update. What is frozen is a constant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

from rag_jax.rag.device_retrieve import Resident, retrieve
from rag_jax.rag.loss import rag_loss
from rag_jax.rag.model import Architecture
from rag_jax.training.optimizer import merge
from rag_jax.types import Batch


@flax.struct.dataclass
class TrainState:
    """Everything that a step changes.

    Attributes:
      step: int32, number of updates made.
      trainable: the parameters that are trained, nested dict.
      optimizer: optax state over `trainable` alone.
    """

    step: Any
    trainable: Any
    optimizer: Any


def make_train_step(
    arch: Architecture,
    optimizer: optax.GradientTransformation,
    *,
    variant: str,
    label_smoothing: float,
    dropout: bool,
    seed: int,
) -> Callable[..., tuple[TrainState, dict[str, jax.Array]]]:
    """A jitted `step(state, frozen, batch, width, resident=None) -> (state, report)`; the state's buffers are donated.

    With `resident` the step finds the passages of its questions by itself, with the question encoder that it is given.

    Dropout keys are folded from the seed and the step's number, so a resumed run draws the same ones.

    Args:
      arch: sizes.
      optimizer: over the trainable part.
      variant: 'sequence' or 'token'.
      label_smoothing: see `rag_loss`.
      dropout: whether dropout is on.
      seed: of the dropout keys.
    """

    @functools.partial(jax.jit, static_argnames="width", donate_argnums=0)
    def step(
        state: TrainState, frozen: Any, batch: Batch, width: int, resident: Resident | None = None
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        if resident is not None:
            encoder = merge(state.trainable, frozen)["question_encoder"]
            batch, _ = retrieve(resident, arch, encoder, batch)
        key = jax.random.fold_in(jax.random.key(seed), state.step) if dropout else None

        def loss(trainable: Any) -> Any:
            params = merge(trainable, frozen)
            return rag_loss(
                params,
                arch,
                batch,
                variant=variant,
                width=width,
                label_smoothing=label_smoothing,
                dropout_key=key,
            )

        gradient, report = jax.grad(loss, has_aux=True)(state.trainable)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.trainable)
        report = report | {"gradient_norm": optax.global_norm(gradient)}
        return TrainState(state.step + 1, optax.apply_updates(state.trainable, updates), optimizer_state), report

    return step


def init_state(trainable: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """The state before the first step; works under `jax.eval_shape`."""
    return TrainState(jnp.zeros((), jnp.int32), trainable, optimizer.init(trainable))
