"""DEVICE. BART (Lewis et al. 2019), the generator p(y | x, z): encoder, teacher-forced decoder, tied head.

The decoder one token at a time, with its explicit cache, is `rag_jax.models.bart_step`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.models.cache_rows import Blocks
from rag_jax.models.layers import Attention, FeedForward, Network, Segment, head_groups, layer_norm, scan_layers
from rag_jax.models.packing import Packing, pack, packing, unpack

POSITION_OFFSET = 2  # BART's learned positions start at row 2: rows 0 and 1 are a leftover of fairseq's padding


@dataclasses.dataclass(frozen=True)
class BartConfig:
    """Sizes and settings of the generator.

    Attributes:
      vocab_multiple: the embedding table is padded to a multiple of this many rows (128 suits a TPU's lanes and sharded
        tables); padded entries never get probability.
      decoder_start_id: the token that the decoder starts from, in training and in decoding alike.
      has_logits_bias: hold `final_logits_bias`; released BARTs have it at zero, so it is off unless a checkpoint needs
        it.
      init_std: standard deviation of initial embeddings and kernels; 0.02 suits widths of 768 and more, a narrow model
        needs about width**-0.5, or its attention starts too flat to learn from.
      dtype: compute dtype; parameters and log-probabilities are always float32.
      remat: what to recompute in the backward pass: 'none', 'dots', 'full'.
      unroll: layers in one pass of the loop over them; with all of them there is no loop. The more, the less is copied
        into stacks and out of them, and the longer it takes to compile.
      cache_row: how many values of the decoder's caches heads may share, see `head_groups`; 0: as suits the backend. A
        program that is compiled for chips that are not there has to name it.
    """

    vocab_size: int = 50265
    vocab_multiple: int = 1
    width: int = 1024
    encoder_layers: int = 12
    decoder_layers: int = 12
    encoder_heads: int = 16
    decoder_heads: int = 16
    encoder_hidden: int = 4096
    decoder_hidden: int = 4096
    max_positions: int = 1024
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-5
    scale_embedding: bool = False
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    bos_id: int = 0
    pad_id: int = 1
    eos_id: int = 2
    decoder_start_id: int = 2
    has_logits_bias: bool = False
    init_std: float = 0.02
    dtype: Any = jnp.float32
    remat: str = "none"
    unroll: int = 1
    cache_row: int = 0

    @property
    def cache_groups(self) -> int:
        """Groups of heads in the decoder's caches."""
        return head_groups(self.decoder_heads, self.width, self.cache_row)

    @property
    def source_key_axes(self) -> str:
        """How the source's keys lie while tokens are decoded: as a score product reads them, many times, at least cost.

        That is with time last on a TPU, where heads share rows, and as they are made elsewhere.
        """
        return "rgws" if self.cache_groups < self.decoder_heads else "rgsw"

    @property
    def table_rows(self) -> int:
        """Rows of the embedding table, padding included."""
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple


class EncoderLayer(nn.Module):
    """One post-LayerNorm encoder layer."""

    config: BartConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "R S D"], mask: Bool[Array, "R 1 #S S"], deterministic: bool
    ) -> tuple[Float[Array, "R S D"], None]:
        """Attention and feed-forward, each added to its input and normalised after."""
        c = self.config
        drop = nn.Dropout(c.dropout)
        attention = Attention(c.width, c.encoder_heads, c.attention_dropout, c.dtype, c.init_std, name="attention")
        update = attention(x, x, mask, deterministic)
        x = layer_norm(c.layer_norm_epsilon, c.dtype, "attention_norm")(x + drop(update, deterministic=deterministic))
        feed_forward = FeedForward(
            c.width, c.encoder_hidden, c.activation, c.activation_dropout, c.dtype, c.init_std, name="feed_forward"
        )
        update = feed_forward(x, deterministic)
        x = layer_norm(c.layer_norm_epsilon, c.dtype, "output_norm")(x + drop(update, deterministic=deterministic))
        return x, None


