"""BARTs small enough to be decoded by brute force."""

import dataclasses

import jax
import jax.numpy as jnp

from rag_jax.models.bart import Bart, BartConfig
from rag_jax.models.layers import LANES

SMALL_BART = BartConfig(
    vocab_size=21,
    vocab_multiple=8,
    width=16,
    encoder_layers=1,
    decoder_layers=2,
    encoder_heads=2,
    decoder_heads=2,
    encoder_hidden=32,
    decoder_hidden=32,
    max_positions=16,
    dropout=0.0,
    has_logits_bias=True,
    init_std=0.5,
    cache_row=LANES,  # as on a TPU: both heads share the rows of the caches
)

ONE_LAYER_BART = dataclasses.replace(
    SMALL_BART,
    decoder_layers=1,
    encoder_hidden=16,
    decoder_hidden=16,
    dropout=BartConfig.dropout,
    has_logits_bias=BartConfig.has_logits_bias,
)


def small_bart_params():
    """Random parameters of SMALL_BART: some answers end early and some not at all, and no token rules."""
    ids, real = jnp.ones((1, 4), jnp.int32), jnp.ones((1, 4), bool)
    made = jax.jit(Bart(SMALL_BART).init)(jax.random.key(3), ids, real, ids)["params"]
    bias = jax.random.normal(jax.random.key(4), (SMALL_BART.table_rows,)) * 3
    return made | {"final_logits_bias": bias.at[SMALL_BART.eos_id].set(4.0)}
