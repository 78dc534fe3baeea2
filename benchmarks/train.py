"""Training's loss and gradients beside the torch peer: same weights, same sources and targets, in alternation.

    python benchmarks/train.py --passages=psgs.tsv --tokenizer=bart_tokenizer     needs the extra `parity`; ~10 minutes
    python benchmarks/train.py --quick                                            small sizes, under a minute

RAG-Token, BART-base sizes with random weights, two questions with five passages each, 32 target tokens, dropout off;
gradients in all of the generator's parameters and in the passages' scores. In the case `train same` both sides read 128
tokens; in `train real` passages have the lengths of real ones, which the peer pads to 300. Ours runs its layers without
a loop (`model.unroll`). Both sides keep the memory that they free, as `--allocator=kept` says for glibc; with `default`
they give it back, and both take pages anew in every step.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from peer import (
    EOS,
    PAD,
    PEER_WIDTH,
    SIZES,
    argument_parser,
    bucketed,
    make_peer,
    real_lengths,
    run_sides,
    show,
    sources,
)
from sides import serve

QUESTIONS, PASSAGES, TOKENS, SAME_WIDTH = 2, 5, 32, 128
ALLOCATORS = {
    "kept": {
        "MALLOC_MMAP_MAX_": "0",  # large arrays come from the heap, which is
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),  # never cut, in
        "MALLOC_ARENA_MAX": "1",  # one place for all threads, on
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # pages of 2 MiB
    },
    "default": {},
}


def inputs(job: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sources [B,K,300], targets [B,T], scores [B,K]."""
    rng = np.random.default_rng(1)
    vocab_size = SIZES[job["size"]]["vocab_size"]
    targets = rng.integers(4, vocab_size, (QUESTIONS, TOKENS))
    targets[:, -1] = EOS
    ids = sources(job["lengths"], (QUESTIONS, PASSAGES), vocab_size)
    return ids, targets, rng.normal(size=(QUESTIONS, PASSAGES)).astype(np.float32)


def peer_step(job: dict[str, Any]) -> Callable[[], Any]:
    """The peer's loss, forward and backward."""
    import torch

    model = make_peer(SIZES[job["size"]], "token", PASSAGES).train()
    ids, targets, scores = inputs(job)
    ids = torch.tensor(ids[..., : job["width"]]).flatten(0, 1)
    # The peer's labels are its decoder's inputs, which it shifts left to get its targets.
    labels = torch.tensor(np.concatenate([np.full((QUESTIONS, 1), EOS), targets], axis=1))
    scores = torch.tensor(scores, requires_grad=True)
    given = {"context_input_ids": ids, "context_attention_mask": ids.ne(PAD).long(), "doc_scores": scores}

    def step() -> Any:
        model.zero_grad(set_to_none=True)
        scores.grad = None
        loss = model(**given, labels=labels, reduce_loss=True, use_cache=False, n_docs=PASSAGES).loss.sum()
        loss.backward()
        return loss.item(), scores.grad.norm().item()

    return step


def our_step(job: dict[str, Any]) -> Callable[[], Any]:
    """Ours, on the peer's weights, its sources bucketed and packed as the training loop does it."""
    import jax
    import jax.numpy as jnp

    from rag_jax.models import hf
    from rag_jax.rag.loss import rag_loss
    from rag_jax.rag.model import Architecture

    rag = hf.load_rag(job["weights"], "token")
    generator = dataclasses.replace(rag.generator, unroll=rag.generator.encoder_layers)
    arch = Architecture(rag.question_encoder, rag.question_encoder, generator)
    ids, targets, scores = inputs(job)
    batch, width = bucketed(ids)
    known = {"target": targets, "weight": np.ones(QUESTIONS, np.float32), "scores": scores}
    batch = batch.replace(valid=np.ones(scores.shape, bool), **known)
    batch = jax.tree.map(lambda x: jnp.asarray(x, jnp.int32 if x.dtype == int else x.dtype), batch)

    @jax.jit
    def step(params: Any, scores: jax.Array, batch: Any) -> Any:
        def loss(params: Any, scores: jax.Array) -> Any:
            given = {"variant": "token", "width": width, "reduction": "sum"}
            return rag_loss({"generator": params}, arch, batch.replace(scores=scores), **given)[0]

        value, (gradient, of_scores) = jax.value_and_grad(loss, argnums=(0, 1))(params, scores)
        return value, jnp.linalg.norm(of_scores), gradient

    params = jax.device_put(rag.params["generator"])

    def run() -> Any:
        value, norm, _ = jax.block_until_ready(step(params, batch.scores, batch))
        return float(value), float(norm)

    return run


def work(side: str, job: dict[str, Any]) -> None:
    """One side."""
    serve((peer_step if side == "peer" else our_step)(job), lambda value: {"value": value})


def main() -> None:
    """Prints one JSON object for each case."""
    parser = argument_parser(__doc__, rounds=5)
    parser.add_argument("--allocator", choices=ALLOCATORS, default="kept", help="what malloc does with freed memory")
    options = parser.parse_args()
    if options.work:
        work(options.work, json.loads(options.job))
        return
    size = "quick" if options.quick else "base"
    real = real_lengths(options.passages, options.tokenizer, 64) if options.passages else []
    with tempfile.TemporaryDirectory() as folder:
        weights = str(pathlib.Path(folder) / "weights")
        make_peer(SIZES[size], "token", PASSAGES).save_pretrained(weights)
        for kind, lengths, width in (("real", real, PEER_WIDTH), ("same", [SAME_WIDTH], SAME_WIDTH)):
            if options.only not in f"train {kind}" or not lengths:
                continue
            job = {"size": size, "lengths": lengths, "width": width, "weights": weights}
            sides = ("peer", "ours")
            steps = run_sides(__file__, job, sides, options.rounds, ALLOCATORS[options.allocator])
            rate = {side: QUESTIONS / statistics.median(s["seconds"] for s in steps[side]) for side in sides}
            used = {side: statistics.median(s["processor_seconds"] for s in steps[side]) for side in sides}
            apart = max(abs(a / b - 1) for a, b in zip(*(steps[s][0]["value"] for s in sides), strict=True))
            show(case=f"train {kind}", allocator=options.allocator, metric="questions per second",
                 ours=rate["ours"], peer=rate["peer"], ratio=rate["ours"] / rate["peer"],
                 processor_ratio=used["peer"] / used["ours"], loss_and_gradient_apart=apart)  # fmt: skip


if __name__ == "__main__":
    main()
