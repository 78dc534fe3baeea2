"""What approximate search on a TPU loses, on real vectors. One JSON object per result.

    python benchmarks/device_recall.py NQ_MINI --encoder minilm --work runs/nq_mini
    python benchmarks/device_recall.py NQ_MINI --encoder minilm --quick        1,024 passages, under a minute

Passages and encoder are those of `benchmarks/nq_mini.py`, and so is `--work`: nothing is embedded twice. The vectors
are cut over eight shards as over eight chips, each searched with a recall target of .99. On a CPU that is exact, so the
TPU's rule is followed (`rag_jax.index.approximate`). The share of the exact k best that is found, over all questions,
is the recall; the rows in their order, where neighbours are alike, and in no order. With `--quick` no bucket holds two
passages: what is lost there is lost by rounding.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import jax
import numpy as np
from jax.sharding import AxisType
from nq_mini import embedded, load_encoder, read_questions

from rag_jax.index import DeviceSettings, ExactSearcher, device, device_index
from rag_jax.index.approximate import bucket_rule
from rag_jax.rag.retrieve import encode
from rag_jax.text.readers import read_passages

SHARDS, TARGET = 8, 0.99
BF16, INT8 = DeviceSettings("bfloat16", TARGET), DeviceSettings("int8", TARGET)
CASES = {  # settings, and the least share to be found
    "bfloat16": (BF16, 0.99),
    "int8": (INT8, 0.97),
    "int8, 4k scored again": (dataclasses.replace(INT8, over_retrieve=4), 0.99),
    "int8 with remainders, 4k scored again": (dataclasses.replace(INT8, over_retrieve=4, remainders=True), 0.995),
}


def main() -> None:
    """Every case, at two k, in both orders of the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--encoder", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, help="where the embedded passages are kept")
    parser.add_argument("--quick", action="store_true", help="1,024 passages and 64 questions")
    options = parser.parse_args()

    passages = list(read_passages(options.data / "psgs.tsv"))
    questions = read_questions(options.data / "questions.jsonl")
    if options.quick:
        passages, questions = passages[:1024], questions[:64]
    config, params, tokenizers = load_encoder(options.encoder)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or pathlib.Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        vectors = np.array(embedded(work, passages, config, params, tokenizers).vectors[: len(passages)])
    asked = np.asarray(encode(config, params, tokenizers.questions([question.text for question in questions])))

    mesh = jax.make_mesh((SHARDS,), ("data",), axis_types=(AxisType.Auto,))
    search = jax.jit(device.search, static_argnames="k")
    shuffled = np.random.default_rng(0).permutation(len(vectors))
    for order, rows in (("in their order", vectors), ("in no order", vectors[shuffled])):
        exact = {k: ExactSearcher(rows).search(asked, k) for k in (5, 20)}
        for case, (settings, least) in CASES.items():
            index = device_index(rows, settings, mesh).replace(as_on_tpu=True)
            for k, expected in exact.items():
                found = np.asarray(search(index, asked, k=k)[0])
                recall = np.mean([len({*a} & {*b}) / k for a, b in zip(expected, found, strict=True)])
                buckets, together = bucket_rule(-(-len(rows) // SHARDS), k * settings.over_retrieve, TARGET)
                result = {"case": f"{case}, rows {order}", "metric": f"recall@{k} of exact over {SHARDS} shards"}
                result |= {"ours": round(float(recall), 5), "bound": least, "ratio": round(float(recall) / least, 5)}
                print(json.dumps({**result, "buckets": buckets, "tiles_together": together}), flush=True)


if __name__ == "__main__":
    main()
