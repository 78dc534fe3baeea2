"""DEVICE. The null document: an empty passage beside the retrieved ones, whose score is learned.

The paper's appendix on null document probabilities names three ways to make that score of a question's vector q: q.e
with a learned vector e, a bias, or a network. It found no gain and left them out; here they are an ablation.

Only differences of scores count; their level is the encoders' or BM25's, another for each question and mostly far above
0. A learned score that started at 0 would have no weight there, so no gradient, and stay where it is. So it is counted
from the mean score of the question's passages, taken as a constant: at the start the null document is as probable as a
passage of mean score.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def init_null_document(kind: str, width: int, key: Array) -> dict[str, Any]:
    """Parameters that give every question 0.

    Args:
      kind: 'embedding', 'bias' or 'mlp'; their names tell `null_score` which it is.
      width: D, of the question's vector.
      key: for the network's first layer.

    Raises:
      ValueError: another kind.
    """
    if kind == "embedding":
        return {"embedding": jnp.zeros(width)}
    if kind == "bias":
        return {"bias": jnp.zeros(1)}
    if kind == "mlp":
        kernel = jax.random.normal(key, (width, width)) * width**-0.5
        wide, narrow = jnp.zeros(width), jnp.zeros(1)
        return {
            "wide": {"kernel": kernel, "bias": wide},
            "narrow": {"kernel": jnp.zeros((width, 1)), "bias": narrow},
        }
    raise ValueError(f"no null document of kind {kind!r}; choose embedding, bias or mlp")


def null_score(
    params: Any,
    query: Float[Array, "B D"] | None,
    scores: Float[Array, "B K"],
    valid: Bool[Array, "B K"],
) -> Float[Array, "B"]:
    """The null document's logit beside those of the passages, float32.

    Args:
      params: from `init_null_document`.
      query: the question's vector; None where it has none, which a bias can do without.
      scores: of the retrieved passages.
      valid: which of them exist. Without any the score is what was learned.

    Raises:
      ValueError: it needs the question's vector, and there is none.
    """
    count = jnp.maximum(valid.sum(-1), 1)
    mean = jax.lax.stop_gradient(jnp.where(valid, scores.astype(jnp.float32), 0.0).sum(-1) / count)
    if "bias" in params:
        return mean + params["bias"]
    if query is None:
        raise ValueError("this null document reads the question's vector, and there is no question encoder")
    query = query.astype(jnp.float32)
    product = functools.partial(jnp.dot, precision=jax.lax.Precision.HIGHEST)
    if "embedding" in params:
        return mean + product(query, params["embedding"])
    hidden = jnp.tanh(product(query, params["wide"]["kernel"]) + params["wide"]["bias"])
    return mean + (product(hidden, params["narrow"]["kernel"]) + params["narrow"]["bias"])[:, 0]