class DecoderLayer(Network):
    """One post-LayerNorm decoder layer: self-attention, attention to the source, feed-forward.

    The same parameters serve a whole target at once (`__call__`) or one new token against caches (`step`).
    """

    config: BartConfig

    def setup(self) -> None:
        """Declares the parts."""
        c = self.config
        self.attention = Attention(c.width, c.decoder_heads, c.attention_dropout, c.dtype, c.init_std)
        self.attention_norm = layer_norm(c.layer_norm_epsilon, c.dtype)
        self.cross_attention = Attention(c.width, c.decoder_heads, c.attention_dropout, c.dtype, c.init_std)
        self.cross_attention_norm = layer_norm(c.layer_norm_epsilon, c.dtype)
        self.feed_forward = FeedForward(
            c.width, c.decoder_hidden, c.activation, c.activation_dropout, c.dtype, c.init_std
        )
        self.output_norm = layer_norm(c.layer_norm_epsilon, c.dtype)
        self.drop = nn.Dropout(c.dropout)

    def combine(
        self, x: Float[Array, "R T D"], own: tuple[Segment | Blocks, ...], cross: Segment, deterministic: bool
    ) -> Float[Array, "R T D"]:
        """The layer, given what both attentions look at."""
        update = self.attention.look(x, *own, deterministic=deterministic)
        x = self.attention_norm(x + self.drop(update, deterministic=deterministic))
        update = self.cross_attention.look(x, cross, deterministic=deterministic)
        x = self.cross_attention_norm(x + self.drop(update, deterministic=deterministic))
        update = self.feed_forward(x, deterministic)
        return self.output_norm(x + self.drop(update, deterministic=deterministic))

    def __call__(
        self,
        x: Float[Array, "R T D"],
        own_mask: Bool[Array, "#R 1 T T"],
        encoded: Float[Array, "Rows W D"],
        cross_mask: Bool[Array, "R 1 1 C"],
        packing: Packing | None,
        deterministic: bool,
    ) -> tuple[Float[Array, "R T D"], None]:
        """A whole target, teacher-forced; `encoded` may be packed, or have several rows for each of `x`."""
        own = Segment(*self.attention.keys_values(x), own_mask)
        heads, apart = self.config.decoder_heads, _apart(packing, cross_mask.shape[-1])
        cross = Segment(*self.cross_attention.keys_values(encoded, heads, apart), cross_mask)
        return self.combine(x, (own,), cross, deterministic), None

    def cross_keys_values(
        self, encoded: Float[Array, "Rows W D"], packing: Packing | None, width: int
    ) -> tuple[Array, Array]:
        """Keys (`source_key_axes`) and values [R,G,C,w] of the sources, C = `width`: once for all steps and beams."""
        key, value = self.cross_attention.keys_values(encoded, self.config.cache_groups, _apart(packing, width))
        return key.swapaxes(2, 3) if self.config.source_key_axes == "rgws" else key, value

    def own_keys_values(self, x: Float[Array, "R N D"]) -> tuple[Array, Array]:
        """Keys and values of new tokens, [R,G,N,w] each, to be written into the cache."""
        return self.attention.keys_values(x, self.config.cache_groups)


