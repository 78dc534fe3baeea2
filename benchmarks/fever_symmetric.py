"""FEVER 2-way with the tiny model that ships with the package: FeverSymmetric's claims over their own evidence.

    python benchmarks/fever_symmetric.py FEVER_SYMMETRIC             both cases, some minutes on two CPU cores
    python benchmarks/fever_symmetric.py FEVER_SYMMETRIC --quick     the first case with few claims, under a minute

`FEVER_SYMMETRIC` holds fever_symmetric_dev.jsonl as its authors publish it. The tiny model, which knows the words of
World Facts alone, is trained on seven claims of ten by train.py's function and evaluated on the others by eval.py's;
claims that share evidence stay together. One JSON object a case; the bound is the majority class.

    one evidence      of every two sentences of evidence the one that is FEVER's: each claim has one label
    both evidences    the set as it is: every claim stands twice, supported by one sentence and refuted by the other.
                      Which is meant a system that reads claims alone cannot know: 0.5 is the most and the least
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import re
import tempfile
from typing import Any

import numpy as np

from rag_jax.config import Config, finalise
from rag_jax.evaluation.run import evaluate
from rag_jax.training.loop import train, trained_params

FILE = "fever_symmetric_dev.jsonl"
WORDS = ("something", "Nothing")  # for supports and refutes; the tiny model has few words of one token
TRAINED_ON = 0.7
CASES = (("one evidence", True), ("both evidences", False))  # and whether each claim has one
# The authors' numbers: a claim of FEVER's with its evidence has FEVER's id, and the three other pairs of two claims and
# two sentences have 0000002 (other evidence), 0000003 (other claim) and 0000004 (both) behind it.
PAIR = re.compile(r"(\d+?)(000000[234])?")
OTHER_EVIDENCE = ("0000002", "0000004")


def claims(path: pathlib.Path, one_evidence: bool) -> dict[str, list[dict[str, Any]]]:
    """FEVER's id -> the lines of the pairs that were made of that claim."""
    found: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for line in path.read_text("utf-8").splitlines():
        record = json.loads(line)
        id_, which = PAIR.fullmatch(record["id"]).groups()
        if not (one_evidence and which in OTHER_EVIDENCE):
            found[id_].append(record)
    return found


def split(groups: dict[str, list[dict[str, Any]]], most: int | None, folder: pathlib.Path) -> None:
    """Writes train.jsonl and dev.jsonl in the authors' format."""
    ids = sorted(groups)
    order = [ids[n] for n in np.random.default_rng(0).permutation(len(ids))][:most]
    cut = round(TRAINED_ON * len(order))
    for name, chosen in (("train", order[:cut]), ("dev", order[cut:])):
        records = [record for id_ in chosen for record in groups[id_]]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


def experiment(folder: pathlib.Path, steps: int) -> Config:
    """The tiny model on these files, the passages being the evidence of both."""
    config = Config()
    config.k = 3
    config.data.dataset = "fever_symmetric"
    config.data.questions_path = str(folder / "train.jsonl")
    config.data.eval_questions_path = str(folder / "dev.jsonl")
    config.data.labels = WORDS
    config.data.max_question_tokens = 48
    config.data.max_passage_tokens = 128
    config.data.max_source_tokens = 160
    config.model.dropout = 0.0
    config.index.backend = "device"
    config.index.in_step = True  # one shape for all batches, so one compilation
    config.optimizer.learning_rate = 3e-4
    config.optimizer.warmup_steps = min(20, steps)
    config.optimizer.clip_norm = 1.0
    config.optimizer.label_smoothing = 0.0
    config.train.batch_size = 16
    config.train.steps = steps
    config.train.checkpoint_every = steps
    config.eval.metrics = ("accuracy",)
    return finalise(config)


def measure(case: str, data: pathlib.Path, one_evidence: bool, most: int | None, steps: int) -> dict[str, Any]:
    """Trains, evaluates, and counts."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        split(claims(data / FILE, one_evidence), most, folder)
        config = experiment(folder, steps)
        train(config, folder / "run")
        done = evaluate(config, folder / "run", trained_params)
    labels = [question.answers[0] for question in done.questions]
    ours = sum(given.text == label for given, label in zip(done.answers, labels, strict=True)) / len(labels)
    bound = collections.Counter(labels).most_common(1)[0][1] / len(labels)
    return {
        "case": case,
        "metric": "accuracy",
        "ours": round(ours, 4),
        "bound": round(bound, 4),
        "ratio": round(ours / bound, 4),
        "claims": len(labels),
        "trained_on": len(done.parts.collection.train),
        "passages": len(done.parts.collection.passages),
        "steps": steps,
        "gold_recall_at_3": round(done.figures["gold_recall_at_3"], 4),
    }


def main() -> None:
    """The cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="the first case, 30 of FEVER's claims, 5 steps")
    options = parser.parse_args()
    most, steps = (30, 5) if options.quick else (None, 40)
    for case, one_evidence in CASES[:1] if options.quick else CASES:
        print(json.dumps(measure(case, options.data, one_evidence, most, steps)), flush=True)


if __name__ == "__main__":
    main()
