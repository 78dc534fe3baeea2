"""HOST. What train.py can run, by the configuration's `recipe`; failures end in one message and an exit code."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
import time
from typing import Any

import jax

from rag_jax.config import Config, to_json
from rag_jax.models.presets import BART_PRESETS, BERT_PRESETS, TINY_VOCAB
from rag_jax.models.weights import load_params, save_params
from rag_jax.rag.model import architecture, save_weights
from rag_jax.sharding import start
from rag_jax.text.tokens import Tokenizers, load_tokenizer
from rag_jax.training.loop import NonFiniteLoss, train
from rag_jax.training.metrics import MetricsWriter
from rag_jax.training.pretrain import ReaderStage, make_tokenizer, train_reader, train_towers

FAILED = 1  # exit code of a run that ended with a message


def run_recipe(config: Config, workdir: str | os.PathLike[str]) -> int:
    """Runs the configuration's recipe; what a user can mend ends in one message on standard error.

    Returns:
      The exit code: 0, or 1 after a message.
    """
    try:
        start()
        RECIPES[config.recipe](config, workdir)
    except (ValueError, OSError, NonFiniteLoss) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    return 0


def world_pretrain(config: Config, workdir: str | os.PathLike[str]) -> None:
    """Makes tokenizer, towers and reader from nothing, as `configs/world_pretrain.py` says, into `workdir`/weights.

    A tokenizer and towers that are there are not made again. `workdir`/metrics.jsonl is the log.

    Raises:
      ValueError: there are several processes.
    """
    if jax.process_count() > 1:
        raise ValueError("config.recipe: world_pretrain runs on one host; it makes a tiny model")
    workdir, p = pathlib.Path(workdir), config.pretrain
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
    params: dict[str, Any] = {}
    with MetricsWriter(workdir) as metrics:

        def log(record: dict[str, Any]) -> None:
            print("  ".join(f"{name} {value}" for name, value in record.items() if "/" not in name), flush=True)
            words = [record.pop(name) for name in ("part", "split") if name in record]
            metrics.write(record.pop("step", 0), {"/".join([*words, name]): value for name, value in record.items()})

        parts = ("question_encoder", "passage_encoder")
        if all((workdir / f"{part}.safetensors").is_file() for part in parts):
            params |= {part: load_params(workdir / f"{part}.safetensors") for part in parts}
        else:
            towers = dataclasses.replace(BERT_PRESETS["tiny"], dropout=0.0, attention_dropout=0.0)
            params |= train_towers(
                towers,
                tokenizers,
                steps=p.tower_steps,
                groups=p.tower_groups,
                learning_rate=p.tower_learning_rate,
                seed=config.seed,
                log=log,
            )
            for part in parts:
                save_params(workdir / f"{part}.safetensors", params[part])
        stages = tuple(
            ReaderStage(steps, p.reader_batch_size, facts, widths)
            for steps, facts, widths in (
                (p.one_fact_steps, (1, 1), (48,)),
                (p.three_fact_steps, (1, 3), (64, 96)),
                (p.whole_steps, (3, 5), (96, 128)),
            )
        )
        params["generator"] = train_reader(
            BART_PRESETS["tiny"],
            tokenizers,
            stages=stages,
            learning_rate=p.reader_learning_rate,
            seed=config.seed,
            log=log,
            save=lambda stage, tree: save_params(workdir / f"reader-{stage}.safetensors", tree),
        )
        # No variant: the towers and the reader were trained apart, so both start from them.
        arch = architecture("tiny", "tiny", "tiny")
        save_weights(workdir / "weights", params, arch, tokenizers, variant=None, dtype="float16")
        log({"seconds": round(time.monotonic() - started)})


RECIPES = {"rag": train, "world_pretrain": world_pretrain}
