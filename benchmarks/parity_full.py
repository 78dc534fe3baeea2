"""A full-size RAG (BERT-base, BART-large, random weights, float32) against torch: logits, both losses, peak memory.

    python benchmarks/parity_full.py            about 5 GB of memory and 2.1 GB of disk in the temporary directory
    python benchmarks/parity_full.py --quick    the same with small networks

Each side is a process of its own, so that its peak memory is its own. Needs the extra `parity`.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

QUESTIONS, PASSAGES, QUESTION_TOKENS, SOURCE_TOKENS, TARGET_TOKENS = 2, 3, 16, 96, 16
BOUND = 1e-4


def peak_gib() -> float:
    """The most memory that this process has had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def make(directory: pathlib.Path, quick: bool) -> None:
    """Random weights and inputs."""
    import torch
    from transformers import BartConfig, DPRConfig, RagConfig, RagTokenForGeneration

    torch.manual_seed(0)
    few = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 256, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512}
    generator = BartConfig(**(few if quick else {}))
    encoder = DPRConfig(**({"num_hidden_layers": 2} if quick else {}))
    config = RagConfig.from_question_encoder_generator_configs(encoder, generator, n_docs=PASSAGES)
    RagTokenForGeneration(config).save_pretrained(directory / "rag")
    rng = np.random.default_rng(0)
    source = rng.integers(3, generator.vocab_size, (QUESTIONS, PASSAGES, SOURCE_TOKENS))
    lengths = rng.integers(SOURCE_TOKENS // 2, SOURCE_TOKENS + 1, (QUESTIONS, PASSAGES, 1))
    source = np.where(np.arange(SOURCE_TOKENS) < lengths, source, 1)
    labels = rng.integers(3, generator.vocab_size, (QUESTIONS, TARGET_TOKENS))
    labels[:, 0], labels[1, 10:] = 2, 1
    question = rng.integers(1, encoder.vocab_size, (QUESTIONS, QUESTION_TOKENS))
    vectors = rng.normal(size=(QUESTIONS, PASSAGES, encoder.hidden_size)).astype(np.float32) / 10
    np.savez(directory / "inputs.npz", source=source, labels=labels, question=question, vectors=vectors)


def peer(directory: pathlib.Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Torch's results."""
    import torch
    from transformers import RagSequenceForGeneration, RagTokenForGeneration

    source, labels, question = (torch.tensor(inputs[name]).long() for name in ("source", "labels", "question"))
    rows = source.flatten(0, 1)
    results = {}
    for variant, cls in (("sequence", RagSequenceForGeneration), ("token", RagTokenForGeneration)):
        model = cls.from_pretrained(directory / "rag").eval()
        with torch.no_grad():
            query = model.question_encoder(question)[0]
            scores = (query[:, None] * torch.tensor(inputs["vectors"])).sum(-1)
            out = model(
                context_input_ids=rows, context_attention_mask=(rows != 1).long(), doc_scores=scores, labels=labels
            )
        results[variant] = out.loss.numpy()
        if variant == "sequence":
            results |= {
                "scores": scores.numpy(),
                "logits": out.logits.reshape(*source.shape[:2], *out.logits.shape[1:]),
            }
        del model, out
    return results


def ours(directory: pathlib.Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Our results."""
    import jax
    import jax.numpy as jnp

    from rag_jax.models import hf
    from rag_jax.models.bert import Bert
    from rag_jax.rag import hf_compat
    from rag_jax.rag.score import passage_scores

    rag = hf.load_rag(directory / "rag", "token")
    given = {name: jnp.asarray(value) for name, value in inputs.items()}

    @jax.jit
    def compute(params: Any, given: dict[str, jax.Array]) -> dict[str, jax.Array]:
        query = Bert(rag.question_encoder).apply({"params": params["question_encoder"]}, given["question"])
        scores = passage_scores(query, given["vectors"])
        source, labels = given["source"], given["labels"]
        generator = (params["generator"], rag.generator)
        loss, logits = hf_compat.rag_loss(*generator, source, source != 1, scores, labels, variant="sequence")
        token = hf_compat.token_loss(logits, scores, labels, pad_id=rag.generator.pad_id)
        return {"scores": scores, "logits": logits, "sequence": loss, "token": token}

    return {name: np.asarray(value) for name, value in compute(rag.params, given).items()}


def main() -> None:
    """Runs every side in its own process and compares what they left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small networks")
    parser.add_argument("--side", choices=("make", "peer", "ours"), help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side == "make":
        return make(options.directory, options.quick)
    if options.side:
        start = time.perf_counter()
        inputs = dict(np.load(options.directory / "inputs.npz"))
        results = {"peer": peer, "ours": ours}[options.side](options.directory, inputs)
        np.savez(
            options.directory / f"{options.side}.npz", **results, peak=peak_gib(), seconds=time.perf_counter() - start
        )
        return None
    with tempfile.TemporaryDirectory() as place:
        directory = pathlib.Path(place)
        for side in ("make", "peer", "ours"):
            command = [sys.executable, __file__, "--side", side, "--directory", place, *["--quick"] * options.quick]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        there, here = (dict(np.load(directory / f"{side}.npz")) for side in ("peer", "ours"))
    case = "quick rag" if options.quick else "full rag"

    def show(metric: str, value: float, scale: float) -> None:
        print(
            json.dumps(
                {"case": case, "metric": metric, "ours": value, "bound": BOUND, "ratio": value / BOUND, "of": scale}
            )
        )

    for name in ("scores", "logits"):
        largest = float(np.abs(there[name]).max())
        show(f"largest difference of {name}", float(np.abs(here[name] - there[name]).max()), largest)
    for name in ("sequence", "token"):
        off = np.abs(here[name] / there[name] - 1).max()
        show(f"relative difference of the {name} loss", float(off), float(there[name].max()))
    for metric, key in (("peak memory in GiB", "peak"), ("seconds, loading and compiling included", "seconds")):
        mine, other = float(here[key]), float(there[key])
        print(json.dumps({"case": case, "metric": metric, "ours": mine, "peer": other, "ratio": mine / other}))
    return None


if __name__ == "__main__":
    main()
