"""What thorough decoding's rescoring computes: everything, then no prefix twice and none that is known, then less.

    python -m benchmarks.rescoring               the World Facts model and random weights of its sizes, ~10 minutes
    python -m benchmarks.rescoring --quick       16 questions and one round, ~4 minutes

The three counts are pairs of a prefix and a passage, a question: one for each token of each of the K x beams candidates
under each passage (`whole`); each prefix once, and none under a passage whose own search has computed it (`lacking`);
and those of them that can still matter (`pruned`). Answers and their probabilities must be the same with and without
pruning. Seconds are medians of whole decoding calls in alternation.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import tempfile
import time
from typing import Any

import jax
import numpy as np

from configs.world import get_config
from rag_jax.config import finalise, update
from rag_jax.experiment import load_parts, make_retriever
from rag_jax.rag.decode import Decoded, decode_sequence
from rag_jax.rag.loss import batch_prior, batch_source
from rag_jax.rag.model import Architecture
from rag_jax.rag.rules import DecodeOptions
from rag_jax.rag.shapes import source_width
from rag_jax.text.tokens import trim
from rag_jax.types import Batch

BATCH, BEAMS = 8, 4


@functools.partial(jax.jit, static_argnames=("arch", "width", "options", "prune"))
def decode(params: Any, arch: Architecture, batch: Batch, width: int, options: DecodeOptions, prune: bool) -> Decoded:
    """Thorough decoding of one batch."""
    prior = batch_prior(params, arch, batch)
    source, mask = batch_source(arch, batch, width)
    return decode_sequence(params["generator"], arch.generator, source, mask, prior, options, prune=prune)


def measure(name: str, passages: int, changes: dict[str, Any], count: int, rounds: int) -> None:
    """Prints the figures of one set of weights; the questions are the validation split's, evenly spread."""
    config = finalise(update(get_config(), {"k": passages, "eval.split": "validation", **changes}))
    parts = load_parts(config)
    with tempfile.TemporaryDirectory() as folder:
        retriever = make_retriever(config, parts, folder, passages)
    params, tokenizers = parts.params, parts.tokenizers
    every = parts.collection.evaluation
    texts = [every[i].text for i in np.linspace(0, len(every) - 1, count).astype(int)]
    pad = tokenizers.source.pad_token_id
    asked = trim(tokenizers.questions(texts), tokenizers.question.pad_token_id, 8)
    source_asked = trim(tokenizers.source_questions(texts), pad, 8)
    batches = []
    for start in range(0, count, BATCH):
        take = slice(start, start + BATCH)
        tower = parts.arch.question_encoder, params["question_encoder"]
        hits = retriever.find(*tower, asked[take], texts[take])
        batches.append(retriever.batch(hits, asked[take], source_asked[take]))
    width = max(source_width(batch, pad, config.data.max_source_tokens) for batch in batches)
    options = DecodeOptions(max_new_tokens=config.data.max_target_tokens, num_beams=BEAMS)
    run = functools.partial(decode, params, parts.arch, width=width, options=options)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    results: dict[bool, list[Decoded]] = {}
    for _ in range(rounds + 1):  # the first compiles
        for prune in seconds:
            begin = time.perf_counter()
            results[prune] = jax.device_get([run(batch=batch, prune=prune) for batch in batches])
            seconds[prune].append(time.perf_counter() - begin)
    for all_, some in zip(results[False], results[True], strict=True):
        np.testing.assert_array_equal(all_.tokens, some.tokens)
        np.testing.assert_allclose(all_.logprob, some.logprob, atol=1e-4)
    counts = {prune: np.concatenate([decoded.computed for decoded in found]) for prune, found in results.items()}
    whole = passages * passages * BEAMS * options.max_new_tokens
    lacking, pruned = float(counts[False].mean()), float(counts[True].mean())
    case = f"rescoring {name} k={passages} beams={BEAMS}"
    show(case=case, metric="prefixes under passages, a question: whole", value=whole, questions=count)
    show(case=case, metric="prefixes under passages, a question: lacking", value=lacking, ratio=lacking / whole)
    show(case=case, metric="prefixes under passages, a question: pruned", value=pruned, ratio=pruned / whole)
    times = {prune: statistics.median(taken[1:]) for prune, taken in seconds.items()}
    metric = "seconds of decoding, pruned over all that is lacking"
    show(case=case, metric=metric, ours=times[True], before=times[False], ratio=times[True] / times[False])


def show(**line: Any) -> None:
    """One line."""
    print(json.dumps(line), flush=True)


def main() -> None:
    """Prints one JSON object for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer questions and rounds")
    quick = parser.parse_args().quick
    count, rounds = (16, 1) if quick else (64, 3)
    random = {"model.init_from": ""}
    for name, changes in (("world", {}), ("random", random)):
        for passages in (5, 10):
            measure(name, passages, changes, count, rounds)


if __name__ == "__main__":
    main()
