"""HOST. What a train step keeps for its backward pass, by arithmetic: for advice and for steps too large to try."""

from __future__ import annotations

import jax.numpy as jnp

from rag_jax.fit.plan import Plan, source_width
from rag_jax.rag.score import LOGITS_BYTES


def pairs(plan: Plan) -> float:
    """(question, passage) pairs that a chip has at a time."""
    return _questions(plan) * plan.places(plan.config.k)


def layer_inputs(plan: Plan) -> float:
    """Bytes of the generator's layers' inputs on one chip. Whatever is recomputed, these are kept."""
    g = plan.arch.generator
    source, target = _tokens(plan)
    return (source * g.encoder_layers + target * g.decoder_layers) * g.width * _size(plan)


def estimated(plan: Plan, remat: str) -> float:
    """About the bytes of all activations on one chip, at their peak.

    Inputs of layers, the layer at work and the logits with their gradient; with 'dots' and 'none' every layer's
    products too. 'none' keeps more than that, which is not counted.
    """
    g = plan.arch.generator
    source, target = _tokens(plan)
    one_layer = source * (2 * g.encoder_hidden + 6 * g.width)
    logits = 2 * min(target * g.table_rows * 4, LOGITS_BYTES)
    products = 0.0
    if remat != "full":
        encoder = source * (5 * g.width + g.encoder_hidden)  # query, key, value, output, both of the feed-forward
        decoder = target * (7 * g.width + g.decoder_hidden) + source * 2 * g.width  # and the cross-attention's
        products = g.encoder_layers * encoder + g.decoder_layers * decoder
    return layer_inputs(plan) + (one_layer + products) * _size(plan) + logits


def _questions(plan: Plan) -> float:
    t = plan.config.train
    return t.batch_size / plan.layout.parts / t.accumulate


def _tokens(plan: Plan) -> tuple[float, float]:
    """Of the encoder and of the decoder. Fusion-in-Decoder writes an answer once, not once for each passage."""
    answers = _questions(plan) if plan.config.variant == "fid" else pairs(plan)
    return pairs(plan) * source_width(plan), answers * plan.config.data.max_target_tokens


def _size(plan: Plan) -> int:
    return jnp.dtype(plan.arch.generator.dtype).itemsize
