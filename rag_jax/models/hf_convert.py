"""HOST. Between checkpoints of Hugging Face and this project's weights directories, in both directions.

A weights directory holds `question_encoder`, `passage_encoder` and `generator` as safetensors (any of them), each with
its tokenizer's files in `<part>_tokenizer/`, and `model.json`: the sizes, the names of the presets that have them, the
variant that was trained, and what an export needs in order to give back what came in.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file, save_file

from rag_jax.models.bart import BartConfig
from rag_jax.models.bert import BertConfig
from rag_jax.models.hf import (
    RAG_CLASSES,
    RagCheckpoint,
    load_bart,
    load_bert,
    load_rag,
    other_variant,
    save_bart,
    save_bert,
    save_rag,
)
from rag_jax.models.hf_config import same_sizes
from rag_jax.models.hf_files import TOKENIZER_FILES, fresh_directory, read_json, tokenizer_files, write_json
from rag_jax.models.hf_names import bart_slots, bert_slots, faults_of, leaf_slots
from rag_jax.models.hf_parts import Extras, Params
from rag_jax.models.hf_stored import CheckpointError
from rag_jax.models.presets import BART_PRESETS, BERT_PRESETS
from rag_jax.models.weights import load_params, save_params

TOWERS = ("question_encoder", "passage_encoder")
PARTS = (*TOWERS, "generator")
TARGETS = ("rag-jax", "rag", "bart", "bert", "dpr-question", "dpr-context")
_NOT_SIZES = ("dtype", "remat", "unroll", "cache_row")  # how it is computed, not what it is


@dataclasses.dataclass(frozen=True)
class Part:
    """One network: its sizes, its parameters, what else its checkpoint held, and where its tokenizer's files lie."""

    config: Any  # a BartConfig for a generator, else a BertConfig
    params: Params
    extras: Extras = dataclasses.field(default_factory=Extras)
    tokenizer: pathlib.Path | None = None

    def count(self) -> int:
        """How many parameters it has."""
        return sum(leaf.size for leaf in flatten_dict(self.params).values())


@dataclasses.dataclass(frozen=True)
class Bundle:
    """The networks of one RAG, or some of them.

    Attributes:
      parts: any of `PARTS`.
      variant: 'sequence' or 'token', as they were trained; None when that is not known.
      rag: the RAG checkpoint's own config.json and further JSON files, {'config', 'side'}.
    """

    parts: Mapping[str, Part]
    variant: str | None = None
    rag: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _tokenizer(directory: pathlib.Path, name: str = "") -> pathlib.Path | None:
    return directory / name if tokenizer_files(directory / name) else None


def _read_rag(directory: pathlib.Path, variant: str | None, force: bool) -> Bundle:
    rag = load_rag(directory, variant, force)
    parts = {
        name: Part(getattr(rag, name), rag.params[name], rag.extras[name], _tokenizer(directory, f"{name}_tokenizer"))
        for name in ("question_encoder", "generator")
    }
    return Bundle(parts, rag.variant, {"config": rag.config, "side": rag.side})


def _read_hugging_face(directory: pathlib.Path, variant: str | None, force: bool) -> Bundle:
    described = read_json(directory / "config.json")
    kind, classes = described.get("model_type"), described.get("architectures") or []
    if kind == "rag":
        return _read_rag(directory, variant, force)
    if kind == "bart":
        return Bundle({"generator": Part(*load_bart(directory), _tokenizer(directory))})
    if kind in ("bert", "dpr"):
        tower = Part(*load_bert(directory), _tokenizer(directory))
        # DPR's classes say which side they are; a plain BERT serves both.
        sides = {"DPRQuestionEncoder": TOWERS[:1], "DPRContextEncoder": TOWERS[1:]}
        return Bundle(dict.fromkeys(next((sides[name] for name in classes if name in sides), TOWERS), tower))
    raise CheckpointError(f"{directory / 'config.json'}: model_type is {kind!r}; known are bert, dpr, bart and rag")


def describe_sizes(configs: Mapping[str, BertConfig | BartConfig]) -> dict[str, dict[str, Any]]:
    """What model.json says of some parts: {'presets': those that have just these sizes, 'sizes': all fields}."""
    described: dict[str, dict[str, Any]] = {"presets": {}, "sizes": {}}
    for name, config in configs.items():
        presets = BART_PRESETS if name == "generator" else BERT_PRESETS
        alike = [preset for preset, sizes in presets.items() if same_sizes(sizes, config)]
        if alike:
            described["presets"][name] = alike[0]
        fields = dataclasses.asdict(config).items()
        described["sizes"][name] = {field: value for field, value in fields if field not in _NOT_SIZES}
    return described


