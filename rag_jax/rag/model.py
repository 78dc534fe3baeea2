"""HOST. What makes up one RAG: sizes, tokenizers, and where its weights come from.

A weights directory holds `question_encoder`, `passage_encoder` and `generator` as safetensors, and `null_document` if
there is one; `model.json` with their sizes or preset names and the variant that they were trained as; and the
tokenizers, as one `tokenizer.json` or in `<part>_tokenizer/`. The package's own weights ship in this form, and
`rag-jax convert` writes it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp

from rag_jax.models.bart import Bart, BartConfig
from rag_jax.models.bert import Bert, BertConfig
from rag_jax.models.hf import other_variant
from rag_jax.models.hf_convert import describe_sizes, part_sizes
from rag_jax.models.hf_files import read_json, tokenizer_files, write_json
from rag_jax.models.null_document import init_null_document
from rag_jax.models.presets import BART_PRESETS, BERT_PRESETS
from rag_jax.models.weights import SHIPPED, load_params, save_params
from rag_jax.text.hf_compat_input import HfFormat
from rag_jax.text.tokens import Tokenizers, load_tokenizer, load_tokenizer_folder

TOWERS = ("question_encoder", "passage_encoder")
PARTS = (*TOWERS, "generator")
# A role reads with the tokenizer of this part.
_ROLES = {
    "question": "question_encoder",
    "passage": "passage_encoder",
    "source": "generator",
    "target": "generator",
}
# How a network is trained and stored: weights and a preset may differ in these and be one model.
_FREE = ("init_std", "dtype", "remat", "unroll", "cache_row", "has_logits_bias", "vocab_multiple")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The sizes of the three networks. Hashable, so that jitted functions take it as static.

    Attributes:
      question_encoder: the tower q(x), trained.
      passage_encoder: the tower d(z), which the index is made with.
      generator: BART.
    """

    question_encoder: BertConfig
    passage_encoder: BertConfig
    generator: BartConfig


def architecture(
    question_encoder: str = "bert-base",
    passage_encoder: str = "bert-base",
    generator: str = "bart-large",
    *,
    init_from: str = "",
    parts: tuple[str, ...] = PARTS,
    dropout: float | None = None,
    dtype: str = "float32",
    remat: str = "none",
    unroll: int = 1,
) -> Architecture:
    """The sizes of a weights directory, or those behind preset names, by default the paper's.

    Args:
      question_encoder, passage_encoder: names in `BERT_PRESETS`; '' = as the weights say.
      generator: a name in `BART_PRESETS`; '' = as the weights say.
      init_from: the weights, see `weights_directory`; '' = none. What their model.json says wins, so a preset that is
        named all the same must agree with it.
      parts: those that will be used. A tower that will not, of which nothing is known, gets the sizes of 'tiny'.
      dropout: every dropout rate that is not zero before; None keeps them.
      dtype: compute dtype.
      remat: what to recompute in the backward pass.
      unroll: layers in one pass of the loop over them.

    Raises:
      FileNotFoundError: no such weights.
      ValueError: an unknown preset (the message lists those that exist), one that contradicts the weights (it lists
        what differs), or a part that neither a name nor the weights describe.
    """
    names = {"question_encoder": question_encoder, "passage_encoder": passage_encoder, "generator": generator}
    directory = weights_directory(init_from) if init_from else None
    described = read_json(directory / "model.json") if directory else {}

    def sizes(part: str) -> Any:
        presets = BART_PRESETS if part == "generator" else BERT_PRESETS
        name = names[part]
        if name and name not in presets:
            raise ValueError(f"no model is named {name!r}; choose from {', '.join(presets)}")
        if any(part in described.get(key, {}) for key in ("sizes", "presets")):
            stored = part_sizes(part, described, f"{directory}/model.json")
            differences = _differences(presets[name], stored) if name else []
            if differences:
                raise ValueError(
                    f"{part}: the preset {name!r} contradicts {directory}/model.json: {'; '.join(differences)}. "
                    f"Leave config.model.{part} empty to take the sizes of the weights"
                )
            return stored
        if name or part not in parts:
            return presets[name or "tiny"]
        raise _missing(directory, part) if directory else ValueError(f"config.model.{part}: name a preset")

    def settled(config: Any) -> Any:
        config = dataclasses.replace(config, dtype=jnp.dtype(dtype).type, remat=remat, unroll=unroll)
        rates = [f.name for f in dataclasses.fields(config) if "dropout" in f.name and getattr(config, f.name)]
        return config if dropout is None else dataclasses.replace(config, **dict.fromkeys(rates, dropout))

    return Architecture(*(settled(sizes(part)) for part in PARTS))


def _differences(preset: Any, stored: Any) -> list[str]:
    pairs = {
        f.name: (getattr(stored, f.name), getattr(preset, f.name))
        for f in dataclasses.fields(stored)
        if f.name not in _FREE and "dropout" not in f.name
    }
    return [f"{name} is {there}, the preset's {here}" for name, (there, here) in pairs.items() if there != here]


