"""HOST. Floating-point operations that a model needs, counted in the jaxpr of its forward pass.

Utilisation is measured by these and not by what a compiled program does: recomputation is no progress.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rag_jax.fit.batches import batch_shapes, reader_batch, source_width, tower_batch
from rag_jax.fit.plan import Plan, trained_and_frozen
from rag_jax.models.bert import Bert
from rag_jax.rag.loss import rag_sums
from rag_jax.training.contrastive import tower_loss
from rag_jax.training.reader import reader_loss
from rag_jax.types import Batch


def forward_flops(function: Callable[..., Any], *shapes: Any) -> float:
    """Two for each multiply-add of all matrix products of a function, loops of known length counted as they run."""
    return _flops(jax.make_jaxpr(function)(*shapes).jaxpr)


def _flops(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += times * sum(_flops(inner) for inner in _inner(equation.params))
    return total


def _inner(params: dict[str, Any]) -> list[Any]:
    """The jaxprs that an equation calls."""
    values = [value for given in params.values() for value in (given if isinstance(given, tuple | list) else (given,))]
    found = (getattr(value, "jaxpr", value) for value in values)
    return [jaxpr for jaxpr in found if hasattr(jaxpr, "eqns")]


def model_flops(plan: Plan) -> float:
    """Of one train step over all chips: three times the forward pass of what is trained, once that of what is not.

    Retrieval is not in it.
    """
    # The loss's gradient goes through every network as far as something in it is trained.
    trained, frozen = trained_and_frozen(plan)
    params = trained | frozen
    forward, batch, texts = _FORWARD[plan.trains](plan)

    def encode(tower: Bert, params: Any, ids: Any) -> Any:
        return tower.apply({"params": params}, ids.reshape(-1, ids.shape[-1]))

    rest, flops = forward_flops(forward, params, batch), 0.0
    for name, ids in texts.items():
        if name in params:
            one = forward_flops(functools.partial(encode, Bert(getattr(plan.arch, name))), params[name], ids)
            flops += one * (3 if trained.get(name) else 1)
            rest -= one
    return flops + rest * (3 if plan.trains == "towers" or trained.get("generator") else 1)


Forward = tuple[Callable[..., Any], Any, dict[str, Any]]
"""The loss of parameters and a batch, that batch, and what each tower reads of it."""


def _rag(plan: Plan) -> Forward:
    c = plan.config
    batch = _with_passages(plan, _bare(batch_shapes(plan, plan.layout, c.train.batch_size, c.k, training=True)))

    def forward(params: Any, batch: Any) -> Any:
        return rag_sums(params, plan.arch, batch, variant=c.variant, width=source_width(plan))

    return forward, batch, {"question_encoder": batch.question, "passage_encoder": batch.encoder_passages}


def _towers(plan: Plan) -> Forward:
    batch = _bare(tower_batch(plan))
    texts = {"question_encoder": batch.question, "passage_encoder": batch.passages}
    return lambda params, batch: tower_loss(params, plan.arch, batch), batch, texts


def _reader(plan: Plan) -> Forward:
    def forward(params: Any, batch: Any) -> Any:
        return reader_loss(params["generator"], plan.arch.generator, **batch, width=source_width(plan))

    return forward, _bare(reader_batch(plan)), {}


_FORWARD: dict[str, Callable[[Plan], Forward]] = {"rag": _rag, "towers": _towers, "reader": _reader}


def _bare(batch: Any) -> Any:
    """Without shardings, which do not matter here."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), batch)


def _with_passages(plan: Plan, batch: Batch) -> Batch:
    """A batch as retrieval would fill it in."""
    if batch.passages is not None:
        return batch
    found = batch.question.shape[0], plan.places(plan.config.k)
    tokens = jax.ShapeDtypeStruct((*found, plan.config.data.max_passage_tokens), jnp.int32)
    return dataclasses.replace(
        batch,
        passages=tokens,
        vectors=jax.ShapeDtypeStruct((*found, plan.arch.passage_encoder.width), jnp.float32),
        valid=jax.ShapeDtypeStruct(found, bool),
        encoder_passages=tokens if plan.config.index.refresh_every else None,
    )
