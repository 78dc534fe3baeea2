"""DEVICE. The pieces that BERT and BART share: attention, the feed-forward block, the scan over layers.

Both models are post-LayerNorm transformers (Devlin et al. 2019; Lewis et al. 2019). Attention operands lie as
[batch, heads, time, head width]: on CPU that layout doubles the speed of the score product, on TPU it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

REMAT_POLICIES: dict[str, Callable[..., bool] | None] = {
    "full": None,  # save nothing inside a layer
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda x: nn.gelu(x, approximate=False),  # the exact, erf form: what BERT and BART were trained with
    "gelu_new": lambda x: nn.gelu(x, approximate=True),
    "relu": nn.relu,
    "silu": nn.silu,
}


def dense(features: int, dtype: Any, init_std: float, name: str | None = None) -> nn.Dense:
    """A projection with BERT's and BART's initialisation (normal); parameters float32, compute in `dtype`."""
    return nn.Dense(features, dtype=dtype, kernel_init=nn.initializers.normal(init_std), name=name)


def layer_norm(epsilon: float, dtype: Any, name: str | None = None) -> nn.LayerNorm:
    """LayerNorm whose statistics are float32 and two-pass, as the references compute them."""
    return nn.LayerNorm(epsilon=epsilon, dtype=dtype, use_fast_variance=False, name=name)


def split_heads(x: Float[Array, "R T D"], heads: int) -> Float[Array, "R H T d"]:
    """Cuts the last axis into heads and brings them before time."""
    rows, time, width = x.shape
    return x.reshape(rows, time, heads, width // heads).transpose(0, 2, 1, 3)


def attend(
    query: Float[Array, "R H T d"],
    key: Float[Array, "R H S d"],
    value: Float[Array, "R H S d"],
    mask: Bool[Array, "#R #H #T S"],
    drop: Callable[[Array], Array] = lambda weights: weights,
) -> Float[Array, "R T D"]:
    """Scaled dot-product attention with a float32 softmax; heads are joined again in the result.

    Args:
      query, key, value: projected operands of one compute dtype.
      mask: true where a query may look. A row with no true entry gives a uniform average, never NaN.
      drop: dropout on the weights.
    """
    scale = query.shape[-1] ** -0.5
    scores = jnp.einsum("rhtd,rhsd->rhts", query * jnp.asarray(scale, query.dtype), key)
    scores = jnp.where(mask, scores.astype(jnp.float32), jnp.finfo(jnp.float32).min)
    weights = drop(jax.nn.softmax(scores, axis=-1).astype(value.dtype))
    mixed = jnp.einsum("rhts,rhsd->rhtd", weights, value)
    rows, heads, time, width = mixed.shape
    return mixed.transpose(0, 2, 1, 3).reshape(rows, time, heads * width)


class Attention(nn.Module):
    """Multi-head attention, in pieces, so that keys and values can be computed once and kept.

    Attributes:
      width: model width D.
      heads: number of heads; divides `width`.
      dropout: rate on the attention weights.
      dtype: compute dtype.
      init_std: standard deviation of the initial kernels.
    """

    width: int
    heads: int
    dropout: float
    dtype: Any
    init_std: float

    def setup(self) -> None:
        """Declares the four projections."""
        self.query = dense(self.width, self.dtype, self.init_std)
        self.key = dense(self.width, self.dtype, self.init_std)
        self.value = dense(self.width, self.dtype, self.init_std)
        self.output = dense(self.width, self.dtype, self.init_std)
        self.drop = nn.Dropout(self.dropout)

    def keys_values(self, context: Float[Array, "R S D"]) -> tuple[Float[Array, "R H S d"], Float[Array, "R H S d"]]:
        """The projected keys and values of a context."""
        return split_heads(self.key(context), self.heads), split_heads(self.value(context), self.heads)

    def look(
        self,
        x: Float[Array, "R T D"],
        keys_values: tuple[Float[Array, "R H S d"], Float[Array, "R H S d"]],
        mask: Bool[Array, "#R #H #T S"],
        deterministic: bool = True,
    ) -> Float[Array, "R T D"]:
        """Attends from `x` to keys and values computed before."""
        query = split_heads(self.query(x), self.heads)
        return self.output(attend(query, *keys_values, mask, lambda w: self.drop(w, deterministic=deterministic)))

    def __call__(
        self,
        x: Float[Array, "R T D"],
        context: Float[Array, "R S D"],
        mask: Bool[Array, "#R #H #T S"],
        deterministic: bool = True,
    ) -> Float[Array, "R T D"]:
        """Attends from `x` to `context`."""
        return self.look(x, self.keys_values(context), mask, deterministic)


class FeedForward(nn.Module):
    """Two projections with an activation between: D -> hidden -> D."""

    width: int
    hidden: int
    activation: str
    dropout: float
    dtype: Any
    init_std: float

    @nn.compact
    def __call__(self, x: Float[Array, "R T D"], deterministic: bool = True) -> Float[Array, "R T D"]:
        """Applies the block; `dropout` falls on the activation."""
        x = ACTIVATIONS[self.activation](dense(self.hidden, self.dtype, self.init_std, name="wide")(x))
        x = nn.Dropout(self.dropout)(x, deterministic=deterministic)
        return dense(self.width, self.dtype, self.init_std, name="narrow")(x)


def scan_layers(layer: type[nn.Module], length: int, remat: str, broadcast: int) -> Any:
    """A stack of equal layers as one scanned module, so that compile time does not grow with depth.

    Args:
      layer: module whose `__call__(carry, *context, deterministic)` returns `(carry, None)`.
      length: number of layers; parameters get a leading axis of this length.
      remat: 'none', 'dots' (keep matrix products) or 'full' (recompute the layer in the backward pass).
      broadcast: number of arguments after the carry, all the same for every layer (`deterministic` counted).

    Raises:
      ValueError: unknown remat choice.
    """
    if remat != "none":
        if remat not in REMAT_POLICIES:
            raise ValueError(f"remat={remat!r}: choose one of none, {', '.join(REMAT_POLICIES)}")
        layer = nn.remat(layer, policy=REMAT_POLICIES[remat], prevent_cse=False, static_argnums=(broadcast + 1,))
    return nn.scan(
        layer,
        variable_axes={"params": 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=(nn.broadcast,) * broadcast,
        length=length,
    )
