"""One step of RAG-Token's beam search as a TPU would run it: compiled without a TPU, read and priced, never timed.

    python benchmarks/decode_tpu.py                BART-large, K = 5, 20, 50; needs libtpu (extra `tpu`), ~10 minutes
    python benchmarks/decode_tpu.py --quick        two narrow layers, long sources, K = 5

Eight questions on one v5e chip, four beams, sources of 256 tokens, answers of 32, bfloat16 weights. Decoding is bound
by memory: the ideal step reads the decoder's weights once, every passage's keys and values once and the caches of the
answers once. Bytes count whole tiles, as a TPU moves them; what stays in the chip's vector memory from step to step is
not counted (of the small sizes a good part, so that their ratio may be below 1). The times are AOT estimates, never
compared with a chip: only their ratios mean something.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rag_jax.models.bart import Bart, BartConfig
from rag_jax.models.layers import LANES
from rag_jax.models.presets import BART_PRESETS
from rag_jax.rag.decode import decode_token
from rag_jax.rag.rules import DecodeOptions
from rag_jax.tpu.chips import CHIPS, GIB
from rag_jax.tpu.hlo import read_program
from rag_jax.tpu.loops import loops
from rag_jax.tpu.price import price
from rag_jax.tpu.topology import devices
from rag_jax.tpu.traffic import rearrangements

QUESTIONS, BEAMS = 8, 4
BOUNDS = {5: 1.3, 50: 1.5}  # bytes of a step over the ideal, by K
LARGE = dataclasses.replace(BART_PRESETS["bart-large"], dtype=jnp.bfloat16, vocab_multiple=128, cache_row=LANES)
SMALL = dataclasses.replace(
    LARGE, vocab_size=2000, width=512, encoder_layers=1, decoder_layers=2, encoder_heads=8, decoder_heads=8,
    encoder_hidden=1024, decoder_hidden=1024,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Ideal:
    """Bytes of one step that nothing can save, by what is read."""

    weights: int
    cross: int
    own: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.cross + self.own


def ideal(config: BartConfig, passages: int, source: int, tokens: int) -> Ideal:
    """Each matrix of the decoder and the vocabulary once, and both kinds of keys and values once, at 2 bytes."""
    width, layers, rows = config.width, config.decoder_layers, QUESTIONS * passages
    # The source's keys and values are not projected again: of their attention, query and output remain.
    matrices = layers * (6 * width * width + 2 * width * config.decoder_hidden) + config.table_rows * width
    keys_values = 2 * layers * rows * width
    return Ideal(2 * matrices, 2 * keys_values * source, 2 * keys_values * tokens * BEAMS)


def compile_decoder(config: BartConfig, passages: int, source: int, tokens: int, weights: Any) -> Any:
    """RAG-Token's whole decoding, compiled for one chip of a v5e."""
    place = jax.sharding.SingleDeviceSharding(devices("v5e:2x4")[0])

    def like(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    ids = jnp.ones((1, 4), jnp.int32)
    params = jax.eval_shape(Bart(config).init, jax.random.key(0), ids, ids == 1, ids)["params"]
    params = jax.tree.map(lambda leaf: like(leaf.shape, weights), params)
    options = DecodeOptions(max_new_tokens=tokens, num_beams=BEAMS)
    decode = jax.jit(lambda params, ids, mask, prior: decode_token(params, config, ids, mask, prior, options))
    shape = (QUESTIONS, passages, source)
    return decode.lower(params, like(shape, jnp.int32), like(shape, bool), like(shape[:2], jnp.float32)).compile()


def report(config: BartConfig, name: str, passages: int, source: int, tokens: int, weights: Any, dump: str) -> float:
    """Compiles one case and prints what a pass of its loop costs; the bytes it moves."""
    compiled = compile_decoder(config, passages, source, tokens, weights)
    text = compiled.as_text()
    if dump:
        with open(f"{dump}-k{passages}.txt", "w") as file:
            file.write(text)
    program, chip = read_program(text), CHIPS["v5e"]
    (loop,) = (loop for loop in loops(program) if loop.trips == tokens and loop.at_most)
    cost, least = price(program, chip, loop.body), ideal(config, passages, source, tokens)
    say = {"case": f"{name} k={passages}", "chip": "v5e"}
    bound = BOUNDS.get(passages, max(BOUNDS.values()))
    moved = {"ours": cost.hbm_bytes / least.total, "bound": bound, "ratio": cost.hbm_bytes / least.total / bound}
    parts = {part: value / 1e9 for part, value in dataclasses.asdict(least).items()}
    show(**say, metric="bytes of a step over the ideal", **moved, gigabytes=cost.hbm_bytes / 1e9, ideal_gigabytes=parts)
    seconds, roofline = cost.seconds, least.total / chip.hbm_bandwidth
    times = {"ours": seconds * 1e3, "bound": roofline * 1e3, "ratio": seconds / roofline}
    show(**say, metric="a step, ms (AOT estimate)", **times, products=cost.product_seconds * 1e3)
    peak = compiled.memory_analysis().peak_memory_in_bytes / GIB
    show(**say, metric="peak memory, GiB", ours=peak, bound=chip.hbm_bytes / GIB, ratio=peak * GIB / chip.hbm_bytes)
    one_cache = least.own / config.decoder_layers / 2
    copies = [(line.name, line.source) for line in rearrangements(program, loop.body, one_cache)]
    show(**say, metric="cache-sized copies in a step", ours=len(copies), bound=0, ratio=None, which=copies)
    show(**say, metric="transfers to the host", ours=len(cost.host_transfers), bound=0, ratio=None)
    return cost.hbm_bytes


def law(moved: dict[int, float]) -> None:
    """Prints how far the bytes of each number of passages lie from the line through the smallest and the largest."""
    few, *between, many = sorted(moved)
    for passages in between:
        expected = np.interp(passages, [few, many], [moved[few], moved[many]])
        show(case=f"law: decoding k={passages}", metric=f"GB of a step beside the line through k={few} and k={many}",
             ours=moved[passages] / 1e9, bound=expected / 1e9, ratio=moved[passages] / expected)  # fmt: skip


def show(**line: Any) -> None:
    """One line."""
    print(json.dumps(line), flush=True)


def main() -> None:
    """Prints one JSON object for each metric of each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two narrow layers")
    parser.add_argument("--passages", type=int, nargs="+", default=[5, 20, 50])
    parser.add_argument("--float32-weights", action="store_true", help="parameters as training keeps them")
    parser.add_argument("--dump", default="", help="also write the programs to files whose names begin so")
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")  # the host's backend; the programs are compiled, not run
    weights = jnp.float32 if options.float32_weights else jnp.bfloat16
    if options.quick:
        # Long sources: narrow caches would all fit into the chip's vector memory.
        report(SMALL, "small", 5, 1024, 32, weights, options.dump)
        return
    law({k: report(LARGE, "bart-large", k, 256, 32, weights, options.dump) for k in options.passages})


if __name__ == "__main__":
    main()
