"""HOST. One tower or one generator between a checkpoint's tensors and the parameter trees here.

A part is the same whether it is a checkpoint of its own or lies inside a RAG, but for what stands before its names.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rag_jax.models.bart import BartConfig
from rag_jax.models.bert import BertConfig
from rag_jax.models.hf_config import bart_config, bert_config
from rag_jax.models.hf_files import read_json
from rag_jax.models.hf_names import Slot, bart_slots, bert_slots, faults_of, modern_name, read_tree, write_tree
from rag_jax.models.hf_stored import CheckpointError, Stored

Params = dict[str, Any]

# A layout is a class at Hugging Face: (model_type, architecture, what stands before the tower's names).
BERT_LAYOUTS = {
    "bert": ("bert", "BertModel", ""),
    "dpr_question": ("dpr", "DPRQuestionEncoder", "question_encoder.bert_model."),
    "dpr_context": ("dpr", "DPRContextEncoder", "ctx_encoder.bert_model."),
}
_BERT_PREFIXES = (*(prefix for *_, prefix in BERT_LAYOUTS.values() if prefix), "bert_model.", "bert.", "")
_BART_PREFIXES = ("model.", "")
_BART_TABLES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
# Not weights: constants that older versions stored with them.
_BUFFERS = {"embeddings.position_ids", "embeddings.token_type_ids", "encoder.version", "decoder.version"}


@dataclasses.dataclass(frozen=True)
class Extras:
    """What a checkpoint holds beside the parameters.

    Attributes:
      config: its config.json.
      tensors: weights that no tower here computes with but a class there has: BERT's pooler.
      side: further JSON files, by name: generation_config.json.
      dropped: names of tensors that were checked and left out: heads of BERT's pretraining.
      dtype: the type that the weights had in the file.
    """

    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tensors: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    side: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    dtype: str = "float32"


def _plain_names(
    tensors: Mapping[str, Stored], anchor: str, prefixes: Iterable[str], where: str, what: str
) -> dict[str, Stored]:
    """Tensors by today's names without what stands before them, found by a tensor that every such model has."""
    modern = [(modern_name(name), tensor) for name, tensor in tensors.items()]
    names = {name for name, _ in modern}
    prefix = next((prefix for prefix in prefixes if prefix + anchor in names), None)
    if prefix is None:
        raise CheckpointError(f"{where}: no {anchor}, so these are not a {what}'s weights; found: {_some(names)}")
    plain = [(name.removeprefix(prefix), tensor) for name, tensor in modern]
    found = dict(plain)
    if len(found) < len(plain):
        twice = [name for name, count in Counter(name for name, _ in plain).items() if count > 1]
        raise CheckpointError(f"{where}: under two names each: {', '.join(twice)}")
    return {name: tensor for name, tensor in found.items() if name not in _BUFFERS}


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:5]) + f" and {len(listed) - 5} more" * (len(listed) > 5)


def _check(slots: list[Slot], found: Mapping[str, Stored], optional: list[Slot], where: str) -> None:
    present = [slot for slot in optional if slot.theirs in found]
    strays = [f"{n} holds {t.dtype}, no floating-point numbers" for n, t in found.items() if t.dtype.kind not in "fV"]
    faults = faults_of([*slots, *present], {name: tensor.shape for name, tensor in found.items()}) + strays
    if not faults:
        return
    table = slots[0]
    rows = found[table.theirs].shape if table.theirs in found else table.shape
    hint = f"\nvocab_size is {table.shape[0]}, the table has {rows[0]} rows" if rows[:1] != table.shape[:1] else ""
    raise CheckpointError(f"{where}: the weights do not fit config.json:\n  " + "\n  ".join(faults) + hint)


def _bert_optional(c: BertConfig) -> list[Slot]:
    """The pooler, which is kept, and the heads of pretraining, which are not."""
    head = "cls.predictions"
    return [
        Slot("", "pooler.dense.weight", (c.width, c.width)),
        Slot("", "pooler.dense.bias", (c.width,)),
        Slot("", f"{head}.bias", (c.vocab_size,)),
        Slot("", f"{head}.transform.dense.weight", (c.width, c.width)),
        Slot("", f"{head}.transform.dense.bias", (c.width,)),
        Slot("", f"{head}.transform.LayerNorm.weight", (c.width,)),
        Slot("", f"{head}.transform.LayerNorm.bias", (c.width,)),
        Slot("", f"{head}.decoder.weight", (c.vocab_size, c.width)),
        Slot("", f"{head}.decoder.bias", (c.vocab_size,)),
        Slot("", "cls.seq_relationship.weight", (2, c.width)),
        Slot("", "cls.seq_relationship.bias", (2,)),
    ]


def read_bert(
    tensors: Mapping[str, Stored], json: Mapping[str, Any], where: str, pooling: str
) -> tuple[BertConfig, Params, Extras]:
    """A BERT from tensors under any of its prefixes; `where` is for messages.

    Raises:
      CheckpointError: settings or tensors that are not those of a tower.
    """
    config = bert_config(json, where, pooling)
    slots = bert_slots(config)
    found = _plain_names(tensors, slots[0].theirs, _BERT_PREFIXES, where, "BERT")
    _check(slots, found, _bert_optional(config), where)
    beside = {name for name in found if name.startswith(("pooler.", "cls."))}
    kept = {name: found[name].load().astype(np.float32) for name in sorted(beside) if name.startswith("pooler.")}
    extras = Extras(json, kept, dropped=tuple(sorted(beside - kept.keys())), dtype=found[slots[0].theirs].dtype.name)
    return config, read_tree(slots, found), extras


