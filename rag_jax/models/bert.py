"""DEVICE. BERT (Devlin et al. 2019) as an encoder of texts into vectors: one tower of a DPR retriever.

DPR takes the last layer's [CLS] vector without the pooler (Karpukhin et al. 2020, section 3.1); sentence encoders such
as MiniLM average the tokens and normalise.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.models.layers import Attention, FeedForward, Network, layer_norm, scan_layers


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Sizes and settings of one tower.

    Attributes:
      pooling: 'cls' (DPR) or 'mean' (average over tokens, then unit length).
      init_std: standard deviation of initial embeddings and kernels; 0.02 suits widths of 768 and more, a narrow model
        needs about width**-0.5, or its attention starts too flat to learn from.
      dtype: compute dtype; parameters are always float32.
      remat: what to recompute in the backward pass: 'none', 'dots', 'full'.
      unroll: layers in one pass of the loop over them; with all of them there is no loop. The more, the less is copied
        into stacks and out of them, and the longer it takes to compile.
    """

    vocab_size: int = 30522
    width: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072
    max_positions: int = 512
    token_types: int = 2
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-12
    dropout: float = 0.1
    attention_dropout: float = 0.1
    pad_id: int = 0
    pooling: str = "cls"
    init_std: float = 0.02
    dtype: Any = jnp.float32
    remat: str = "none"
    unroll: int = 1


class BertLayer(nn.Module):
    """One post-LayerNorm encoder layer."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "R S D"], mask: Bool[Array, "R 1 1 S"], deterministic: bool
    ) -> tuple[Float[Array, "R S D"], None]:
        """Attention and feed-forward, each added to its input and normalised after."""
        c = self.config
        drop = nn.Dropout(c.dropout)
        attention = Attention(c.width, c.heads, c.attention_dropout, c.dtype, c.init_std, name="attention")
        update = attention(x, x, mask, deterministic)
        x = layer_norm(c.layer_norm_epsilon, c.dtype, "attention_norm")(x + drop(update, deterministic=deterministic))
        update = FeedForward(c.width, c.hidden, c.activation, 0.0, c.dtype, c.init_std, name="feed_forward")(
            x, deterministic
        )
        x = layer_norm(c.layer_norm_epsilon, c.dtype, "output_norm")(x + drop(update, deterministic=deterministic))
        return x, None


class Bert(Network):
    """Token ids to one vector a text."""

    config: BertConfig

    def setup(self) -> None:
        """Declares embeddings and the scanned stack."""
        c = self.config
        init = nn.initializers.normal(c.init_std)
        self.tokens = nn.Embed(c.vocab_size, c.width, dtype=c.dtype, embedding_init=init)
        self.positions = nn.Embed(c.max_positions, c.width, dtype=c.dtype, embedding_init=init)
        self.types = nn.Embed(c.token_types, c.width, dtype=c.dtype, embedding_init=init)
        self.embedding_norm = layer_norm(c.layer_norm_epsilon, c.dtype)
        self.drop = nn.Dropout(c.dropout)
        self.layers = scan_layers(BertLayer, c.layers, c.remat, c.unroll, broadcast=2)(c)

    def hidden_states(
        self, tokens: Int[Array, "R S"], mask: Bool[Array, "R S"], deterministic: bool = True
    ) -> Float[Array, "R S D"]:
        """The last layer's states; every token is of type 0.

        Raises:
          ValueError: the text is longer than the learned positions.
        """
        length = tokens.shape[1]
        if length > self.config.max_positions:
            raise ValueError(f"{length} tokens, but BERT has {self.config.max_positions} positions: cut the texts")
        x = self.tokens(tokens) + self.positions(jnp.arange(length)) + self.types(jnp.zeros((1, 1), jnp.int32))
        x = self.drop(self.embedding_norm(x), deterministic=deterministic)
        x, _ = self.layers(x, mask[:, None, None, :], deterministic)
        return x

    def __call__(
        self, tokens: Int[Array, "R S"], mask: Bool[Array, "R S"] | None = None, deterministic: bool = True
    ) -> Float[Array, "R D"]:
        """Encodes texts.

        Args:
          tokens: ids with special tokens, padded with `config.pad_id`.
          mask: true on real tokens; `tokens != pad_id` when not given.
          deterministic: false turns dropout on (needs the "dropout" key).

        Returns:
          float32 vectors, whatever the compute dtype: document scores are never rounded to bfloat16.
        """
        mask = tokens != self.config.pad_id if mask is None else mask
        x = self.hidden_states(tokens, mask, deterministic).astype(jnp.float32)
        if self.config.pooling == "cls":
            return x[:, 0]
        weight = mask[..., None].astype(jnp.float32)
        mean = (x * weight).sum(1) / jnp.maximum(weight.sum(1), 1e-9)
        return mean / jnp.maximum(jnp.linalg.norm(mean, axis=-1, keepdims=True), 1e-12)
