"""HOST. config.json of a Hugging Face checkpoint <-> BertConfig and BartConfig, every telling setting checked.

A setting that the models here do not have is refused by name: no checkpoint is computed with another's arithmetic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rag_jax.models.bart import BartConfig
from rag_jax.models.bert import BertConfig
from rag_jax.models.hf_stored import CheckpointError

# Other names of the same function.
ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}

# Our field: (its name in config.json, the value when config.json leaves it out).
BERT_FIELDS = {
    "vocab_size": ("vocab_size", 30522),
    "width": ("hidden_size", 768),
    "layers": ("num_hidden_layers", 12),
    "heads": ("num_attention_heads", 12),
    "hidden": ("intermediate_size", 3072),
    "max_positions": ("max_position_embeddings", 512),
    "token_types": ("type_vocab_size", 2),
    "activation": ("hidden_act", "gelu"),
    "layer_norm_epsilon": ("layer_norm_eps", 1e-12),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "pad_id": ("pad_token_id", 0),
    "init_std": ("initializer_range", 0.02),
}
BART_FIELDS = {
    "vocab_size": ("vocab_size", 50265),
    "width": ("d_model", 1024),
    "encoder_layers": ("encoder_layers", 12),
    "decoder_layers": ("decoder_layers", 12),
    "encoder_heads": ("encoder_attention_heads", 16),
    "decoder_heads": ("decoder_attention_heads", 16),
    "encoder_hidden": ("encoder_ffn_dim", 4096),
    "decoder_hidden": ("decoder_ffn_dim", 4096),
    "max_positions": ("max_position_embeddings", 1024),
    "activation": ("activation_function", "gelu"),
    "scale_embedding": ("scale_embedding", False),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.0),
    "activation_dropout": ("activation_dropout", 0.0),
    "bos_id": ("bos_token_id", 0),
    "pad_id": ("pad_token_id", 1),
    "eos_id": ("eos_token_id", 2),
    "decoder_start_id": ("decoder_start_token_id", 2),
    "init_std": ("init_std", 0.02),
}

# Settings that must have this value, or be left out: the models here know no other.
BERT_ONLY = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "projection_dim": 0,  # DPR with a projection behind [CLS]
}
BART_ONLY = {
    "normalize_before": False,  # pre-LayerNorm: mBART, Blenderbot
    "normalize_embedding": True,
    "add_final_layer_norm": False,
    "static_position_embeddings": False,
    "extra_pos_embeddings": 2,
    "add_bias_logits": False,
}


def _check_kind(config: Mapping[str, Any], kinds: tuple[str, ...], where: str) -> None:
    kind = config.get("model_type")
    if kind not in kinds:
        classes = ", ".join(config.get("architectures") or []) or "no class named"
        raise CheckpointError(f"{where}: model_type is {kind!r} ({classes}), not {' or '.join(kinds)}")


def _fields(
    config: Mapping[str, Any], table: Mapping[str, tuple[str, Any]], only: Mapping[str, Any], where: str
) -> dict:
    """Our fields from config.json's; every fault is in the one message."""
    faults = [
        f"{name} is {config[name]!r}, only {wanted!r} is implemented"
        for name, wanted in only.items()
        if config.get(name) not in (None, wanted)
    ]
    fields: dict[str, Any] = {}
    for ours, (theirs, default) in table.items():
        value: Any = config.get(theirs)
        value = default if value is None else value
        if type(default) is float and type(value) is int:
            value = float(value)
        if type(value) is not type(default):
            faults.append(f"{theirs} is {value!r}, not {type(default).__name__}")
        elif type(value) is int and value < (0 if ours.endswith("_id") else 1):
            faults.append(f"{theirs} is {value}")
        elif ours == "activation" and value not in ACTIVATION_NAMES:
            faults.append(f"{theirs} is {value!r}, implemented are {', '.join(ACTIVATION_NAMES)}")
        fields[ours] = ACTIVATION_NAMES.get(value, value) if ours == "activation" else value
    if not faults:
        heads = [name for name in fields if name.endswith("heads") and fields["width"] % fields[name]]
        faults += [
            f"{table[name][0]}={fields[name]} does not divide {table['width'][0]}={fields['width']}" for name in heads
        ]
        ids = [name for name in fields if name.endswith("_id") and fields[name] >= fields["vocab_size"]]
        faults += [
            f"{table[name][0]} is {fields[name]}, outside the vocabulary of {fields['vocab_size']}" for name in ids
        ]
    if faults:
        raise CheckpointError(f"{where}: these settings cannot be used:\n  " + "\n  ".join(faults))
    return fields


def bert_config(config: Mapping[str, Any], where: str, pooling: str = "cls") -> BertConfig:
    """The tower that a BERT's or a DPR encoder's config.json describes.

    Args:
      config: its content.
      where: the file, for messages.
      pooling: 'cls' or 'mean', which config.json does not tell.

    Raises:
      CheckpointError: another kind of model, or settings that the tower does not have; all are listed.
    """
    _check_kind(config, ("bert", "dpr"), where)
    return BertConfig(**_fields(config, BERT_FIELDS, BERT_ONLY, where), pooling=pooling)


def bart_config(config: Mapping[str, Any], where: str, vocab_multiple: int = 1) -> BartConfig:
    """The generator that a BART's config.json describes; `has_logits_bias` is for the weights to tell.

    Raises:
      CheckpointError: another kind of model, or settings that the generator does not have; all are listed.
    """
    _check_kind(config, ("bart",), where)
    return BartConfig(**_fields(config, BART_FIELDS, BART_ONLY, where), vocab_multiple=vocab_multiple)


def to_json(config: BertConfig | BartConfig, model_type: str, before: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """config.json for an export: what the checkpoint had `before`, with our fields written over it.

    Args:
      config: sizes and settings as they are now.
      model_type: 'bert', 'dpr' or 'bart'.
      before: config.json that the weights came with; empty when they were born here.
      dtype: the type that weights are stored in.

    Raises:
      CheckpointError: a setting that config.json has no place for.
    """
    table = BART_FIELDS if isinstance(config, BartConfig) else BERT_FIELDS
    result = dict(before)
    for ours, (theirs, _) in table.items():
        value = getattr(config, ours)
        alias = ours == "activation" and ACTIVATION_NAMES.get(before.get(theirs, "")) == value
        result[theirs] = before[theirs] if alias else value
    result["model_type"] = model_type
    if model_type == "dpr":
        result["projection_dim"] = 0
    if isinstance(config, BartConfig):
        if config.layer_norm_epsilon != 1e-5:
            raise CheckpointError(
                f"layer_norm_epsilon={config.layer_norm_epsilon}: BART's is 1e-5 wherever it is loaded"
            )
        result |= {"is_encoder_decoder": True, "tie_word_embeddings": True}
    # Both names of one setting are in use; a new one would contradict the old.
    result["dtype" if "dtype" in before else "torch_dtype"] = dtype
    return result


def same_sizes(one: BertConfig | BartConfig, other: BertConfig | BartConfig) -> bool:
    """Whether two configurations describe one network, apart from dropout, initialisation and how it is run."""
    free = {f.name: getattr(one, f.name) for f in dataclasses.fields(one) if "dropout" in f.name}
    free |= {name: getattr(one, name) for name in ("init_std", "dtype", "remat", "unroll")}
    return type(one) is type(other) and dataclasses.replace(other, **free) == one