def read_bart(
    tensors: Mapping[str, Stored], json: Mapping[str, Any], where: str, vocab_multiple: int
) -> tuple[BartConfig, Params, Extras]:
    """A BART from tensors with or without a head; `where` is for messages.

    Raises:
      CheckpointError: settings or tensors that are not those of a generator.
    """
    config = bart_config(json, where, vocab_multiple)
    slots = bart_slots(config)
    found = _plain_names(tensors, "encoder.embed_positions.weight", _BART_PREFIXES, where, "BART")
    # One table under up to four names, of which any may be the one that was stored.
    tables = {name: found.pop(name) for name in _BART_TABLES if name in found}
    bias = found.pop("final_logits_bias", None)
    shared = next(iter(tables.values()), None)
    if shared is not None:
        found = {"shared.weight": shared} | found
    odd = [Slot("", name, slots[0].shape) for name in tables if name != "shared.weight"]
    also = {slot.theirs: tables[slot.theirs] for slot in odd if tables[slot.theirs] is not shared}
    if bias is not None:  # absent from a BartModel, which has no head
        odd.append(Slot("", "final_logits_bias", (1, config.vocab_size)))
        also["final_logits_bias"] = bias
    _check(slots, found | also, odd, where)
    untied = []
    if shared is not None and len(tables) > 1:
        values = shared.load()
        untied = [n for n, table in tables.items() if table is not shared and not np.array_equal(table.load(), values)]
    if untied:
        raise CheckpointError(
            f"{where}: {', '.join(untied)} differs from {next(iter(tables))}; only a tied table is implemented"
        )
    params = read_tree(slots, found)
    stored_bias = None if bias is None else bias.load().astype(np.float32)[0]
    if stored_bias is not None and stored_bias.any():
        config = dataclasses.replace(config, has_logits_bias=True)
        params["final_logits_bias"] = np.pad(stored_bias, (0, config.table_rows - config.vocab_size))
    return config, params, Extras(json, dtype=found["shared.weight"].dtype.name)


def sentence_pooling(directory: pathlib.Path) -> str:
    """The pooling that sentence-transformers' files name; 'cls' without such files.

    Raises:
      CheckpointError: another than the mean with normalisation or [CLS] without.
    """
    if not (directory / "1_Pooling" / "config.json").is_file():
        return "cls"
    described = read_json(directory / "1_Pooling" / "config.json")
    modes = {
        name.removeprefix("pooling_mode_")
        for name, on in described.items()
        if name.startswith("pooling_mode_") and on is True
    }
    listed = directory / "modules.json"
    normalised = listed.is_file() and ".Normalize" in listed.read_text("utf-8")
    for pooling, mode, wanted in (("mean", "mean_tokens", True), ("cls", "cls_token", False)):
        if modes == {mode} and normalised == wanted:
            return pooling
    said = f"{', '.join(sorted(modes)) or 'no'} pooling {'with' if normalised else 'without'} normalisation"
    raise CheckpointError(
        f"{directory}: {said} is not implemented; pass pooling='cls' or 'mean' to load it all the same"
    )


def sentence_files(config: BertConfig) -> dict[str, Any]:
    """What sentence-transformers needs in order to average and normalise, as `pooling='mean'` does."""
    if config.pooling != "mean":
        return {}
    places = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(places)
    ]
    modes = {f"pooling_mode_{name}": name == "mean_tokens" for name in ("cls_token", "mean_tokens", "max_tokens")}
    return {"modules.json": modules, "1_Pooling/config.json": {"word_embedding_dimension": config.width} | modes}


def bert_tensors(config: BertConfig, params: Params, extras: Extras, layout: str) -> dict[str, np.ndarray]:
    """A tower's tensors under the names of its class at Hugging Face.

    Raises:
      CheckpointError: parameters of other sizes, or a pooling that the class does not have.
    """
    prefix = BERT_LAYOUTS[layout][2]
    tensors = write_tree(bert_slots(config), params, "tower")
    if layout == "bert":
        # BertModel cannot be without a pooler; where none was trained it is zero, so that nobody takes it for one.
        pooler = {slot.theirs: np.zeros(slot.shape, np.float32) for slot in _bert_optional(config)[:2]}
        tensors |= pooler | dict(extras.tensors)
    elif config.pooling != "cls":
        raise CheckpointError(
            f"pooling={config.pooling!r}: DPR's encoders give the [CLS] vector; export this tower as 'bert'"
        )
    return {prefix + name: value for name, value in tensors.items()}


def bart_tensors(config: BartConfig, params: Params) -> dict[str, np.ndarray]:
    """A generator's tensors as BartForConditionalGeneration names them, the table once and without padded rows.

    Raises:
      CheckpointError: parameters of other sizes.
    """
    params = dict(params)
    bias = np.asarray(params.pop("final_logits_bias", np.zeros(config.table_rows)), np.float32)
    tensors = write_tree(bart_slots(config), params, "generator")
    if bias.shape != (config.table_rows,):
        raise CheckpointError(f"final_logits_bias is {bias.shape}, should be {(config.table_rows,)}")
    return {"final_logits_bias": bias[None, : config.vocab_size]} | {
        f"model.{n}": value for n, value in tensors.items()
    }
