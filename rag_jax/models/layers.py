"""DEVICE. The pieces that BERT and BART share: attention, the feed-forward block, the scan over layers.

Both models are post-LayerNorm transformers (Devlin et al. 2019; Lewis et al. 2019). Attention operands lie as
[batch, heads, time, head width]: on CPU that layout doubles the speed of the score product, on TPU it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rag_jax.models.cache_rows import Blocks, partial_attention_to_blocks
from rag_jax.models.softmax import normalise, partial_attention

REMAT_POLICIES: dict[str, Callable[..., bool] | None] = {
    "full": None,  # save nothing inside a layer
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}

LANES = 128  # a TPU pads the fastest axis of an array to a multiple of it


@jax.custom_jvp
def gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The exact, erf form (Hendrycks & Gimpel 2016), which BERT and BART were trained with.

    Its slope is made beside it: so a backward pass keeps the slope alone of what lies between two projections, where it
    would keep three arrays of their width, the widest in the model, for the derivative of the formula.
    """
    return x * _normal_cdf(x)


@gelu.defjvp
def _gelu_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """The value and its directional derivative."""
    (x,), (change,), below = primals, tangents, _normal_cdf(primals[0])
    return x * below, change * (below + x * jnp.exp(-x * x / 2) / (2 * jnp.pi) ** 0.5)


def _normal_cdf(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """How much of a standard normal distribution lies below `x`."""
    return jax.lax.erfc(-x * 0.5**0.5) / 2


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "gelu_new": lambda x: nn.gelu(x, approximate=True),
    "relu": nn.relu,
    "silu": nn.silu,
}


class Network(nn.Module):
    """A module that holds parameters and nothing else, so that `apply` gives what the method gives."""

    if TYPE_CHECKING:  # flax has to allow for a second result: variables that the call may change

        def apply(self, *args: Any, **how: Any) -> Any:
            """See `flax.linen.Module.apply`."""


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


