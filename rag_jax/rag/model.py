"""HOST. What makes up one RAG: sizes, tokenizers, and where its weights come from.

A weights directory holds `model.json` (preset names), `tokenizer.json`, and `question_encoder`, `passage_encoder` and
`generator` as safetensors: the form in which the package's own weights ship and a run is handed on.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp

from rag_jax.models.bart import Bart, BartConfig
from rag_jax.models.bert import Bert, BertConfig
from rag_jax.models.presets import BART_PRESETS, BERT_PRESETS
from rag_jax.models.weights import SHIPPED, load_params, save_params
from rag_jax.text.tokens import Tokenizers, load_tokenizer

PARTS = ("question_encoder", "passage_encoder", "generator")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The sizes of the three networks. Hashable, so that jitted functions take it as static.

    Attributes:
      question_encoder: the tower q(x), trained.
      passage_encoder: the tower d(z), frozen; the index was made with it.
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
    dropout: float | None = None,
    dtype: str = "float32",
    remat: str = "none",
) -> Architecture:
    """The sizes behind preset names, by default those of the paper.

    Args:
      question_encoder, passage_encoder: names in `BERT_PRESETS`.
      generator: a name in `BART_PRESETS`.
      dropout: every dropout rate that is not zero in the preset; None keeps the preset's.
      dtype: compute dtype.
      remat: what to recompute in the backward pass.

    Raises:
      ValueError: an unknown preset; the message lists those that exist.
    """

    def named(presets: dict[str, Any], name: str) -> Any:
        if name not in presets:
            raise ValueError(f"no model is named {name!r}; choose from {', '.join(presets)}")
        config = dataclasses.replace(presets[name], dtype=jnp.dtype(dtype).type, remat=remat)
        rates = [f.name for f in dataclasses.fields(config) if "dropout" in f.name and getattr(config, f.name)]
        return config if dropout is None else dataclasses.replace(config, **dict.fromkeys(rates, dropout))

    return Architecture(
        named(BERT_PRESETS, question_encoder), named(BERT_PRESETS, passage_encoder), named(BART_PRESETS, generator)
    )


def init_params(arch: Architecture, key: jax.Array) -> dict[str, Any]:
    """Random float32 parameters, {'question_encoder', 'passage_encoder', 'generator'}; works under `jax.eval_shape`."""
    keys = jax.random.split(key, 3)
    ids, real = jnp.ones((1, 8), jnp.int32), jnp.ones((1, 8), bool)
    return {
        "question_encoder": Bert(arch.question_encoder).init(keys[0], ids)["params"],
        "passage_encoder": Bert(arch.passage_encoder).init(keys[1], ids)["params"],
        "generator": Bart(arch.generator).init(keys[2], ids, real, ids)["params"],
    }


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


def load_weights(arch: Architecture, name: str, parts: tuple[str, ...] = PARTS) -> dict[str, Any]:
    """Parameters of the parts that are asked for, every name and shape checked.

    Raises:
      FileNotFoundError: no such weights.
      ValueError: weights of other sizes; every difference is listed.
    """
    directory = weights_directory(name)
    shapes = jax.eval_shape(functools.partial(init_params, arch), jax.random.key(0))
    return {part: load_params(directory / f"{part}.safetensors", like=shapes[part]) for part in parts}


def save_weights(
    directory: str | os.PathLike[str],
    params: dict[str, Any],
    presets: dict[str, str],
    tokenizers: Tokenizers,
    dtype: str = "float32",
) -> None:
    """Writes a weights directory.

    Args:
      directory: made if it is not there.
      params: any of the three parts.
      presets: part -> preset name.
      tokenizers: one tokenizer serves all parts.
      dtype: storage type; float16 halves the files.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for part, tree in params.items():
        save_params(directory / f"{part}.safetensors", tree, dtype)
    tokenizers.generator.backend_tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "model.json").write_text(json.dumps({"presets": presets}, indent=2) + "\n")


def load_tokenizers(name: str, *, max_question: int, max_passage: int, max_target: int) -> Tokenizers:
    """The tokenizers that belong to weights, with the limits of every role in tokens."""
    tokenizer = load_tokenizer(weights_directory(name) / "tokenizer.json")
    return Tokenizers(tokenizer, tokenizer, max_question, max_passage, max_target)
