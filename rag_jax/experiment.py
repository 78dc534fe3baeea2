"""HOST. From a configuration to the parts of a run: sizes, weights, data, index.

Training and evaluation of one configuration begin with the same parts, so they are made in one place.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from rag_jax.config import Config, has_towers
from rag_jax.index import (
    Baseline,
    DeviceSettings,
    GoldSearcher,
    Index,
    IndexMismatch,
    RandomSearcher,
    fingerprint,
)
from rag_jax.index.asked import open_or_build
from rag_jax.index.backends import backend_named
from rag_jax.index.manifest import MAX_PASSAGE_TOKENS
from rag_jax.rag.answer import answer
from rag_jax.rag.model import (
    PARTS,
    TOWERS,
    Architecture,
    architecture,
    check_tokenizers,
    check_variant,
    init_params,
    init_towers,
    load_hf_format,
    load_tokenizers,
    load_weights,
    null_document,
    weights_name,
)
from rag_jax.rag.retrieve import ClosedBook, DeviceRetriever, HfCompatRetriever, Retriever, embed_passages
from rag_jax.rag.rules import DecodeOptions
from rag_jax.sharding import ONE_DEVICE, Layout, first_alone, make_mesh, state_rules
from rag_jax.text.datasets import Collection, load_collection
from rag_jax.text.dpr_json import read_evaluation
from rag_jax.text.table import PassageTable
from rag_jax.text.tasks import TASKS
from rag_jax.text.tokens import Tokenizers
from rag_jax.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a run is made of before its first step.

    Attributes:
      arch: sizes.
      tokenizers: for every role.
      params: what may be trained: 'question_encoder' (with retriever 'dpr' only), 'generator', and 'null_document' if
        there is one; where the passage encoder is trained it too, and for recipe 'dpr' both towers alone.
      passage_encoder: the tower that the index is made with; None where there is no question encoder.
      collection: passages and questions.
    """

    arch: Architecture
    tokenizers: Tokenizers
    params: dict[str, Any]
    passage_encoder: Any
    collection: Collection


def load_parts(config: Config, collection: Collection | None = None, retrieves: bool | None = None) -> Parts:
    """Everything but the index.

    Args:
      config: final.
      collection: passages and questions; None = as the configuration says.
      retrieves: whether passages are looked for, and so must be there to be read; None = unless it is closed book.

    Raises:
      FileNotFoundError, ValueError: weights, data or sizes that do not fit, see the functions called.
    """
    m, d = config.model, config.data
    towers_alone = config.recipe == "dpr"
    retrieves = (config.retriever != "none" if retrieves is None else retrieves) or towers_alone
    _check_given(config, retrieves)
    # Towers serve both variants, and with the one empty passage of closed book they are the same.
    if m.init_from and config.retriever != "none" and not towers_alone:
        check_variant(m.init_from, config.variant, m.force_variant)
    arch, names = sizes(config)
    tokenizers = load_tokenizers(
        m.init_from or "world",
        max_question=d.max_question_tokens,
        max_passage=d.max_passage_tokens,
        max_target=d.max_target_tokens,
        parts=names,
    )
    check_tokenizers(arch, tokenizers, names)
    tokenizers.labels(d.labels)  # refuses words that are no labels
    if m.init_from:
        params = load_weights(arch, m.init_from, names)
    elif towers_alone:
        params = init_towers(arch, jax.random.key(config.seed))
    else:
        params = init_params(arch, jax.random.key(config.seed))
        params = {name: params[name] for name in names}
    if config.null_document != "none":
        params["null_document"] = null_document(config.null_document, arch, m.init_from, config.seed)
    if collection is None and towers_alone and d.dataset == "files":
        collection = read_evaluation(d.eval_questions_path, d.passages_path)
    if collection is None:
        collection = load_collection(
            d.dataset,
            edition=d.edition,
            split=config.eval.split,
            passages_path=d.passages_path,
            questions_path=d.questions_path,
            eval_questions_path=d.eval_questions_path,
            validation_questions_path=d.validation_questions_path,
            labels=d.labels,
            with_passages=retrieves,
        )
    trained = towers_alone or config.index.refresh_every
    encoder = params.get("passage_encoder") if trained else params.pop("passage_encoder", None)
    return Parts(arch, tokenizers, params, encoder, collection)


def trained_parts(parts: Parts, params: dict[str, Any]) -> tuple[Parts, dict[str, Any]]:
    """Parts and parameters to answer with: a passage encoder that was trained is the one that the index is made with.

    Args:
      parts: what training began with.
      params: what it ended with.
    """
    params = dict(params)
    return dataclasses.replace(parts, passage_encoder=params.pop("passage_encoder", parts.passage_encoder)), params