def _missing(directory: pathlib.Path, part: str) -> FileNotFoundError:
    here = ", ".join(name for name in PARTS if (directory / f"{name}.safetensors").is_file()) or "no part"
    option = f"--{part.replace('_', '-')}"
    reason = (
        "Hugging Face's RAG checkpoints come without one: convert the DPR context encoder that goes with them too"
        if part == "passage_encoder"
        else "convert a checkpoint that has one too"
    )
    return FileNotFoundError(
        f"{directory}: holds no {part} (but {here}). {reason}, as in `rag-jax convert CHECKPOINT WEIGHTS {option} DIR`"
    )


def init_params(arch: Architecture, key: jax.Array) -> dict[str, Any]:
    """Random float32 parameters, {'question_encoder', 'passage_encoder', 'generator'}; works under `jax.eval_shape`."""
    return {part: _init_part(arch, part, own) for part, own in zip(PARTS, jax.random.split(key, 3), strict=True)}


def init_towers(arch: Architecture, key: jax.Array) -> dict[str, Any]:
    """Random towers for contrastive training, {'question_encoder', 'passage_encoder'}; alike where their sizes are.

    A word then means the same on both sides, and learning to match names starts at once.
    """
    towers = {part: _init_part(arch, part, own) for part, own in zip(TOWERS, jax.random.split(key), strict=True)}
    alike = arch.passage_encoder == arch.question_encoder
    return dict.fromkeys(TOWERS, towers["question_encoder"]) if alike else towers


def _init_part(arch: Architecture, part: str, key: jax.Array) -> Any:
    ids, real = jnp.ones((1, 8), jnp.int32), jnp.ones((1, 8), bool)
    if part == "generator":
        return Bart(arch.generator).init(key, ids, real, ids)["params"]
    return Bert(getattr(arch, part)).init(key, ids)["params"]


@functools.lru_cache
def _shapes(arch: Architecture, part: str) -> Any:
    """What a part's parameters look like. Tracing the network takes a second, and a process loads more than once."""
    return jax.eval_shape(functools.partial(_init_part, arch, part), jax.random.key(0))


def weights_directory(name: str) -> pathlib.Path:
    """A directory of weights by name: of those that ship with the package ('world'), else a path.

    Raises:
      FileNotFoundError: neither.
    """
    shipped = SHIPPED / name
    directory = shipped if shipped.is_dir() else pathlib.Path(name)
    if not (directory / "model.json").is_file():
        names = ", ".join(sorted(p.name for p in SHIPPED.iterdir())) if SHIPPED.is_dir() else "none"
        raise FileNotFoundError(
            f"{name}: no weights there (no model.json), and none ship by that name (these do: {names})"
        )
    return directory


def weights_name(name: str) -> str:
    """What finds these weights again from wherever a later command runs: a name that ships, or the whole path.

    Raises:
      FileNotFoundError: see `weights_directory`.
    """
    directory = weights_directory(name)
    return directory.name if directory.parent == SHIPPED else str(directory.resolve())


def load_weights(arch: Architecture, name: str, parts: tuple[str, ...] = PARTS) -> dict[str, Any]:
    """Parameters of the parts that are asked for, every name and shape checked.

    Raises:
      FileNotFoundError: no such weights, or not this part of them.
      ValueError: weights of other sizes; every difference is listed.
    """
    directory = weights_directory(name)
    for part in parts:
        if not (directory / f"{part}.safetensors").is_file():
            raise _missing(directory, part)
    return {part: load_params(directory / f"{part}.safetensors", like=_shapes(arch, part)) for part in parts}


def null_document(kind: str, arch: Architecture, name: str, seed: int) -> dict[str, Any]:
    """Parameters of the null document: those of the weights, if they have any, else fresh ones.

    Args:
      kind: see `init_null_document`.
      arch: sizes.
      name: of the weights; '' = none.
      seed: of fresh ones.

    Raises:
      ValueError: the weights have one of another kind.
    """
    fresh = init_null_document(kind, arch.question_encoder.width, jax.random.key(seed))
    stored = weights_directory(name) / "null_document.safetensors" if name else None
    return load_params(stored, like=fresh) if stored and stored.is_file() else fresh


def check_variant(name: str, variant: str, force: bool = False) -> None:
    """Refuses weights that were trained as another variant. Weights that do not say serve all.

    Args:
      name: of the weights.
      variant: 'sequence', 'token' or 'fid', what is about to be trained or decoded.
      force: take them all the same.

    Raises:
      ValueError: weights of another variant.
    """
    directory = weights_directory(name)
    stored = read_json(directory / "model.json").get("variant")
    if stored is not None and stored != variant and not force:
        raise ValueError(other_variant(directory, stored, variant) + " (config.model.force_variant=true)")