def part_sizes(name: str, described: Mapping[str, Any], where: str) -> BertConfig | BartConfig:
    """The sizes of one part by model.json's content, which `where` names in messages.

    Raises:
      CheckpointError: nothing there about this part, or something else than sizes.
    """
    kind, presets = (BartConfig, BART_PRESETS) if name == "generator" else (BertConfig, BERT_PRESETS)
    if name in described.get("sizes", {}):
        try:
            return kind(**described["sizes"][name])
        except TypeError as error:
            raise CheckpointError(f"{where}: sizes of {name}: {error}") from None
    preset = described.get("presets", {}).get(name)
    if preset not in presets:
        raise CheckpointError(f"{where}: neither sizes nor a known preset for {name}")
    return presets[preset]


def read_weights(directory: str | os.PathLike[str]) -> Bundle:
    """Reads a weights directory, every name and shape checked.

    Raises:
      CheckpointError: not such a directory, or parameters of other sizes.
    """
    directory = pathlib.Path(directory)
    described = read_json(directory / "model.json")
    parts = {}
    for name in PARTS:
        if not (directory / f"{name}.safetensors").is_file():
            continue
        config = part_sizes(name, described, str(directory / "model.json"))
        try:
            params = load_params(directory / f"{name}.safetensors")
        except ValueError as error:
            raise CheckpointError(str(error)) from None
        slots = bart_slots(config) if isinstance(config, BartConfig) else bert_slots(config)
        found = {"/".join(path): leaf.shape for path, leaf in flatten_dict(params).items()}
        bias = {}
        if isinstance(config, BartConfig) and config.has_logits_bias:
            bias["final_logits_bias"] = (config.table_rows,)
        faults = faults_of(leaf_slots(slots, bias), found)
        if faults:
            raise CheckpointError(f"{directory}: {name} does not fit model.json:\n  " + "\n  ".join(faults))
        kept = described.get("hugging_face", {}).get(name, {})
        beside = directory / f"{name}.extras.safetensors"
        tensors = load_file(beside) if beside.is_file() else {}
        stored = kept.get("dtype", "float32")
        extras = Extras(kept.get("config", {}), tensors, kept.get("side", {}), dtype=stored)
        parts[name] = Part(config, params, extras, _tokenizer(directory, f"{name}_tokenizer") or _tokenizer(directory))
    if not parts:
        raise CheckpointError(f"{directory}: none of {', '.join(f'{name}.safetensors' for name in PARTS)}")
    return Bundle(parts, described.get("variant"), described.get("hugging_face", {}).get("rag", {}))


def write_weights(directory: str | os.PathLike[str], bundle: Bundle, dtype: str = "float32") -> None:
    """Writes a weights directory, beside and renamed.

    Args:
      directory: must not exist yet, or be empty.
      bundle: what to write.
      dtype: 'float32' or 'float16'.

    Raises:
      CheckpointError: the directory holds something already.
      ValueError: another dtype.
    """
    if dtype not in ("float32", "float16"):
        raise ValueError(f"dtype={dtype!r}: a weights directory is stored as float32 or float16")
    described: dict[str, Any] = describe_sizes({name: part.config for name, part in bundle.parts.items()})
    described |= {"variant": bundle.variant, "hugging_face": {}}
    with fresh_directory(directory) as beside:
        for name, part in bundle.parts.items():
            e = part.extras
            described["hugging_face"][name] = {"config": dict(e.config), "side": dict(e.side), "dtype": e.dtype}
            save_params(beside / f"{name}.safetensors", part.params, dtype)
            if e.tensors:
                whole = {key: np.ascontiguousarray(value) for key, value in e.tensors.items()}
                save_file(whole, beside / f"{name}.extras.safetensors")
            if part.tokenizer is not None:
                (beside / f"{name}_tokenizer").mkdir()
                for file in TOKENIZER_FILES:
                    if (part.tokenizer / file).is_file():
                        shutil.copyfile(part.tokenizer / file, beside / f"{name}_tokenizer" / file)
        if bundle.rag:
            described["hugging_face"]["rag"] = dict(bundle.rag)
        write_json(beside / "model.json", described)