def sizes(config: Config, own_dropout: bool = True) -> tuple[Architecture, tuple[str, ...]]:
    """The sizes of a configuration's networks, and which of them it uses; no weights are read.

    Args:
      config: final.
      own_dropout: with the configuration's dropout rate; else with those that the weights or presets have.

    Raises:
      FileNotFoundError, ValueError: see `architecture`.
    """
    m = config.model
    names: tuple[str, ...] = PARTS if has_towers(config) else ("generator",)
    names = TOWERS if config.recipe == "dpr" else names
    presets = {part: getattr(m, part) for part in PARTS}
    if not m.init_from:  # random weights read with the tokenizer of 'world', and are as large if no preset is named
        presets = {part: name or "tiny" for part, name in presets.items()}
    dropout = m.dropout if own_dropout else None
    how: dict[str, Any] = {"dropout": dropout, "dtype": m.dtype, "remat": m.remat, "unroll": m.unroll}
    arch = architecture(**presets, init_from=m.init_from, parts=names, **how)
    return arch, names


def _check_given(config: Config, retrieves: bool) -> None:
    """Names at once what an experiment leaves to its user: weights of that size and the files to read."""
    m, d = config.model, config.data
    missing = []
    if not m.init_from and any(getattr(m, part) not in ("", "tiny") for part in PARTS):
        missing.append("config.model.init_from: random weights of these sizes have no tokenizer; give a directory")
    towers_alone = config.recipe == "dpr"  # its questions come with passages
    brings_passages = towers_alone or (d.dataset in TASKS and TASKS[d.dataset].passages is not None)
    if retrieves and d.dataset != "world_facts" and not (d.passages_path or brings_passages):
        missing.append(f"config.data.passages_path: data set {d.dataset!r} needs passages")
    if d.dataset != "world_facts" and not (d.questions_path or (d.eval_questions_path and not towers_alone)):
        missing.append(f"config.data.questions_path: data set {d.dataset!r} needs questions")
    if missing:
        raise ValueError("; ".join(missing))


def passage_index(
    parts: Parts,
    directory: str | os.PathLike[str],
    backend: str,
    dtype: str = "",
    vectors: Float[np.ndarray, "N D"] | None = None,
    *,
    weights: str = "",
    derived: bool = True,
) -> Index:
    """Opens the index at `directory`, or makes it there if there is none.

    One that is damaged or was made for something else is made again if it is a derived file, which is told on standard
    error, and else refused. Of several processes the first makes it, and the others open it then.

    Args:
      parts: the passages and the encoder.
      directory: where the index is or shall be.
      backend: how to search.
      dtype: what the vectors are scored as; "" takes an index as it is, and float32 for a new one.
      vectors: of the passages by the passage encoder, if they are known; None: they are made if they are needed.
      weights: what the passage encoder was loaded from, for whoever adds to the index later; "" = nothing that stays.
      derived: whether the index is nobody's but the caller's, so that it may be replaced.

    Raises:
      FileNotFoundError: something is at `directory`, and it is no index; it is never overwritten.
      IndexMismatch: the index there is another one, and not derived.
    """
    chosen, limit = backend_named(backend), parts.tokenizers.max_passage
    source = {"weights": weights} if weights else {}
    opened = functools.partial(
        open_or_build,
        pathlib.Path(directory),
        PassageTable.from_passages(parts.collection.passages),
        functools.partial(embed_passages, parts.arch.passage_encoder, parts.passage_encoder, parts.tokenizers),
        encoder_fingerprint="" if chosen.texts else fingerprint(parts.passage_encoder),
        backend=backend,
        dtype=dtype,
        vectors=vectors,
        made_with={} if chosen.texts else source | {MAX_PASSAGE_TOKENS: limit},
        derived=derived,
    )
    kept: list[Index] = []
    first_alone(lambda: kept.append(opened()))
    return kept[0] if kept else opened()


def make_layout(config: Config, params: str = "", devices: Sequence[jax.Device] | int | None = None) -> Layout:
    """The mesh over all devices, and where the configuration puts what lies on it.

    Args:
      config: final.
      params: instead of `config.sharding.params`.
      devices: see `make_mesh`.

    Raises:
      ValueError: `config.sharding.model` does not divide the devices of a host.
    """
    s = config.sharding
    rules = state_rules(params or s.params, s.optimizer)
    return Layout(make_mesh(s.model, devices), rules, s.min_elements)


def index_place(config: Config, workdir: str | os.PathLike[str]) -> pathlib.Path:
    """Where the index of a run lies or shall lie."""
    name = "index-bm25" if config.retriever == "bm25" else "index"
    return pathlib.Path(config.index.directory or pathlib.Path(workdir) / name)