def save_weights(
    directory: str | os.PathLike[str],
    params: dict[str, Any],
    arch: Architecture,
    tokenizers: Tokenizers,
    *,
    variant: str | None = None,
    dtype: str = "float32",
) -> None:
    """Writes a weights directory.

    Args:
      directory: made if it is not there.
      params: any of the three parts, and 'null_document'.
      arch: their sizes.
      tokenizers: one file when one serves all roles, else a folder for each part.
      variant: 'sequence', 'token' or 'fid', as the parts were trained together; None when they were not.
      dtype: storage type; float16 halves the files.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for part, tree in params.items():
        save_params(directory / f"{part}.safetensors", tree, dtype)
    if tokenizers.is_shared:
        tokenizers.source.backend_tokenizer.save(str(directory / "tokenizer.json"))
    else:
        folders = {part: getattr(tokenizers, role) for role, part in _ROLES.items() if role != "target"}
        if tokenizers.target is not tokenizers.source:
            folders["target"] = tokenizers.target
        for part, tokenizer in folders.items():
            if tokenizer is not None:
                tokenizer.save_pretrained(str(directory / f"{part}_tokenizer"))
    described: dict[str, Any] = describe_sizes({part: getattr(arch, part) for part in PARTS if part in params})
    write_json(directory / "model.json", described | {"variant": variant})


def load_tokenizers(
    name: str, *, max_question: int, max_passage: int, max_target: int, parts: tuple[str, ...] = PARTS
) -> Tokenizers:
    """The tokenizers that belong to weights, with the limits of every role in tokens.

    A part's tokenizer is that of its folder, `<part>_tokenizer/`, else the directory's tokenizer.json. The target's is
    the generator's, unless there is a `target_tokenizer/`.

    Args:
      name: of the weights.
      max_question, max_passage, max_target: see `Tokenizers`.
      parts: those that will be used. For the others no tokenizer need be there: a tower that reads nothing gets the
        generator's, as closed book fills its rows with something; else the role is None.

    Raises:
      FileNotFoundError: no tokenizer for a part; none ever takes another part's.
      ValueError: files that are damaged, or a tokenizer without the special tokens of its role.
    """
    directory = weights_directory(name)
    single = directory / "tokenizer.json"
    shared = load_tokenizer(single) if single.is_file() else None

    def of(part: str, needed: bool, other: Any = None) -> Any:
        if tokenizer_files(directory / f"{part}_tokenizer"):
            model = "bert" if part.endswith("encoder") else "bart"
            return load_tokenizer_folder(directory / f"{part}_tokenizer", model)
        if shared is None and other is None and needed:
            raise FileNotFoundError(
                f"{directory}: no tokenizer for the {part}. Put its files (vocab.txt, or vocab.json and merges.txt, or "
                f"tokenizer.json) into {directory / f'{part}_tokenizer'}, or convert again from a checkpoint with them"
            )
        return shared or other

    source = of("generator", "generator" in parts)
    towers = {
        role: of(part, part in parts, None if part in parts else source)
        for role, part in _ROLES.items()
        if part != "generator"
    }
    limits = {"max_question": max_question, "max_passage": max_passage, "max_target": max_target}
    return Tokenizers(**towers, source=source, target=of("target", False, source), **limits)


def check_tokenizers(arch: Architecture, tokenizers: Tokenizers, parts: tuple[str, ...] = PARTS) -> None:
    """Refuses tokenizers whose ids the networks do not have or would take for something else.

    Args:
      arch: sizes.
      tokenizers: of all roles.
      parts: those that will be used.

    Raises:
      ValueError: ids beyond a vocabulary, or padding or end tokens that differ; all are listed.
    """
    faults = []
    for role, part in _ROLES.items():
        tokenizer, config = getattr(tokenizers, role), getattr(arch, part)
        if part not in parts:
            continue
        largest = max(tokenizer.get_vocab().values())
        if largest >= config.vocab_size:
            faults.append(f"{role}: ids up to {largest}, but the {part} has a vocabulary of {config.vocab_size}")
        for token in {"source": ("pad", "bos", "eos"), "target": ("pad", "eos")}.get(role, ("pad",)):
            theirs, ours = getattr(tokenizer, f"{token}_token_id"), getattr(config, f"{token}_id")
            if theirs != ours:
                faults.append(f"{role}: {token} is {theirs}, but {ours} in the {part}")
    if faults:
        raise ValueError("these tokenizers belong to other models:\n  " + "\n  ".join(faults))


def load_hf_format(name: str) -> HfFormat:
    """How Hugging Face's checkpoint joins question and passage; else RAG's defaults.

    Args:
      name: the checkpoint itself, or weights, which remember what they were converted from.
    """
    checkpoint = pathlib.Path(name)
    are_weights = any((place / "model.json").is_file() for place in (SHIPPED / name, checkpoint))
    if (checkpoint / "config.json").is_file() and not are_weights:
        rag = read_json(checkpoint / "config.json")
        generator = rag.get("generator") or {}
    else:
        kept = read_json(weights_directory(name) / "model.json").get("hugging_face", {})
        rag, generator = (kept.get(part, {}).get("config", {}) for part in ("rag", "generator"))
    given = {key: rag.get(key) for key in ("title_sep", "doc_sep")} | {"prefix": generator.get("prefix")}
    return HfFormat(**{key: value for key, value in given.items() if isinstance(value, str)})
