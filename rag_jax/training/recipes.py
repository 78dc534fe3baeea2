"""HOST. What train.py can run, by the configuration's `recipe`; failures end in one message and an exit code."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import jax

from rag_jax.config import Config, to_json
from rag_jax.experiment import Parts
from rag_jax.index import fingerprint, save_vectors
from rag_jax.models.presets import BART_PRESETS, BERT_PRESETS, TINY_VOCAB
from rag_jax.models.weights import load_params, save_params
from rag_jax.rag.model import architecture, init_towers, save_weights
from rag_jax.rag.retrieve import embed_passages
from rag_jax.sharding import is_first, start
from rag_jax.text.datasets import load_collection
from rag_jax.text.table import PassageTable
from rag_jax.text.tokens import Tokenizers, load_tokenizer
from rag_jax.text.world_facts import world_passages
from rag_jax.training.dpr import train_towers
from rag_jax.training.loop import Validate, train
from rag_jax.training.metrics import MetricsWriter
from rag_jax.training.pretrain import (
    TOWER_PASSAGE,
    make_tokenizer,
    reader_stages,
    towers_config,
    train_reader,
)
from rag_jax.training.steps import NonFiniteLoss
from rag_jax.training.stopping import STOPPED, Stopped

FAILED = 1  # exit code of a run that ended with a message


def run_recipe(
    config: Config, workdir: str | os.PathLike[str], profile: str = "", validate: Validate | None = None
) -> int:
    """Runs the configuration's recipe; what a user can mend ends in one message on standard error.

    Args:
      config: final.
      workdir: the run's own directory.
      profile: steps to trace, as in '10-13'; '' = none.
      validate: see `train`; the other recipes answer no questions.

    Returns:
      The exit code: 0; 1 after a message; `STOPPED` of a run that was asked to stop and can go on.
    """
    try:
        start()
        more = {"validate": validate} if config.recipe == "rag" else {}
        RECIPES[config.recipe](config, workdir, traced=_steps(profile), **more)
        if config.recipe == "rag" and is_first():
            print(f"{workdir}: trained. What it answers: python eval.py --workdir={workdir}", flush=True)
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return STOPPED
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        print(
            f"error: the work of several processes was broken off ({str(error).splitlines()[0][:300]}). If one of them "
            "ended, see what it said; the same command on all of them goes on from the last checkpoint",
            file=sys.stderr,
        )
        return FAILED
    except (ValueError, OSError, ImportError, NonFiniteLoss) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    return 0


def _steps(text: str) -> range | None:
    """'10-13' -> the steps from 10 to 13."""
    if not text:
        return None
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    steps = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
    if not steps or not steps[0]:
        raise ValueError(f"--profile={text}: steps from 1 on, as in 10-13")
    return steps


def world_pretrain(config: Config, workdir: str | os.PathLike[str], traced: range | None = None) -> None:
    """Makes tokenizer, towers and reader from nothing, as `configs/world_pretrain.py` says, into `workdir`/weights.

    A tokenizer and towers that are there are not made again. The logs are `workdir`/towers/metrics.jsonl, a run of
    recipe 'dpr', and `workdir`/metrics.jsonl, the reader's. Of the towers' steps some may be traced.

    Raises:
      ValueError: there are several processes.
    """
    if jax.process_count() > 1:
        raise ValueError("config.recipe: world_pretrain runs on one host; it makes a tiny model")
    workdir = pathlib.Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "config.json").write_text(to_json(config), "utf-8")
    started = time.monotonic()
    if not (workdir / "tokenizer.json").is_file():
        make_tokenizer(TINY_VOCAB, config.seed).backend_tokenizer.save(str(workdir / "tokenizer.json"))
    tokenizer = load_tokenizer(workdir / "tokenizer.json")
    d = config.data
    tokenizers = Tokenizers.shared(
        tokenizer,
        max_question=d.max_question_tokens,
        max_passage=d.max_passage_tokens,
        max_target=d.max_target_tokens,
    )
    # Dropout would only slow the towers down: no example comes twice.
    arch = architecture("tiny", "tiny", "tiny", dropout=0.0)
    towers = init_towers(arch, jax.random.key(config.seed))
    collection = load_collection("world_facts", edition=d.edition, split="validation")
    short = dataclasses.replace(tokenizers, max_passage=TOWER_PASSAGE)
    parts = Parts(arch, short, towers, towers["passage_encoder"], collection)
    params = train_towers(towers_config(config), workdir / "towers", parts, traced)
    with MetricsWriter(workdir, start=-1) as metrics:  # the reader is made anew

        def log(record: dict[str, Any]) -> None:
            print("  ".join(f"{name} {value}" for name, value in record.items() if "/" not in name), flush=True)
            words = [record.pop(name) for name in ("part", "split") if name in record]
            metrics.write(record.pop("step", 0), {"/".join([*words, name]): value for name, value in record.items()})

        params["generator"] = train_reader(
            BART_PRESETS["tiny"],
            tokenizers,
            stages=reader_stages(config),
            learning_rate=config.pretrain.reader_learning_rate,
            seed=config.seed,
            log=log,
            save=lambda stage, tree: save_params(workdir / f"reader-{stage}.safetensors", tree),
        )
        # No variant: the towers and the reader were trained apart, so both start from them.
        arch = architecture("tiny", "tiny", "tiny")
        save_weights(workdir / "weights", params, arch, tokenizers, variant=None, dtype="float16")
        keep_vectors(workdir / "weights", tokenizers, d.edition)
        log({"seconds": round(time.monotonic() - started)})


def keep_vectors(weights: pathlib.Path, tokenizers: Tokenizers, edition: str) -> None:
    """Puts the vectors of an edition of World Facts beside the weights, as whoever loads these would make them.

    Args:
      weights: the directory, with the sizes of 'tiny'.
      tokenizers: theirs.
      edition: of World Facts.
    """
    encoder = load_params(weights / "passage_encoder.safetensors")  # rounded as it is stored
    table = PassageTable.from_passages(item.passage for item in world_passages(edition))
    vectors = embed_passages(BERT_PRESETS["tiny"], encoder, tokenizers, table)
    made = {"passages": table.fingerprint, "encoder": fingerprint(encoder)}
    save_vectors(weights / f"world_facts_{edition}.safetensors", vectors, **made)


RECIPES: dict[str, Callable[..., Any]] = {"rag": train, "dpr": train_towers, "world_pretrain": world_pretrain}