def read_bundle(
    source: str | os.PathLike[str],
    *,
    question_encoder: str | os.PathLike[str] | None = None,
    passage_encoder: str | os.PathLike[str] | None = None,
    generator: str | os.PathLike[str] | None = None,
    variant: str | None = None,
    force: bool = False,
) -> Bundle:
    """Reads whatever lies in a directory: a checkpoint of any known class, or a weights directory.

    Args:
      source: a DPR encoder is the tower that its class names, a plain BERT is both towers.
      question_encoder, passage_encoder, generator: checkpoints, or weights directories with this part, that take the
        place of a part or add it.
      variant: what the caller is about to compute, or how parts without a variant were trained.
      force: take weights that were trained as the other variant.

    Raises:
      CheckpointError: see `rag_jax.models.hf`.
    """
    source = pathlib.Path(source)
    if (source / "model.json").is_file():
        bundle = read_weights(source)
        if variant and bundle.variant and variant != bundle.variant and not force:
            raise CheckpointError(other_variant(source, bundle.variant, variant))
    else:
        bundle = _read_hugging_face(source, variant, force)
    parts = dict(bundle.parts)
    for name, place in zip(PARTS, (question_encoder, passage_encoder, generator), strict=True):
        if place is not None:
            parts[name] = _read_part(name, pathlib.Path(place))
    return Bundle(parts, variant or bundle.variant, bundle.rag)


def _read_part(name: str, directory: pathlib.Path) -> Part:
    """One part from a checkpoint of its kind or from a weights directory."""
    if not (directory / "model.json").is_file():
        if name == "generator":
            return Part(*load_bart(directory), _tokenizer(directory))
        return Part(*load_bert(directory), _tokenizer(directory))
    return _wanted(read_weights(directory), name, f"{directory}: this place")


def _wanted(bundle: Bundle, name: str, target: str) -> Part:
    if name not in bundle.parts:
        raise CheckpointError(f"{target} needs a {name}; here are only: {', '.join(bundle.parts)}")
    return bundle.parts[name]


def write_bundle(
    destination: str | os.PathLike[str],
    bundle: Bundle,
    target: str = "rag-jax",
    *,
    tower: str = "question_encoder",
    dtype: str = "float32",
    kind: str = "safetensors",
    max_shard_bytes: int | None = None,
) -> None:
    """Writes a weights directory ('rag-jax') or a checkpoint of one of Hugging Face's classes.

    Args:
      destination: must not exist yet, or be empty.
      bundle: must hold the parts that the target needs.
      target: one of `TARGETS`.
      tower: which one 'bert' is made of.
      dtype, kind, max_shard_bytes: see `rag_jax.models.hf.save_bert`.

    Raises:
      CheckpointError: a part or the variant is missing, or see `rag_jax.models.hf`.
      ValueError: an unknown target, dtype or kind.
    """
    files: dict[str, Any] = {"dtype": dtype, "kind": kind, "max_shard_bytes": max_shard_bytes}
    towers = {"bert": tower, "dpr-question": "question_encoder", "dpr-context": "passage_encoder"}
    if target == "rag-jax":
        write_weights(destination, bundle, dtype)
    elif target == "bart":
        part = _wanted(bundle, "generator", target)
        save_bart(destination, part.config, part.params, part.extras, tokenizer=part.tokenizer, **files)
    elif target in towers:
        part = _wanted(bundle, towers[target], target)
        layout = target.replace("-", "_")
        save_bert(destination, part.config, part.params, part.extras, layout=layout, tokenizer=part.tokenizer, **files)
    elif target == "rag":
        asked, written = (_wanted(bundle, name, target) for name in ("question_encoder", "generator"))
        if bundle.variant not in RAG_CLASSES:
            raise CheckpointError(f"say which variant it is ({' or '.join(RAG_CLASSES)}): the weights do not")
        both = {"question_encoder": asked, "generator": written}
        checkpoint = RagCheckpoint(
            bundle.variant,
            asked.config,
            written.config,
            {name: part.params for name, part in both.items()},
            {name: part.extras for name, part in both.items()},
            bundle.rag.get("config", {}),
            bundle.rag.get("side", {}),
        )
        tokenizers = {name: part.tokenizer for name, part in both.items() if part.tokenizer is not None}
        save_rag(destination, checkpoint, tokenizers=tokenizers, **files)
    else:
        raise ValueError(f"target {target!r}: choose one of {', '.join(TARGETS)}")
