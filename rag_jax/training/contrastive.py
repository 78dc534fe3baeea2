"""DEVICE. Contrastive training of both towers with in-batch negatives (Karpukhin et al. 2020, section 3.2).

A batch is cut over the mesh by questions, and every question is compared with the passages of the whole batch: those of
the other devices are gathered, and their gradients go back to where they came from.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from rag_jax.rag.loss import encode_rows
from rag_jax.rag.model import Architecture
from rag_jax.sharding import ONE_DEVICE, Layout
from rag_jax.training.optimizer import merge
from rag_jax.training.step import TrainState, updated


@flax.struct.dataclass
class TowerBatch:
    """Questions with passages; M is 1 and the number of hard negatives.

    Attributes:
      question: int32 [B,Q], for the question encoder.
      passages: int32 [B,M,P], for the passage encoder: the question's own passage, then its hard negatives.
      valid: bool [B,M], false where a question has fewer hard negatives: any passage stands there, and counts nowhere.
    """

    question: Any
    passages: Any
    valid: Any


def in_batch_loss(
    questions: Float[Array, "B D"],
    passages: Float[Array, "N D"],
    positive: Int[Array, "B"],
    valid: Bool[Array, "N"] | None = None,
) -> tuple[Float[Array, ""], Bool[Array, "B"]]:
    """Negative log-likelihood of each question's own passage among all passages of the batch.

    Args:
      questions: question vectors.
      passages: passage vectors, positives and hard negatives together.
      positive: each question's row in `passages`.
      valid: passages that count; None: all.

    Returns:
      The mean loss, and for every question whether its own passage scored highest.
    """
    questions, passages = (vectors.astype(jnp.float32) for vectors in (questions, passages))
    scores = jnp.einsum("bd,nd->bn", questions, passages, precision=jax.lax.Precision.HIGHEST)
    if valid is not None:
        scores = jnp.where(valid, scores, -jnp.inf)
    logp = jax.nn.log_softmax(scores, axis=-1)
    gold = jnp.take_along_axis(logp, positive[:, None], axis=-1)[:, 0]
    return -gold.mean(), scores.argmax(-1) == positive


def tower_loss(
    params: Any, arch: Architecture, batch: TowerBatch, dropout_key: Array | None = None
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """`in_batch_loss` from token ids.

    Args:
      params: {'question_encoder', 'passage_encoder'}.
      arch: their sizes.
      batch: of all devices.
      dropout_key: turns dropout on.

    Returns:
      The loss, and {'loss', 'accuracy': share of questions whose own passage scored highest}.
    """
    keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
    encode = functools.partial(encode_rows, params, arch)
    count, each, width = batch.passages.shape
    questions = encode("question_encoder", batch.question, keys[0])
    passages = encode("passage_encoder", batch.passages.reshape(-1, width), keys[1])
    loss, right = in_batch_loss(questions, passages, jnp.arange(count) * each, batch.valid.reshape(-1))
    return loss, {"loss": loss, "accuracy": right.mean()}


def make_tower_step(
    arch: Architecture,
    optimizer: optax.GradientTransformation,
    *,
    dropout: bool,
    seed: int,
    layout: Layout = ONE_DEVICE,
) -> Callable[..., tuple[TrainState, dict[str, jax.Array]]]:
    """A jitted `step(state, frozen, batch) -> (state, report)`; the state's buffers are donated.

    Args:
      arch: sizes.
      optimizer: over the trainable part.
      dropout: whether dropout is on; its keys are folded from the seed and the step's number.
      seed: of the dropout keys.
      layout: where the state lies; the batch is cut by rows over its mesh.
    """

    @functools.partial(jax.jit, donate_argnums=0, compiler_options=layout.compiler_options)
    def step(state: TrainState, frozen: Any, batch: TowerBatch) -> tuple[TrainState, dict[str, jax.Array]]:
        key = jax.random.fold_in(jax.random.key(seed), state.step) if dropout else None

        def loss(trainable: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
            with layout.rows_stay():
                return tower_loss(layout.ready(merge(trainable, frozen)), arch, batch, key)

        gradient, report = jax.grad(loss, has_aux=True)(state.trainable)
        gradient = layout.constrain(gradient, "optimizer/")
        return updated(state, gradient, optimizer, layout), report | {"gradient_norm": optax.global_norm(gradient)}

    return step
