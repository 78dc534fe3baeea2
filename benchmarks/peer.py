"""The torch peer of the benchmarks: transformers' RAG with random weights, and sources for both sides to read."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from sides import alternate, launch

from rag_jax.text.readers import read_passages
from rag_jax.text.tokens import load_tokenizer_folder

SIZES = {
    "base": {"d_model": 768, "layers": 6, "heads": 12, "ffn": 3072, "vocab_size": 50265},
    "quick": {"d_model": 64, "layers": 2, "heads": 4, "ffn": 128, "vocab_size": 1000},
}
PEER_WIDTH = 300  # tokens that the peer pads every source to
PAD, BOS, EOS = 1, 0, 2


def make_peer(size: dict[str, int], variant: str, passages: int) -> Any:
    """The peer's RAG; it is handed sources and scores, so its question encoder may be tiny."""
    import torch
    import transformers as t

    torch.manual_seed(0)
    generator = t.BartConfig(
        vocab_size=size["vocab_size"], d_model=size["d_model"], encoder_layers=size["layers"],
        decoder_layers=size["layers"], encoder_attention_heads=size["heads"], decoder_attention_heads=size["heads"],
        encoder_ffn_dim=size["ffn"], decoder_ffn_dim=size["ffn"], dropout=0.0, pad_token_id=PAD, bos_token_id=BOS,
        eos_token_id=EOS, decoder_start_token_id=EOS, forced_eos_token_id=None,
    )  # fmt: skip
    encoder = t.DPRConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    config = t.RagConfig.from_question_encoder_generator_configs(
        encoder, generator, n_docs=passages, retrieval_vector_size=16
    )
    kind = t.RagTokenForGeneration if variant == "token" else t.RagSequenceForGeneration
    return kind(config).eval()


def sources(lengths: list[int], shape: tuple[int, int], vocab_size: int) -> np.ndarray:
    """Random ids [B, K, PEER_WIDTH] of these lengths in turn, longer ones cut, padded. `shape` is (B, K)."""
    rng = np.random.default_rng(0)
    ids = rng.integers(4, vocab_size, (*shape, PEER_WIDTH))
    length = np.resize(lengths, (*shape, 1)).clip(2, PEER_WIDTH)
    place = np.arange(PEER_WIDTH)
    ids[..., 0] = BOS
    return np.where(place == length - 1, EOS, np.where(place < length, ids, PAD))


def real_lengths(passages: str, tokenizer: str, count: int) -> list[int]:
    """Source lengths in tokens: a question of 12 and the first passages of a DPR file."""
    bart = load_tokenizer_folder(tokenizer, "bart")
    first = itertools.islice(read_passages(passages), count)
    return [12 + len(bart(f"{p.title} {p.text}")["input_ids"]) for p in first]


def bucketed(ids: np.ndarray) -> tuple[Any, int]:
    """A `Batch` of whole sources [B, K, PEER_WIDTH] as ours reads them, bucketed and packed, and its width."""
    from rag_jax.rag.shapes import packed  # the peer's process needs no jax
    from rag_jax.rag.source import bucket
    from rag_jax.types import Batch

    width = min(bucket(int((ids != PAD).sum(-1).max()), 32), PEER_WIDTH)  # of the longest of this batch
    return packed(Batch(None, np.zeros((len(ids), 0), int), ids[..., :width], None, None), PAD, width), width


def argument_parser(description: str, rounds: int) -> argparse.ArgumentParser:
    """The command line of a benchmark beside the peer; `work` and `job` are for the processes that it starts."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", default="", help="DPR's TSV, for the lengths of real passages")
    parser.add_argument("--tokenizer", default="", help="a folder with BART's vocab.json and merges.txt")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--only", default="", help="only the cases whose name holds this")
    parser.add_argument("--work", default="", help=argparse.SUPPRESS)
    parser.add_argument("--job", default="{}", help=argparse.SUPPRESS)
    return parser


def run_sides(
    script: str, job: dict[str, Any], sides: tuple[str, ...], rounds: int, environment: Mapping[str, str] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """The steps of each side of a script that takes these arguments, see `sides.launch` and `sides.alternate`."""
    given = {side: [script, f"--work={side}", f"--job={json.dumps(job)}"] for side in sides}
    return alternate({side: launch(own, environment) for side, own in given.items()}, rounds)


def show(**line: Any) -> None:
    """One line."""
    print(json.dumps(line), flush=True)
