"""HOST. Floating-point operations that a model needs, counted in the jaxpr of its forward pass.

Utilisation is measured by these and not by what a compiled program does: recomputation is no progress.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rag_jax.fit.plan import Plan, batch_shapes, params_shapes, source_width
from rag_jax.models.bert import Bert
from rag_jax.rag.loss import rag_sums
from rag_jax.training.optimizer import partition
from rag_jax.training.steps import rules_and_optimizer


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
    c = plan.config
    filled = _with_passages(plan, batch_shapes(plan, plan.layout, c.train.batch_size, c.k, training=True))
    params = params_shapes(plan)

    def forward(params: Any, batch: Any) -> Any:
        return rag_sums(params, plan.arch, batch, variant=c.variant, width=source_width(plan))

    # The loss's gradient goes through both networks as far as something in them is trained.
    trained = partition(params, rules_and_optimizer(c)[0])[0]

    def encode(tower: Bert, params: Any, ids: Any) -> Any:
        return tower.apply({"params": params}, ids.reshape(-1, ids.shape[-1]))

    flops = {"generator": forward_flops(forward, params, filled)}
    for name, ids in (("question_encoder", filled.question), ("passage_encoder", filled.encoder_passages)):
        if name in params:
            flops[name] = forward_flops(functools.partial(encode, Bert(getattr(plan.arch, name))), params[name], ids)
            flops["generator"] -= flops[name]
    return sum(count * (3 if trained.get(name) else 1) for name, count in flops.items())


def _with_passages(plan: Plan, batch: Any) -> Any:
    """A batch as retrieval would fill it in; shardings do not matter here."""

    def bare(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)

    batch = jax.tree.map(bare, batch)
    if batch.passages is not None:
        return batch
    found = batch.question.shape[0], plan.places(plan.config.k)
    tokens = jax.ShapeDtypeStruct((*found, plan.config.data.max_passage_tokens), jnp.int32)
    return batch.replace(
        passages=tokens,
        vectors=jax.ShapeDtypeStruct((*found, plan.arch.passage_encoder.width), jnp.float32),
        valid=jax.ShapeDtypeStruct(found, bool),
        encoder_passages=tokens if plan.config.index.refresh_every else None,
    )
