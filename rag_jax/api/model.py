"""HOST. What answers, from whatever directory it lies in: a run, weights, or a checkpoint of Hugging Face."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from rag_jax.config import AS_TRAINED, FIELDS, Config, finalise, from_dict, from_json, on_other_devices, update
from rag_jax.experiment import Parts, load_parts, trained_parts
from rag_jax.models.hf import other_variant
from rag_jax.models.hf_convert import Bundle, read_bundle
from rag_jax.models.hf_files import read_json
from rag_jax.models.presets import BERT_PRESETS
from rag_jax.models.weights import SHIPPED
from rag_jax.rag.model import PARTS, Architecture, check_tokenizers
from rag_jax.text.datasets import Collection
from rag_jax.text.hf_compat_input import MAX_LENGTH
from rag_jax.text.tokens import Tokenizers, load_tokenizer_folder

NOTHING = Collection((), (), ())
QUESTION_TOKENS = 64  # that weights and checkpoints read; a run says it itself


@dataclasses.dataclass(frozen=True)
class Model:
    """The networks and how they are asked.

    Attributes:
      config: final: variant, k, decoding, limits in tokens.
      parts: sizes, tokenizers and the passage encoder (None where there is none). The collection is empty.
      params: {'question_encoder', 'generator'}, or the generator alone; float32, on the host.
    """

    config: Config
    parts: Parts
    params: dict[str, Any]


def load_model(
    source: str | os.PathLike[str],
    *,
    variant: str | None = None,
    force: bool = False,
    passage_encoder: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Model:
    """Reads a model.

    Args:
      source: see `kind_of`.
      variant: 'sequence' or 'token'; None = as it was trained, or RAG-Sequence where that is not known.
      force: take a model that was trained as the other variant.
      passage_encoder: a DPR or BERT checkpoint, for one of Hugging Face's RAGs: they come without.
      settings: fields of the configuration, by dotted path: {'data.max_source_tokens': 300}.

    Raises:
      FileNotFoundError: nothing there, or a part of it missing.
      ValueError: of another kind, of the other variant, damaged, or settings that there are not.
    """
    directory = pathlib.Path(source)
    if variant not in (None, "sequence", "token"):
        raise ValueError(f"variant={variant!r}: choose sequence or token")
    if kind_of(directory) == "run":
        if passage_encoder is not None:
            raise ValueError(f"{directory}: a run has its own passage encoder; leave passage_encoder out")
        return _from_run(directory, variant, force, settings or {})
    return _from_checkpoint(directory, variant, force, passage_encoder, settings or {})


def kind_of(directory: pathlib.Path) -> str:
    """'weights' (of `rag-jax convert`), 'checkpoint' (Hugging Face's), or 'run' (of train.py).

    Raises:
      FileNotFoundError: none of the three; the message says what is there instead.
    """
    if not directory.is_dir():
        shipped = ", ".join(sorted(path.name for path in SHIPPED.iterdir()))
        raise FileNotFoundError(f"{directory}: no such directory; with the package comes: {shipped}")
    if (directory / "model.json").is_file():
        return "weights"
    if (directory / "config.json").is_file():
        return "checkpoint" if "model_type" in read_json(directory / "config.json") else "run"
    runs = sorted(path.parent.name for path in directory.glob("*/config.json"))
    found = f"a directory of several; choose one of {', '.join(runs)}" if runs else "it holds no config.json"
    raise FileNotFoundError(f"{directory}: neither a run, nor weights, nor a checkpoint of Hugging Face: {found}")


def _changed(config: Config, values: Mapping[str, Any]) -> Config:
    """A final configuration with other values, and what follows from them."""
    values = {field: FIELDS[field].default for name, field in AS_TRAINED.items() if name in values} | dict(values)
    return finalise(update(from_dict(dataclasses.asdict(config)), values))


def _from_run(directory: pathlib.Path, variant: str | None, force: bool, settings: Mapping[str, Any]) -> Model:
    from rag_jax.training.loop import trained_params  # late: Orbax takes seconds to import, and only runs need it

    trained = finalise(from_json((directory / "config.json").read_text("utf-8")))
    if trained.recipe != "rag":
        raise ValueError(
            f"{directory}: a run of recipe {trained.recipe!r}, whose checkpoints are no whole RAG; "
            "load the weights directory that it wrote"
        )
    if variant not in (None, trained.variant) and not force:
        raise ValueError(other_variant(directory, trained.variant, variant) + " (force=True)")
    trained = on_other_devices(trained)
    values = {"index.in_step": False, "variant": variant or trained.variant, "model.force_variant": force}
    config = _changed(trained, values | dict(settings))
    parts = load_parts(trained, NOTHING)  # as the checkpoint has them
    parts, params = trained_parts(parts, trained_params(trained, directory, parts))
    d = config.data
    limits = {
        "max_question": d.max_question_tokens,
        "max_passage": d.max_passage_tokens,
        "max_target": d.max_target_tokens,
    }
    tokenizers = dataclasses.replace(parts.tokenizers, **limits)
    parts = dataclasses.replace(parts, arch=_computing(parts.arch, config.model.dtype), tokenizers=tokenizers)
    return Model(config, parts, params)


def _computing(arch: Architecture, dtype: str) -> Architecture:
    """The same sizes, computing in another dtype."""
    as_type = jnp.dtype(dtype).type
    return Architecture(*(dataclasses.replace(getattr(arch, part), dtype=as_type) for part in PARTS))


def _from_checkpoint(
    directory: pathlib.Path,
    variant: str | None,
    force: bool,
    passage_encoder: str | os.PathLike[str] | None,
    settings: Mapping[str, Any],
) -> Model:
    bundle = read_bundle(directory, passage_encoder=passage_encoder, variant=variant, force=force)
    if "generator" not in bundle.parts:
        raise ValueError(
            f"{directory}: holds {' and '.join(bundle.parts)}, which finds passages but writes nothing; bring it "
            f"together with a BART: rag-jax convert {directory} WEIGHTS --generator DIRECTORY"
        )
    arch, rag, usual = _sizes(bundle), bundle.rag.get("config", {}), Config()
    values: dict[str, Any] = {"model.init_from": str(directory), "variant": bundle.variant or usual.variant}
    longest = usual.data.max_source_tokens
    if rag:  # it was trained on sources that Hugging Face's code joined
        values |= {"data.hf_compat_input": True, "k": int(rag.get("n_docs", usual.k))}
        longest = int(rag.get("max_combined_length", MAX_LENGTH))
    values["data.max_question_tokens"] = min(QUESTION_TOKENS, arch.question_encoder.max_positions)
    values["data.max_passage_tokens"] = min(usual.data.max_passage_tokens, arch.passage_encoder.max_positions)
    values["data.max_source_tokens"] = min(longest, arch.generator.max_positions)
    config = _changed(usual, values | dict(settings))
    arch = _computing(arch, config.model.dtype)
    names = tuple(name for name in PARTS if name in bundle.parts)
    tokenizers = _tokenizers(directory, bundle, names, config)
    check_tokenizers(arch, tokenizers, names)
    params = {name: bundle.parts[name].params for name in names}
    tower = params.pop("passage_encoder", None)
    return Model(config, Parts(arch, tokenizers, params, tower, NOTHING), params)


def _sizes(bundle: Bundle) -> Architecture:
    """Those of the parts that are there; of a tower that is not, and so is never used, some."""
    configs: list[Any] = [bundle.parts[part].config if part in bundle.parts else BERT_PRESETS["tiny"] for part in PARTS]
    return Architecture(*configs)


def _tokenizers(directory: pathlib.Path, bundle: Bundle, names: tuple[str, ...], config: Config) -> Tokenizers:
    """Those of the parts. A tower that is not there reads nothing, so the generator's fills its rows."""
    missing = [name for name in names if bundle.parts[name].tokenizer is None]
    if missing:
        raise FileNotFoundError(
            f"{directory}: no tokenizer for the {missing[0]}; put its files (vocab.txt, or vocab.json and merges.txt, "
            "or tokenizer.json) beside its weights"
        )

    def of(part: str) -> Any:
        folder = bundle.parts[part].tokenizer if part in names else None
        return source if folder is None else load_tokenizer_folder(folder, "bart" if part == "generator" else "bert")

    source, d = of("generator"), config.data
    own = directory / "target_tokenizer"  # weights may have one
    return Tokenizers(
        question=of("question_encoder"),
        passage=of("passage_encoder"),
        source=source,
        target=load_tokenizer_folder(own, "bart") if own.is_dir() else source,
        max_question=d.max_question_tokens,
        max_passage=d.max_passage_tokens,
        max_target=d.max_target_tokens,
    )