class Bart(Network):
    """The sequence-to-sequence model. `encode`, `decode` and `logits` are used apart."""

    config: BartConfig

    def setup(self) -> None:
        """Declares the shared embedding and both scanned stacks."""
        c = self.config
        init = nn.initializers.normal(c.init_std)
        rows = c.max_positions + POSITION_OFFSET
        self.tokens = nn.Embed(c.table_rows, c.width, dtype=c.dtype, embedding_init=init)
        self.encoder_positions = nn.Embed(rows, c.width, dtype=c.dtype, embedding_init=init)
        self.decoder_positions = nn.Embed(rows, c.width, dtype=c.dtype, embedding_init=init)
        self.encoder_embedding_norm = layer_norm(c.layer_norm_epsilon, c.dtype)
        self.decoder_embedding_norm = layer_norm(c.layer_norm_epsilon, c.dtype)
        self.drop = nn.Dropout(c.dropout)
        self.encoder_layers = scan_layers(EncoderLayer, c.encoder_layers, c.remat, c.unroll, broadcast=2)(c)
        self.decoder_layers = scan_layers(DecoderLayer, c.decoder_layers, c.remat, c.unroll, broadcast=5)(c)
        if c.has_logits_bias:
            self.final_logits_bias = self.param("final_logits_bias", nn.initializers.zeros, (c.table_rows,))

    def embed(
        self, tokens: Int[Array, "R T"], positions: Int[Array, "#R #T"], side: str, deterministic: bool = True
    ) -> Float[Array, "R T D"]:
        """Token and position embeddings, normalised. `side` is 'encoder' or 'decoder'."""
        scale = self.config.width**0.5 if self.config.scale_embedding else 1.0
        table, norm = (
            (self.encoder_positions, self.encoder_embedding_norm)
            if side == "encoder"
            else (self.decoder_positions, self.decoder_embedding_norm)
        )
        x = norm(self.tokens(tokens) * scale + table(positions + POSITION_OFFSET))
        return self.drop(x, deterministic=deterministic)

    def check_length(self, length: int, what: str) -> None:
        """Refuses texts past the learned positions, where a lookup would silently give NaN.

        Raises:
          ValueError: such a text, with its tokens and the positions that there are.
        """
        if length > self.config.max_positions:
            most = self.config.max_positions
            raise ValueError(f"{what}: {length} tokens, but BART has {most} positions: cut the text")

    def encode(
        self,
        tokens: Int[Array, "R S"],
        mask: Bool[Array, "R S"] | Bool[Array, "R S S"],
        deterministic: bool = True,
        places: Int[Array, "R S"] | None = None,
    ) -> Float[Array, "R S D"]:
        """Encodes sources, or rows that hold several.

        Args:
          tokens: question and passage joined, see `rag_jax.rag.source`.
          mask: true on real tokens; or who may look at whom, where rows are packed.
          deterministic: false turns dropout on (needs the "dropout" key).
          places: each token's place in its source, where rows are packed.

        Raises:
          ValueError: longer than the learned positions.
        """
        self.check_length(tokens.shape[1], "source")
        places = jnp.arange(tokens.shape[1])[None] if places is None else places
        x = self.embed(tokens, places, "encoder", deterministic)
        x, _ = self.encoder_layers(x, mask[:, None] if mask.ndim == 3 else mask[:, None, None], deterministic)
        return x

    def encode_sources(
        self,
        tokens: Int[Array, "R S"],
        mask: Bool[Array, "R S"],
        slots: Int[Array, "G P W"] | None,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "Rows W D"], Packing | None]:
        """`encode`, in packed rows where `slots` says how, and how to take the result apart; see `Packing`."""
        if slots is None:
            return self.encode(tokens, mask, deterministic), None
        packed = packing(slots, *tokens.shape)
        rows = pack(tokens, packed, self.config.pad_id)
        return self.encode(rows, packed.mask, deterministic, packed.places), packed

    def decode(
        self,
        inputs: Int[Array, "R T"],
        encoded: Float[Array, "Rows W D"],
        source_mask: Bool[Array, "R C"],
        deterministic: bool = True,
        packing: Packing | None = None,
    ) -> Float[Array, "R T D"]:
        """Teacher-forced decoding: state t has seen inputs 0..t and predicts target t.

        Args:
          inputs: targets shifted right behind `decoder_start_id` (`shift_right`). Padding needs no mask: it stands at
            the end, where causal attention cannot see it.
          encoded: from `encode`, or from `encode_sources` with its packing.
          source_mask: true on real source tokens. Where C is n sources wide, each row looks at n of them.
          deterministic: false turns dropout on.
          packing: how `encoded` is packed; None: it is not.

        Raises:
          ValueError: longer than the learned positions.
        """
        length = inputs.shape[1]
        self.check_length(length, "target")
        causal = jnp.tril(jnp.ones((1, 1, length, length), bool))
        x = self.embed(inputs, jnp.arange(length)[None], "decoder", deterministic)
        x, _ = self.decoder_layers(x, causal, encoded, source_mask[:, None, None, :], packing, deterministic)
        return x

    def logits(self, states: Float[Array, "*axes D"]) -> Float[Array, "*axes V"]:
        """Scores over the (padded) vocabulary by the tied embedding; padded entries are at the float minimum."""
        scores = self.tokens.attend(states).astype(jnp.float32)
        return self._of_words(scores, jnp.arange(self.config.table_rows))

    def logits_by_token(
        self, states: Float[Array, "*axes D"], first: int = 0, count: int | None = None
    ) -> Float[Array, "V *axes"]:
        """`logits` with the vocabulary first: for a few states only, where the table is the larger side of the product.

        A product takes its first operand as it lies and repacks the second, which here is the small one. Of `count`
        tokens from `first` on; None: of all that follow.
        """
        stop = self.config.table_rows if count is None else min(first + count, self.config.table_rows)
        table = self.tokens.embedding[first:stop].astype(states.dtype)
        scores = jnp.einsum("vd,...d->v...", table, states, preferred_element_type=jnp.float32)
        tokens = jnp.arange(first, stop).reshape(-1, *(1,) * (scores.ndim - 1))
        return self._of_words(scores, tokens, lambda bias: bias[first:stop].reshape(tokens.shape))

    def token_logits(self, states: Float[Array, "*axes D"], tokens: Int[Array, "*axes"]) -> Float[Array, "*axes"]:
        """What `logits` has at one token for each state, without computing the others."""
        chosen = self.tokens(tokens)
        scores = jnp.einsum("...d,...d->...", states.astype(chosen.dtype), chosen, preferred_element_type=jnp.float32)
        return self._of_words(scores, tokens, lambda bias: bias[tokens])

    def _of_words(
        self,
        scores: Float[Array, "..."],
        tokens: Int[Array, "..."],
        aligned: Callable[[Array], Array] = lambda bias: bias,
    ) -> Float[Array, "..."]:
        """Scores of tokens with their `final_logits_bias`, which `aligned` brings into their shape; padding masked."""
        c = self.config
        if c.has_logits_bias:
            # A constant at its source (torch keeps it as a buffer): it must not be trained.
            scores = scores + aligned(jax.lax.stop_gradient(self.final_logits_bias))
        if c.table_rows > c.vocab_size:
            scores = jnp.where(tokens < c.vocab_size, scores, jnp.finfo(jnp.float32).min)
        return scores

    def __call__(
        self,
        source: Int[Array, "R S"],
        source_mask: Bool[Array, "R S"],
        inputs: Int[Array, "R T"],
        deterministic: bool = True,
        slots: Int[Array, "G P W"] | None = None,
    ) -> Float[Array, "R T V"]:
        """Encoder, decoder and head in one: float32 logits. `slots` pack the sources, see `Packing`."""
        return self.logits(self.states(source, source_mask, inputs, deterministic, slots))

    def states(
        self,
        source: Int[Array, "R S"],
        source_mask: Bool[Array, "R S"],
        inputs: Int[Array, "A T"],
        deterministic: bool = True,
        slots: Int[Array, "G P W"] | None = None,
    ) -> Float[Array, "A T D"]:
        """The same without the head: the decoder's states, from which `logits` follow.

        With fewer answers than sources each answer looks at R / A sources in a row, as if they were one.
        """
        encoded, packed = self.encode_sources(source, source_mask, slots, deterministic)
        return self.decode(inputs, encoded, source_mask.reshape(len(inputs), -1), deterministic, packed)


def _apart(packed: Packing | None, width: int) -> Callable[[Array], Array]:
    """What makes rows of `width`, one for each decoder, of a context's: it takes them apart or joins them, or both."""
    if packed is None:
        return lambda rows: rows.reshape(-1, width, rows.shape[-1])
    return functools.partial(unpack, packing=packed, width=width)


def shift_right(targets: Int[Array, "*rows T"], start_id: int) -> Int[Array, "*rows T"]:
    """The decoder's inputs for these targets: the start token, then all targets but the last."""
    start = jnp.full((*targets.shape[:-1], 1), start_id, targets.dtype)
    return jnp.concatenate([start, targets[..., :-1]], axis=-1)
