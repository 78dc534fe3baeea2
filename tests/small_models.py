"""A BART small enough to be decoded by brute force."""

from rag_jax.models.bart import BartConfig

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
)
