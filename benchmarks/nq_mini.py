"""Recall of the gold passage on real questions, by every index backend. One JSON object per result, a table at the end.

    python benchmarks/nq_mini.py NQ_MINI --encoder minilm --work runs/nq_mini     embeds for 5 to 10 quiet minutes
    python benchmarks/nq_mini.py NQ_MINI --encoder minilm --quick                 600 passages, under a minute

`NQ_MINI` holds psgs.tsv in DPR's format and questions.jsonl with `question`, `answers` and `positive_id`; `--encoder`
is MiniLM as sentence-transformers keeps it, which reads questions and passages with one tower. The passages are
embedded by the resumable job that `rag-jax index build` runs: with `--work` a killed run goes on, and the next one
embeds nothing. The bounds: for exact search the figures of MiniLM over twice as many questions, for the others those of
exact search.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from rag_jax.evaluation.retrieval import gold_recall
from rag_jax.index import (
    DeviceSettings,
    Index,
    ScannSettings,
    build_index,
    build_resumable,
    fingerprint,
    open_index,
)
from rag_jax.models import hf
from rag_jax.rag.retrieve import embed_passages, encode
from rag_jax.text.readers import read_passages
from rag_jax.text.tokens import Tokenizers, load_tokenizer_folder
from rag_jax.types import Passage, Question

KS = (1, 5, 20)
REFERENCE = {1: 0.785, 5: 0.963, 20: 0.991}
SHARD_ROWS = 512  # passages that a kill costs


def read_questions(path: pathlib.Path) -> list[Question]:
    """The questions, numbered by line, each with its one gold passage."""
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [
        Question(str(number), r["question"], tuple(r["answers"]), (str(r["positive_id"]),))
        for number, r in enumerate(records)
    ]


def load_encoder(directory: pathlib.Path) -> tuple[Any, Any, Tokenizers]:
    """Sizes, parameters and tokenizers of a sentence encoder; nothing in its passages is cut before 256 tokens."""
    config, params, _ = hf.load_bert(directory)
    tokenizer = load_tokenizer_folder(directory, "bert")
    tokenizers = Tokenizers(
        question=tokenizer, passage=tokenizer, source=None, target=None, max_question=64, max_passage=256
    )
    return config, params, tokenizers


def embedded(
    work: pathlib.Path, passages: Sequence[Passage], config: Any, params: Any, tokenizers: Tokenizers
) -> Index:
    """The passages under exact search, as they lie in `work` or embedded now."""
    directory, encoder = work / "exact", fingerprint(params)
    if directory.exists():
        return open_index(directory, encoder_fingerprint=encoder)
    console = Console(stderr=True)
    return build_resumable(
        directory,
        passages,
        functools.partial(embed_passages, config, params, tokenizers, batch_size=32),
        encoder_fingerprint=encoder,
        backend="exact",
        shard_rows=SHARD_ROWS,
        progress=lambda done, count: console.print(f"{done} of {count} passages embedded", highlight=False),
    )


def recalls(index: Index, questions: Sequence[Question], vectors: np.ndarray) -> dict[int, float]:
    """Recall of the gold passage at each k."""
    k = min(KS[-1], len(index.passages))
    if index.searches_texts:
        rows = index.search_texts([question.text for question in questions], k).rows
    else:
        rows = index.search(vectors, k)
    ids = [[index.passages[int(row)].id for row in found if row >= 0] for found in rows]
    ranked = {question.id: found for question, found in zip(questions, ids, strict=True)}
    return gold_recall(ranked, questions, KS)


def main() -> None:
    """Every backend over the same vectors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--encoder", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, help="where the embedded passages are kept")
    parser.add_argument("--quick", action="store_true", help="the first 600 passages and their questions")
    options = parser.parse_args()

    passages = list(read_passages(options.data / "psgs.tsv"))
    questions = read_questions(options.data / "questions.jsonl")
    if options.quick:
        passages = passages[:600]
        known = {passage.id for passage in passages}
        questions = [question for question in questions if known.issuperset(question.positive_ids)]
    config, params, tokenizers = load_encoder(options.encoder)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or pathlib.Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        exact = embedded(work, passages, config, params, tokenizers)
        vectors = np.asarray(encode(config, params, tokenizers.questions([question.text for question in questions])))
        # So few passages ScaNN scores one by one. The last row shows its codes and its tree all the same.
        leaves = max(1, round(len(passages) ** 0.5))
        tree = ScannSettings.derive(100_000, leaves=leaves, leaves_to_search=-(-leaves // 10))
        cases: dict[str, tuple[str, Any]] = {
            "exact": ("exact", None),
            "scann": ("scann", None),
            "device float32": ("device", DeviceSettings("float32")),
            "device bfloat16": ("device", DeviceSettings("bfloat16")),
            "device int8": ("device", DeviceSettings("int8")),
            "bm25": ("bm25", None),
            "scann, a tree and codes": ("scann", tree),
        }
        shown = Table(
            "backend", *(f"recall@{k}" for k in KS), title=f"{len(passages)} passages, {len(questions)} questions"
        )
        bounds = REFERENCE
        for case, (backend, settings) in cases.items():
            index = exact
            if backend != "exact":
                index = build_index(
                    pathlib.Path(temporary) / "other",
                    exact.passages,
                    exact.vectors,
                    encoder_fingerprint=exact.manifest.encoder,
                    backend=backend,
                    settings=settings,
                    overwrite=True,
                )
            found = recalls(index, questions, vectors)
            for k in KS:
                result = {
                    "case": case,
                    "metric": f"recall@{k}",
                    "ours": round(found[k], 4),
                    "bound": round(bounds[k], 4),
                }
                print(json.dumps({**result, "ratio": round(found[k] / bounds[k], 4)}), flush=True)
            shown.add_row(case, *(f"{found[k]:.3f}" for k in KS))
            if backend == "exact":
                bounds = found
    Console(stderr=True).print(shown)


if __name__ == "__main__":
    main()