def make_retriever(
    config: Config,
    parts: Parts,
    workdir: str | os.PathLike[str],
    k: int,
    layout: Layout = ONE_DEVICE,
    encoded_in_step: bool = False,
    questions: Sequence[Question] = (),
) -> Retriever | ClosedBook:
    """The retriever of the configuration.

    Args:
      config: final.
      parts: passages, tokenizers, and the encoder of an index that is not there yet.
      workdir: the run's directory, where an index lies unless the configuration names another place.
      k: passages a question. The oracle has no more than a question has gold passages.
      layout: see `Retriever`.
      encoded_in_step: batches are for training the passage encoder.
      questions: those that will be asked, for the oracle.

    Raises:
      ValueError: no gold passage is known for a question, and the retriever is the oracle.
    """
    if config.retriever == "none":
        return ClosedBook(parts.arch.generator.pad_id)
    if config.retriever in ("random", "gold"):
        passages = PassageTable.from_passages(parts.collection.passages)
        if config.retriever == "random":
            drawn = RandomSearcher(len(passages), config.seed)
            return retriever_over(config, parts, Baseline(passages, drawn), k, layout)
        gold = GoldSearcher(passages, questions)
        return retriever_over(config, parts, Baseline(passages, gold), min(k, gold.most), layout)
    return retriever_over(config, parts, run_index(config, parts, workdir), k, layout, encoded_in_step)


def run_index(config: Config, parts: Parts, workdir: str | os.PathLike[str]) -> Index:
    """`passage_index` of the configuration, in the run directory unless it names another place.

    One that it names is its user's, so it is made if there is none, and never made again.

    Raises:
      FileNotFoundError, IndexMismatch: see `passage_index`.
    """
    of_words = config.retriever == "bm25"
    backend, dtype = ("bm25", "") if of_words else (config.index.backend, config.index.dtype)
    place, derived = index_place(config, workdir), not config.index.directory
    try:
        return passage_index(parts, place, backend, dtype, weights=encoder_source(config), derived=derived)
    except IndexMismatch as error:
        if derived:
            raise
        raise IndexMismatch(
            f"{error}. config.index.directory names it, so it stays as it is: set what differs as it is in the index, "
            f"build it again (rag-jax index build SOURCE {place} --overwrite), or leave config.index.directory empty, "
            "and the run makes an index of its own"
        ) from error


def encoder_source(config: Config) -> str:
    """Where the passage encoder of a configuration comes from; "" where it is trained, drawn at random or not there."""
    untouched = config.model.init_from and has_towers(config) and not config.index.refresh_every
    return weights_name(config.model.init_from) if untouched else ""


def device_settings(config: Config, dtype: str) -> DeviceSettings:
    """How vectors of this dtype lie on the devices and are searched inside the step."""
    i = config.index
    return DeviceSettings(dtype, i.recall_target, over_retrieve=i.over_retrieve, remainders=i.remainders)


def retriever_over(
    config: Config,
    parts: Parts,
    index: Index | Baseline,
    k: int,
    layout: Layout = ONE_DEVICE,
    encoded_in_step: bool = False,
) -> Retriever:
    """An open index as the configuration's generator reads from it; `encoded_in_step` as in `make_retriever`."""
    more: dict[str, Any] = {
        "layout": layout,
        "encoded_in_step": encoded_in_step,
        "null_document": config.null_document != "none",
    }
    if config.index.in_step and isinstance(index, Index):  # of words nothing lies on a device
        settings = device_settings(config, index.manifest.parameters["dtype"])
        return DeviceRetriever(index, parts.tokenizers, k, settings, **more)
    if not config.data.hf_compat_input:
        return Retriever(index, parts.tokenizers, k, **more)
    form, most = load_hf_format(config.model.init_from or "world"), config.data.max_source_tokens
    return HfCompatRetriever(index, parts.tokenizers, k, most, form, **more)


def answer_questions(
    config: Config,
    parts: Parts,
    params: dict[str, Any],
    retriever: Retriever | ClosedBook,
    questions: Sequence[Question],
    *,
    alternatives: bool = False,
    one_shape: bool = False,
) -> tuple[Answer, ...]:
    """Answers as the configuration says, in the order of the questions.

    Args:
      config: final.
      parts: sizes and tokenizers.
      params: the trained ones, on the host, or on the devices as `evaluation_layout` places them.
      retriever: over the layout that `evaluation_layout` gives.
      questions: with their texts.
      alternatives: with all answers that the beams found, and not the best alone.
      one_shape: see `rag_jax.rag.answer.answer`.
    """
    layout, beams = evaluation_layout(config), config.eval.beams
    options = DecodeOptions(
        max_new_tokens=config.data.max_target_tokens,
        num_beams=beams,
        num_return_sequences=beams if alternatives else 1,
    )
    return tuple(
        answer(
            layout.place(params),
            parts.arch,
            parts.tokenizers,
            retriever,
            [question.text for question in questions],
            variant=config.variant,
            batch_size=config.eval.batch_size,
            max_source=config.data.max_source_tokens,
            options=options,
            fast=config.eval.decoding == "fast",
            labels=config.data.labels,
            seed=config.seed,
            layout=layout,
            one_shape=one_shape,
        )
    )


def evaluation_layout(config: Config, devices: Sequence[jax.Device] | int | None = None) -> Layout:
    """As `make_layout`, but parameters are whole: fetching them layer by layer for every token would take longest."""
    return make_layout(config, "replicated", devices)
