"""DEVICE. Named sizes of the towers and the generator."""

from __future__ import annotations

from rag_jax.models.bart import BartConfig
from rag_jax.models.bert import BertConfig

TINY_VOCAB = 2048  # the tokenizer of the weights that ship with the package

BERT_PRESETS: dict[str, BertConfig] = {
    "bert-base": BertConfig(),
    "tiny": BertConfig(
        vocab_size=TINY_VOCAB,
        width=128,
        layers=2,
        heads=4,
        hidden=512,
        max_positions=256,
        token_types=1,
        pad_id=1,
        init_std=0.088,
    ),
}

BART_PRESETS: dict[str, BartConfig] = {
    "bart-large": BartConfig(),
    "bart-base": BartConfig(
        width=768,
        encoder_layers=6,
        decoder_layers=6,
        encoder_heads=12,
        decoder_heads=12,
        encoder_hidden=3072,
        decoder_hidden=3072,
    ),
    "tiny": BartConfig(
        vocab_size=TINY_VOCAB,
        width=128,
        encoder_layers=2,
        decoder_layers=2,
        encoder_heads=4,
        decoder_heads=4,
        encoder_hidden=512,
        decoder_hidden=512,
        max_positions=256,
        init_std=0.088,
    ),
}