def head_groups(heads: int, width: int, row: int = 0) -> int:
    """Groups G of heads whose keys share a row of a cache, w = width / G values: as many heads as the row holds.

    A TPU pads the fastest axis of an array to LANES. With one head of 64 a row half of every cache would be padding; or
    slots would be made the fastest axis, and writing one of them would cost as much as writing all. Elsewhere heads
    that share a row only multiply each other's zeros.

    Args:
      heads: how many there are.
      width: of all together.
      row: values that a row holds, if they are more than a head's; 0: LANES where programs run on a TPU, else a head's.
    """
    row = row or (LANES if jax.default_backend() == "tpu" else 1)
    together = max(n for n in range(1, heads + 1) if heads % n == 0 and (n == 1 or n * width // heads <= row))
    return heads // together


class Segment(NamedTuple):
    """Something to look at.

    Attributes:
      key: [R,G,S,w] or, as `key_axes` says, [R,G,w,S].
      value: [R,G,S,w].
      mask: bool [R,G,T,S], true where a query may look; any axis but the last may be 1.
      key_axes: 'rgsw' or 'rgws'.
    """

    key: Array
    value: Array
    mask: Array
    key_axes: str = "rgsw"


def attend(
    query: Float[Array, "R G T w"],
    *looked_at: Segment | Blocks,
    drop: Callable[[Array], Array] = lambda weights: weights,
    together: int = 1,
) -> Float[Array, "R T D"]:
    """Scaled dot-product attention with a float32 softmax; heads are joined again in the result.

    Args:
      query: projected, of the keys' and values' compute dtype.
      looked_at: as if all stood in one row. A query that may look nowhere gets a uniform average, never NaN.
      drop: dropout on the weights, [R,G,T,S].
      together: heads in a group, see `head_groups`; w is their joint width. Each gets queries of its own, zero where
        the others' keys stand: products of whole rows, and the zeros add nothing.
    """
    rows, groups, time, wide = query.shape
    query = query * jnp.asarray((wide // together) ** -0.5, query.dtype)
    if together > 1:
        mine = jnp.arange(wide) // (wide // together) == jnp.arange(together)[:, None, None]  # [together, 1, w]
        query = jnp.where(mine, query[:, :, None], 0).reshape(rows, groups, together * time, wide)
    partials = [
        partial_attention(query, part.key, part.value, _repeated(part.mask, together), drop, part.key_axes)
        if isinstance(part, Segment)
        else partial_attention_to_blocks(query, part, together)
        for part in looked_at
    ]
    mixed = normalise(partials).astype(query.dtype)
    if together > 1:
        mixed = jnp.where(mine, mixed.reshape(rows, groups, together, time, wide), 0).sum(2)
    return mixed.transpose(0, 2, 1, 3).reshape(rows, time, groups * wide)


def _repeated(mask: Bool[Array, "#R #G #T S"], together: int) -> Bool[Array, "#R #G _ S"]:
    """The mask for as many queries of each as there are heads in a group."""
    return jnp.tile(mask, (1, 1, together if mask.shape[2] > 1 else 1, 1))


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

    def keys_values(
        self,
        context: Float[Array, "Rows W D"],
        groups: int | None = None,
        apart: Callable[[Array], Array] = lambda rows: rows,
    ) -> tuple[Float[Array, "R G S w"], Float[Array, "R G S w"]]:
        """The projected keys and values of a context: a head each, or so many groups of heads.

        `apart` makes one row of each source where the context's rows hold several, [Rows,W,C] to [R,S,C]: after the
        projection, which so has no padding to project.
        """
        groups = groups or self.heads
        return split_heads(apart(self.key(context)), groups), split_heads(apart(self.value(context)), groups)

    def look(
        self, x: Float[Array, "R T D"], *looked_at: Segment | Blocks, deterministic: bool = True
    ) -> Float[Array, "R T D"]:
        """Attends from `x` to keys and values computed before, grouped or not."""
        groups = looked_at[0].key.shape[1]
        query = split_heads(self.query(x), groups)
        drop = lambda w: self.drop(w, deterministic=deterministic)  # noqa: E731
        return self.output(attend(query, *looked_at, drop=drop, together=self.heads // groups))

    def __call__(
        self,
        x: Float[Array, "R T D"],
        context: Float[Array, "R S D"],
        mask: Bool[Array, "#R #H #T S"],
        deterministic: bool = True,
    ) -> Float[Array, "R T D"]:
        """Attends from `x` to `context`."""
        return self.look(x, Segment(*self.keys_values(context), mask), deterministic=deterministic)


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
        # A TPU's compiler would take the activation into the next product, and compute it again for each of its tiles.
        x = jax.lax.optimization_barrier(x)
        x = nn.Dropout(self.dropout)(x, deterministic=deterministic)
        return dense(self.width, self.dtype, self.init_std, name="narrow")(x)


def scan_layers(layer: type[nn.Module], length: int, remat: str, unroll: int, broadcast: int) -> Any:
    """A stack of equal layers as one scanned module, so that compile time does not grow with depth.

    Args:
      layer: module whose `__call__(carry, *context, deterministic)` returns `(carry, None)`.
      length: number of layers; parameters get a leading axis of this length.
      remat: 'none', 'dots' (keep matrix products) or 'full' (recompute the layer in the backward pass).
      unroll: layers in one pass of the loop, see `BertConfig`.
      broadcast: number of arguments after the carry, all the same for every layer (`deterministic` counted).

    Raises:
      ValueError: unknown remat choice, or one without a loop around each layer: there the compiler finds that a value
        was computed before, and keeps it.
    """
    if remat != "none":
        if unroll > 1:
            raise ValueError(f"remat={remat!r} recomputes in a loop of single layers alone, and unroll={unroll}")
        if remat not in REMAT_POLICIES:
            raise ValueError(f"remat={remat!r}: choose one of none, {', '.join(REMAT_POLICIES)}")
        layer = nn.remat(layer, policy=REMAT_POLICIES[remat], prevent_cse=False, static_argnums=(broadcast + 1,))
    return nn.scan(
        layer,
        variable_axes={"params": 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=(nn.broadcast,) * broadcast,
        length=length,
        unroll=min(unroll, length),
    )
