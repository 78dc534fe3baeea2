"""HOST. `load`: a model and the index that it answers from."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from rag_jax.api.live import ChangingIndex
from rag_jax.api.model import Model, kind_of, load_model
from rag_jax.api.rag import Rag
from rag_jax.experiment import index_place, load_parts, passage_index, run_index
from rag_jax.index import fingerprint, load_vectors
from rag_jax.index.manifest import MANIFEST, MAX_PASSAGE_TOKENS, read_manifest
from rag_jax.models.bert import BertConfig
from rag_jax.models.weights import SHIPPED
from rag_jax.rag.retrieve import embed_passages
from rag_jax.rag.shapes import power_of_two
from rag_jax.text.datasets import Collection
from rag_jax.text.table import PassageTable
from rag_jax.text.tokens import Tokenizers
from rag_jax.text.world_facts import world_passages
from rag_jax.types import Passage

WORLD = "world"
EDITION = "2020"
KEPT_LIMIT = 160  # tokens of a passage for the vectors that ship, as the config.json beside them has it
EMBEDDED_AT_ONCE = 128


def load(
    source: str | os.PathLike[str] = WORLD,
    index: str | os.PathLike[str] | None = None,
    *,
    variant: str | None = None,
    force: bool = False,
    passage_encoder: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Rag:
    """Loads a model, ready to be asked.

    Args:
      source: a run directory of train.py; a directory of weights, as `rag-jax convert` makes it; a checkpoint of
        Hugging Face's RAG or BART, which keeps its own order of passage and question; or 'world', the tiny model that
        ships.
      index: a directory that `rag-jax index build` or `build_index` made. None: a run's own, made if it is not there;
        for 'world' the passages of World Facts 2020, in the cache; for others none, and then `Rag.generate` answers
        from passages that are given.
      variant: 'sequence' or 'token'; None = as trained, RAG-Sequence where that is not known.
      force: take a model that was trained as the other variant.
      passage_encoder: a DPR or BERT checkpoint, for one of Hugging Face's RAGs: they come without, and adding passages
        needs it.
      cache: where World Facts' index is kept, see `cache_directory`. It is made again if it was changed, so what shall
        stay belongs into an index of one's own.
      settings: fields of the configuration by dotted path, as flags set them: {'eval.beams': 4}.

    Raises:
      FileNotFoundError: no such directory, or a part of it missing.
      ValueError: damaged files, another variant, an index that another encoder made, or unknown settings.
    """
    directory = pathlib.Path(source)
    if (SHIPPED / directory).is_dir() and not directory.is_absolute():
        directory = SHIPPED / directory
    model = load_model(directory, variant=variant, force=force, passage_encoder=passage_encoder, settings=settings)
    if index is None:
        index = _own_index(model, directory, cache)
    return Rag(model, None if index is None else open_for(model, pathlib.Path(index)))


def cache_directory(cache: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """Where derived files are kept: `cache`, else $RAG_JAX_CACHE, else rag-jax in the user's cache directory."""
    given = cache or os.environ.get("RAG_JAX_CACHE")
    if given:
        return pathlib.Path(given)
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "rag-jax"


def _own_index(model: Model, directory: pathlib.Path, cache: str | os.PathLike[str] | None) -> pathlib.Path | None:
    """The index that belongs to a model, made now if it is not there; None where none does."""
    if directory == SHIPPED / WORLD:
        place = cache_directory(cache) / f"world_facts_{EDITION}"
        table = PassageTable.from_passages(item.passage for item in world_passages(EDITION))
        tokenizers = dataclasses.replace(model.parts.tokenizers, max_passage=KEPT_LIMIT)
        parts = dataclasses.replace(model.parts, collection=Collection(table, (), ()), tokenizers=tokenizers)
        made = {"passages": table.fingerprint, "encoder": fingerprint(parts.passage_encoder)}
        vectors = load_vectors(directory / f"world_facts_{EDITION}.safetensors", **made)
        passage_index(parts, place, "exact", vectors=vectors, weights=WORLD)
        return place
    if kind_of(directory) != "run" or model.config.retriever not in ("dpr", "bm25"):
        return None
    place = index_place(model.config, directory)
    if not (place / MANIFEST).is_file():
        collection = load_parts(model.config).collection
        run_index(model.config, dataclasses.replace(model.parts, collection=collection), directory)
    return place


def _embedded(
    config: BertConfig, params: Any, tokenizers: Tokenizers, passages: Sequence[Passage]
) -> Float[np.ndarray, "n D"]:
    """Vectors of new passages; a batch of few is a small one."""
    return embed_passages(config, params, tokenizers, passages, min(power_of_two(len(passages)), EMBEDDED_AT_ONCE))


def open_for(model: Model, directory: pathlib.Path) -> ChangingIndex:
    """An index as this model answers from it and adds to it; see `ChangingIndex` for what is raised."""
    parts = model.parts
    manifest = read_manifest(directory)  # its vectors are those of passages cut as it says
    limit = int(manifest.made_with.get(MAX_PASSAGE_TOKENS, parts.tokenizers.max_passage))
    if parts.passage_encoder is None:
        return ChangingIndex(directory)
    tokenizers = dataclasses.replace(parts.tokenizers, max_passage=limit)
    embed = functools.partial(_embedded, parts.arch.passage_encoder, parts.passage_encoder, tokenizers)
    return ChangingIndex(directory, embed, fingerprint(parts.passage_encoder))
