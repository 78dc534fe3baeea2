"""Decoding beside the torch peer: same weights, same sources, in alternation, one process for each side.

    python benchmarks/decode.py --passages=psgs.tsv --tokenizer=bart_tokenizer     needs the extra `parity`; ~40 minutes
    python benchmarks/decode.py --quick                                            small sizes, under a minute

BART-base sizes with random weights, four beams, 20 tokens, two questions. In the cases `same` both sides read 128
tokens; in `real` passages have the lengths of real ones, which the peer pads to 300. The peer's thorough decoding drops
the attention mask in its search, reads the padding as text, and so may find another answer than with padding left out:
`same_answers` is false then. Candidates are de-duplicated on both sides. The last case is K = 50 greedy with 50
candidates and shows memory.
"""

from __future__ import annotations

import json
import pathlib
import resource
import statistics
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from peer import PAD, PEER_WIDTH, SIZES, argument_parser, bucketed, make_peer, real_lengths, run_sides, show, sources
from sides import serve

QUESTIONS, BEAMS, TOKENS, SAME_WIDTH = 2, 4, 20, 128
CASES = [("token", 5, "same"), ("thorough", 5, "same"), ("thorough", 10, "same"),
         ("token", 5, "real"), ("thorough", 5, "real"), ("thorough", 10, "real")]  # fmt: skip


def peer_step(job: dict[str, Any]) -> Callable[[], Any]:
    """One decoding call of the peer."""
    import torch

    model = make_peer(SIZES[job["size"]], job["variant"], job["passages"])
    width = SAME_WIDTH if job["lengths"] == [SAME_WIDTH] else PEER_WIDTH
    ids = sources(job["lengths"], (QUESTIONS, job["passages"]), SIZES[job["size"]]["vocab_size"])[..., :width]
    ids = torch.tensor(ids).flatten(0, 1)
    given = {
        "context_input_ids": ids,
        "context_attention_mask": ids.ne(PAD).long(),
        "doc_scores": torch.tensor(job["scores"], dtype=torch.float32),
        "num_beams": job["beams"],
        "num_return_sequences": 1,
        "min_new_tokens": TOKENS,
        "max_length": TOKENS + 1,
    }

    def step() -> Any:
        with torch.no_grad():
            return model.generate(**given)[:, 1:].tolist()

    return step


def our_step(job: dict[str, Any]) -> Callable[[], Any]:
    """One decoding call of ours, on the peer's weights, its sources bucketed and packed as for any batch."""
    import jax
    import jax.numpy as jnp

    from rag_jax.models import hf
    from rag_jax.rag.decode import decode_sequence, decode_token
    from rag_jax.rag.marginal import log_prior
    from rag_jax.rag.rules import DecodeOptions

    rag = hf.load_rag(job["weights"], "token" if job["variant"] == "token" else "sequence")
    config, params = rag.generator, rag.params["generator"]
    ids = sources(job["lengths"], (QUESTIONS, job["passages"]), config.vocab_size)
    batch, _ = bucketed(ids)
    ids, slots = jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), (batch.passages, batch.slots))
    options = DecodeOptions(max_new_tokens=TOKENS, min_new_tokens=TOKENS, num_beams=job["beams"])
    function = decode_token if job["variant"] == "token" else decode_sequence
    prior = log_prior(jnp.asarray(job["scores"], jnp.float32))
    decode = jax.jit(
        lambda p, ids, slots, prior: function(p, config, ids, ids != PAD, prior, options, slots=slots).tokens[:, 0]
    )
    params = jax.device_put(params)
    return lambda: np.asarray(decode(params, ids, slots, prior)).tolist()


def work(side: str, job: dict[str, Any]) -> None:
    """One side: answers, the seconds they took, and the peak of memory."""
    step = (peer_step if side == "peer" else our_step)(job)

    def tell(value: Any) -> dict[str, Any]:
        return {"value": value, "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}

    serve(step, tell)


def main() -> None:
    """Prints one JSON object for each case."""
    options = argument_parser(__doc__, rounds=3).parse_args()
    if options.work:
        work(options.work, json.loads(options.job))
        return
    size = "quick" if options.quick else "base"
    real = real_lengths(options.passages, options.tokenizer, 64) if options.passages else []
    with tempfile.TemporaryDirectory() as folder:
        for variant, passages, kind in CASES:
            name = f"{variant} k={passages} {kind}"
            if options.only not in name or (kind == "real" and not real):
                continue
            job = make_job(size, variant, passages, [SAME_WIDTH] if kind == "same" else real, BEAMS, folder)
            steps = run_sides(__file__, job, ("peer", "ours"), options.rounds)
            ours, peer = (QUESTIONS / statistics.median(s["seconds"] for s in steps[side]) for side in ("ours", "peer"))
            equal = steps["ours"][0]["value"] == steps["peer"][0]["value"]
            show(case=name, metric="questions per second", ours=ours, peer=peer, ratio=ours / peer, same_answers=equal)
        name = "thorough k=50 greedy, 50 candidates"
        if options.only in name:
            job = make_job(size, "thorough", 50, [SAME_WIDTH], 1, folder)
            (step,) = run_sides(__file__, job, ("ours",), 1)["ours"]
            peak = step["peak_gib"]
            show(case=name, metric="peak memory, GiB", ours=peak, bound=8.0, ratio=peak / 8, seconds=step["seconds"])


def make_job(size: str, variant: str, passages: int, lengths: list[int], beams: int, folder: str) -> dict[str, Any]:
    """What a worker needs to know; the peer's weights are written for ours to read."""
    weights = pathlib.Path(folder) / f"{variant}-{passages}"
    if not weights.exists():
        make_peer(SIZES[size], variant, passages).save_pretrained(weights)
    scores = np.random.default_rng(1).normal(size=(QUESTIONS, passages)).tolist()
    names = ("size", "variant", "passages", "lengths", "beams", "weights", "scores")
    return dict(zip(names, (size, variant, passages, lengths, beams, str(weights), scores), strict=True))


if __name__ == "__main__":
    main()
