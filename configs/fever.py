r"""HOST. FEVER at the paper's size: does Wikipedia support a claim, refute it, or not say enough? No gold evidence.

Published (label accuracy): 72.5 % 3-way, 89.5 % 2-way. A label is one token, so that RAG-Token and RAG-Sequence are the
same.

    configs/fever.py             3-way
    configs/fever.py:ways=2      supports or refutes: claims without enough information are left out

Weights, passages and index are those of configs/nq.py. Claims are train.jsonl and shared_task_dev.jsonl (from
https://fever.ai/dataset/fever.html). The paper does not say how many passages it reads. Other words for the labels, in
FEVER's order: `--config.data.labels=yes,no,maybe`; each must be one token of the generator.

One host:

    python3 train.py --config=configs/fever.py:ways=2 --workdir=runs/fever \
      --config.model.init_from=weights --config.index.directory=index --config.data.passages_path=psgs_w100.tsv \
      --config.data.questions_path=train.jsonl --config.data.eval_questions_path=shared_task_dev.jsonl
    python3 eval.py --workdir=runs/fever

A slice of several hosts runs the same on each of them, over files that all see:

    gcloud compute tpus tpu-vm ssh $TPU --zone=$ZONE --worker=all --command="cd rag-jax && \
      python3 train.py --config=configs/fever.py:ways=2 --workdir=/mnt/shared/fever \
      --config.model.init_from=/mnt/shared/weights --config.index.directory=/mnt/shared/index \
      --config.data.passages_path=/mnt/shared/psgs_w100.tsv \
      --config.data.questions_path=/mnt/shared/train.jsonl \
      --config.data.eval_questions_path=/mnt/shared/shared_task_dev.jsonl"

Small enough for a laptop: `benchmarks/fever_symmetric.py`, the tiny model over the evidence of FeverSymmetric.
"""

from rag_jax.config import Config, ConfigError, parse_arg, update, wikipedia_bart_large

WORDS = {"3": ("true", "false", "unknown"), "2": ("true", "false")}


def get_config(arg: str = "") -> Config:
    """The configuration; `arg` sets fields, and `ways` how many classes there are: `configs/fever.py:ways=2,k=5`."""
    config = wikipedia_bart_large()
    config.k = 10
    config.data.dataset = "fever"
    config.optimizer.label_smoothing = 0.0
    config.train.steps = 16_000
    config.eval.metrics = ("accuracy",)
    values = parse_arg(arg, also=("ways",))
    ways = values.pop("ways", "3")
    if ways not in WORDS:
        raise ConfigError(f"config.ways: {ways!r} is not one of {', '.join(WORDS)}")
    config.data.labels = WORDS[ways]
    return update(config, values)
