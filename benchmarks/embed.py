"""Embedding passages on a CPU beside torch, and a build that is killed. One JSON object per result.

    python benchmarks/embed.py psgs.tsv --encoder minilm           needs the extra `parity`; about ten quiet minutes
    python benchmarks/embed.py psgs.tsv --encoder minilm --quick   fewer passages, about a minute

`psgs.tsv` is DPR's format, `--encoder` MiniLM as sentence-transformers keeps it. Both sides have the same weights,
begin with texts and end with vectors of unit length. The peer takes the passages in their order, 16 at a time, as the
script of Hugging Face's RAG does, and pads each batch to its longest; ours is the job behind `rag-jax index build`:
rows of about one length together, in a few compiled widths. Each side is a process of its own; they work in turn, and
the ratio is the median over the pairs.

The case `resume` is a build killed (signal 9) after its first shard and run again, beside one that nobody killed.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import pathlib
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from sides import alternate, launch, serve

PEER_BATCH, OUR_BATCH = 16, 32
MAX_TOKENS = 256
SHARD_ROWS = 64  # of the build that is killed
BOUND = 1.3


def some_passages(path: str, count: int) -> list[Any]:
    """Passages from all over the file, in its order."""
    from rag_jax.text.readers import read_passages

    passages = list(read_passages(path))
    return [passages[row] for row in np.linspace(0, len(passages) - 1, min(count, len(passages))).astype(int)]


def our_job(encoder: str) -> tuple[Callable[[Any], np.ndarray], Any]:
    """The embedding job over passages, and the parameters in it."""
    from rag_jax.models import hf
    from rag_jax.rag.retrieve import embed_passages
    from rag_jax.text.tokens import Tokenizers, load_tokenizer_folder

    config, params, _ = hf.load_bert(encoder)
    tokenizer = load_tokenizer_folder(encoder, "bert")
    tokenizers = Tokenizers(question=None, passage=tokenizer, source=None, target=None, max_passage=MAX_TOKENS)
    return functools.partial(embed_passages, config, params, tokenizers, batch_size=OUR_BATCH), params


def peer_job(encoder: str) -> Callable[[Any], np.ndarray]:
    """The same by torch. Title and text go in as a pair of one type, as ours reads them."""
    import torch
    import transformers

    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    model = transformers.BertModel.from_pretrained(encoder, add_pooling_layer=False).eval()

    def step(passages: Any) -> np.ndarray:
        vectors = []
        for start in range(0, len(passages), PEER_BATCH):
            batch = passages[start : start + PEER_BATCH]
            rows = tokenizer(
                [p.title for p in batch], [p.text for p in batch], truncation=True, max_length=MAX_TOKENS,
                padding="longest", return_tensors="pt",
            )  # fmt: skip
            mask = rows["attention_mask"]
            with torch.inference_mode():
                states = model(rows["input_ids"], attention_mask=mask).last_hidden_state
                mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                vectors.append(torch.nn.functional.normalize(mean, dim=-1).numpy())
        return np.concatenate(vectors)

    return step


def work(side: str, options: argparse.Namespace) -> None:
    """One side: passes over the passages, the vectors left in a file."""
    passages = some_passages(options.passages, options.count)
    step = peer_job(options.encoder) if side == "peer" else our_job(options.encoder)[0]

    def tell(vectors: np.ndarray) -> dict[str, Any]:
        np.save(pathlib.Path(options.folder) / side, vectors)
        return {}

    serve(lambda: step(passages), tell)


def start_side(options: argparse.Namespace, folder: str, side: str) -> subprocess.Popen[str]:
    """A process for one side."""
    return launch(
        [__file__, options.passages, f"--encoder={options.encoder}", f"--count={options.count}", f"--work={side}",
         f"--folder={folder}"]
    )  # fmt: skip


def build(options: argparse.Namespace) -> None:
    """The resumable build, a line after each shard; ends with the digest of its vectors."""
    from rag_jax.index import build_resumable, fingerprint

    embed, params = our_job(options.encoder)
    index = build_resumable(
        pathlib.Path(options.folder),
        some_passages(options.passages, options.count),
        embed,
        encoder_fingerprint=fingerprint(params),
        backend="exact",
        shard_rows=SHARD_ROWS,
        progress=lambda done, count: print(done, flush=True),
    )
    print(hashlib.sha256(np.ascontiguousarray(index.vectors).tobytes()).hexdigest(), flush=True)


def kill_and_resume(options: argparse.Namespace, folder: str) -> None:
    """Kills a build after its first shard, runs it again, and compares the bits with an undisturbed one's."""
    killed = start_side(options, f"{folder}/killed", "build")
    lines = iter(killed.stdout.readline, "")
    done = next(int(line) for line in lines if int(line) >= SHARD_ROWS)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    again, _ = start_side(options, f"{folder}/killed", "build").communicate()
    whole, _ = start_side(options, f"{folder}/whole", "build").communicate()
    kept = int(again.split()[0])
    equal = again.split()[-1] == whole.split()[-1]
    show(case="resume", metric="vectors bit-equal after a kill", ours=int(equal), bound=1, ratio=float(equal),
         passages=options.count, done_when_killed=done, taken_over=kept)  # fmt: skip


def show(**line: Any) -> None:
    """One result as a line of JSON."""
    rounded = {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in line.items()}
    print(json.dumps(rounded), flush=True)


def main() -> None:
    """Speed beside the peer's, then the kill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("passages")
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--count", type=int, default=1024, help="passages of a pass")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="128 passages, three rounds")
    parser.add_argument("--work", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.count, options.rounds = 128, 3
    if options.work == "build":
        build(options)
        return
    if options.work:
        work(options.work, options)
        return
    with tempfile.TemporaryDirectory() as folder:
        passes = alternate({side: start_side(options, folder, side) for side in ("peer", "ours")}, options.rounds)
        ours, peer = (
            options.count / statistics.median(p["seconds"] for p in passes[side]) for side in ("ours", "peer")
        )
        pairs = list(zip(passes["peer"], passes["ours"], strict=True))
        wall, processor = (
            statistics.median(p[name] / o[name] for p, o in pairs) for name in ("seconds", "processor_seconds")
        )
        difference = np.abs(np.load(f"{folder}/ours.npy") - np.load(f"{folder}/peer.npy")).max()
        show(case="embed", metric="passages per second", ours=ours, peer=peer, ratio=wall, bound=BOUND,
             ratio_of_processor_time=processor, passages=options.count, rounds=options.rounds,
             largest_difference=float(difference))  # fmt: skip
        options.count = min(options.count, 4 * SHARD_ROWS)
        kill_and_resume(options, folder)


if __name__ == "__main__":
    main()
