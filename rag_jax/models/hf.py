"""HOST. Checkpoints of Hugging Face's BERT, DPR, BART and RAG in and out; torch is not needed, and no file is executed.

    config, params, extras = load_bert("dpr-question_encoder-single-nq-base")
    rag = load_rag("rag-token-nq", variant="token")
    save_rag("trained", dataclasses.replace(rag, params=params))

Parameters are float32 here whatever the file holds. What a checkpoint has beside them (its whole config.json, BERT's
pooler) travels in `Extras`, so that an export is bit-equal to what came in.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from rag_jax.models.bart import BartConfig
from rag_jax.models.bert import BertConfig
from rag_jax.models.hf_config import bart_config, bert_config, to_json
from rag_jax.models.hf_files import read_json, read_tensors, tokenizer_files, write_checkpoint
from rag_jax.models.hf_parts import (
    BERT_LAYOUTS,
    Extras,
    Params,
    bart_tensors,
    bert_tensors,
    read_bart,
    read_bert,
    sentence_files,
    sentence_pooling,
)
from rag_jax.models.hf_stored import CheckpointError, storage_dtype

RAG_CLASSES = {"sequence": "RagSequenceForGeneration", "token": "RagTokenForGeneration"}


@dataclasses.dataclass(frozen=True)
class RagCheckpoint:
    """A question encoder and a generator that were trained together.

    Attributes:
      variant: 'sequence' or 'token': the marginal that they were trained with.
      question_encoder, generator: sizes.
      params: {'question_encoder', 'generator'}.
      extras: of the two parts, by the same names.
      config: RAG's own config.json (n_docs, separators, max_combined_length, ...).
      side: further JSON files.
    """

    variant: str
    question_encoder: BertConfig
    generator: BartConfig
    params: Mapping[str, Params]
    extras: Mapping[str, Extras] = dataclasses.field(default_factory=dict)
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    side: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def variant_name(variant: str) -> str:
    """What people call a variant."""
    return "Fusion-in-Decoder" if variant == "fid" else f"RAG-{variant.capitalize()}"


def other_variant(where: str | os.PathLike[str], stored: str, wanted: str) -> str:
    """The message for weights of one variant that are asked for as another."""
    trained, asked = variant_name(stored), variant_name(wanted)
    return f"{where}: the weights were trained as {trained}, asked for as {asked}; force it to use them all the same"


def _side_files(directory: pathlib.Path) -> dict[str, Any]:
    name = "generation_config.json"
    return {name: read_json(directory / name)} if (directory / name).is_file() else {}


def load_bert(directory: str | os.PathLike[str], *, pooling: str | None = None) -> tuple[BertConfig, Params, Extras]:
    """Reads a BertModel (or a BERT with pretraining heads), DPRQuestionEncoder or DPRContextEncoder.

    Args:
      directory: with config.json and weights as safetensors or torch's .bin, whole or in shards.
      pooling: 'cls' or 'mean'; None = as sentence-transformers' files in the directory say, without them 'cls'.

    Raises:
      CheckpointError: another kind of model, settings that are not implemented, damaged or missing files, or tensors
        that are missing, not wanted or ill-shaped; all are listed.
    """
    directory = pathlib.Path(directory)
    json = read_json(directory / "config.json")
    bert_config(json, str(directory / "config.json"))  # the kind of model first: files of another would only confuse
    pooling = sentence_pooling(directory) if pooling is None else pooling
    return read_bert(read_tensors(directory), json, str(directory), pooling)


def load_bart(directory: str | os.PathLike[str], *, vocab_multiple: int = 1) -> tuple[BartConfig, Params, Extras]:
    """Reads a BartForConditionalGeneration, or a BartModel, whose head is the tied table.

    Args:
      directory: as for `load_bert`.
      vocab_multiple: the table gets zero rows up to a multiple of this; an export cuts them off again.

    Raises:
      CheckpointError: as `load_bert`; also an untied head.
    """
    directory = pathlib.Path(directory)
    json = read_json(directory / "config.json")
    bart_config(json, str(directory / "config.json"))
    config, params, extras = read_bart(read_tensors(directory), json, str(directory), vocab_multiple)
    return config, params, dataclasses.replace(extras, side=_side_files(directory))


def load_rag(
    directory: str | os.PathLike[str], variant: str | None = None, force: bool = False, *, vocab_multiple: int = 1
) -> RagCheckpoint:
    """Reads a RagSequenceForGeneration or RagTokenForGeneration, or a bare RagModel.

    Args:
      directory: as for `load_bert`.
      variant: 'sequence' or 'token', what the caller is about to compute; None = as stored.
      force: take the weights of the other variant all the same.
      vocab_multiple: see `load_bart`.

    Raises:
      CheckpointError: as `load_bert`; also weights of the other variant, or of none known when `variant` is None.
      ValueError: an unknown variant.
    """
    if variant not in (None, *RAG_CLASSES):
        raise ValueError(f"variant={variant!r}: choose one of {', '.join(RAG_CLASSES)}")
    directory = pathlib.Path(directory)
    json = read_json(directory / "config.json")
    where = str(directory / "config.json")
    if json.get("model_type") != "rag":
        raise CheckpointError(f"{where}: model_type is {json.get('model_type')!r}, not rag")
    stored = next((name for name, kind in RAG_CLASSES.items() if kind in (json.get("architectures") or [])), None)
    chosen = variant or stored
    if chosen is None:
        raise CheckpointError(f"{where}: names neither {' nor '.join(RAG_CLASSES.values())}; say which variant it is")
    if stored and variant and stored != variant and not force:
        raise CheckpointError(other_variant(where, stored, variant))
    parts = {part: json.get(part) or {} for part in ("question_encoder", "generator")}
    bert_config(parts["question_encoder"], f"{where}, question_encoder")
    bart_config(parts["generator"], f"{where}, generator")
    tensors = {name.removeprefix("rag."): tensor for name, tensor in read_tensors(directory).items()}
    split = {
        part: {n.removeprefix(f"{part}."): t for n, t in tensors.items() if n.startswith(f"{part}.")} for part in parts
    }
    rest = [name for name in tensors if not name.startswith(tuple(f"{part}." for part in parts))]
    if rest:
        raise CheckpointError(f"{directory}: of neither part: {', '.join(sorted(rest))}")
    asked, question_encoder, asked_extras = read_bert(
        split["question_encoder"], parts["question_encoder"], f"{directory}, question_encoder", "cls"
    )
    written, generator, written_extras = read_bart(
        split["generator"], parts["generator"], f"{directory}, generator", vocab_multiple
    )
    return RagCheckpoint(
        chosen,
        asked,
        written,
        {"question_encoder": question_encoder, "generator": generator},
        {"question_encoder": asked_extras, "generator": written_extras},
        {name: value for name, value in json.items() if name not in parts},
        _side_files(directory),
    )


def save_bert(
    directory: str | os.PathLike[str],
    config: BertConfig,
    params: Params,
    extras: Extras | None = None,
    *,
    layout: str = "bert",
    dtype: str = "float32",
    kind: str = "safetensors",
    max_shard_bytes: int | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
) -> None:
    """Writes a tower that transformers loads.

    Args:
      directory: must not exist yet, or be empty.
      config: the tower's sizes.
      params: its parameters.
      extras: from `load_bert`; without it config.json holds what the tower needs and BertModel's pooler is zero.
      layout: 'bert' (BertModel), 'dpr_question' or 'dpr_context'.
      dtype: storage type: 'float32', 'float16' or 'bfloat16'.
      kind: 'safetensors' or 'bin' (torch's format).
      max_shard_bytes: cut the weights into files of at most this size.
      tokenizer: a directory whose tokenizer files are copied.

    Raises:
      CheckpointError: parameters that are not of these sizes, a tower that the layout cannot hold, a directory in use.
      ValueError: unknown layout, dtype or kind.
    """
    if layout not in BERT_LAYOUTS:
        raise ValueError(f"layout={layout!r}: choose one of {', '.join(BERT_LAYOUTS)}")
    extras = extras or Extras()
    model_type, architecture, _ = BERT_LAYOUTS[layout]
    write_checkpoint(
        directory,
        bert_tensors(config, params, extras, layout),
        to_json(config, model_type, extras.config, dtype) | {"architectures": [architecture]},
        dtype=storage_dtype(dtype),
        kind=kind,
        max_shard_bytes=max_shard_bytes,
        files=sentence_files(config) | (tokenizer_files(tokenizer) if tokenizer else {}),
    )


def save_bart(
    directory: str | os.PathLike[str],
    config: BartConfig,
    params: Params,
    extras: Extras | None = None,
    *,
    dtype: str = "float32",
    kind: str = "safetensors",
    max_shard_bytes: int | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
) -> None:
    """Writes a generator as BartForConditionalGeneration, without padded rows. Arguments as `save_bert`."""
    extras = extras or Extras()
    write_checkpoint(
        directory,
        bart_tensors(config, params),
        to_json(config, "bart", extras.config, dtype) | {"architectures": ["BartForConditionalGeneration"]},
        dtype=storage_dtype(dtype),
        kind=kind,
        max_shard_bytes=max_shard_bytes,
        files=dict(extras.side) | (tokenizer_files(tokenizer) if tokenizer else {}),
    )


def save_rag(
    directory: str | os.PathLike[str],
    checkpoint: RagCheckpoint,
    *,
    dtype: str = "float32",
    kind: str = "safetensors",
    max_shard_bytes: int | None = None,
    tokenizers: Mapping[str, str | os.PathLike[str]] | None = None,
) -> None:
    """Writes a RagSequenceForGeneration or RagTokenForGeneration, as the checkpoint's variant says.

    Args:
      directory: must not exist yet, or be empty.
      checkpoint: of `load_rag`, or made from parts that were trained here.
      tokenizers: {'question_encoder', 'generator'} -> directory whose tokenizer files are copied, into the folders in
        which RagTokenizer looks for them.
      dtype, kind, max_shard_bytes: as for `save_bert`.

    Raises:
      CheckpointError, ValueError: as `save_bert`.
    """
    c = checkpoint
    if c.variant not in RAG_CLASSES:
        raise ValueError(f"variant={c.variant!r}: choose one of {', '.join(RAG_CLASSES)}")
    asked, written = (c.extras.get(part, Extras()) for part in ("question_encoder", "generator"))
    # A plain BertModel in front would need its pooler; as DPR it is the same vector without one.
    tower = bert_tensors(c.question_encoder, c.params["question_encoder"], asked, "dpr_question")
    tensors = {f"rag.question_encoder.{name}": value for name, value in tower.items()}
    tensors |= {f"rag.generator.{name}": v for name, v in bart_tensors(c.generator, c.params["generator"]).items()}
    json = {"model_type": "rag", "is_encoder_decoder": True, "retrieval_vector_size": c.question_encoder.width}
    json = json | dict(c.config) | {"architectures": [RAG_CLASSES[c.variant]]}
    json["dtype" if "dtype" in c.config else "torch_dtype"] = dtype
    json["question_encoder"] = to_json(c.question_encoder, "dpr", asked.config, dtype)
    json["generator"] = to_json(c.generator, "bart", written.config, dtype)
    files = dict(c.side)
    for part, place in (tokenizers or {}).items():
        files |= tokenizer_files(place, f"{part}_tokenizer")
    write_checkpoint(
        directory, tensors, json, dtype=storage_dtype(dtype), kind=kind, max_shard_bytes=max_shard_bytes, files=files
    )
