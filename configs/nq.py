r"""HOST. Natural Questions at the paper's size: BERT-base towers, BART-large, 21 million passages of Wikipedia.

Published (exact match on the test questions): RAG-Token 44.1 %, RAG-Sequence 44.5 %. Before renting chips:

    rag-jax fit --config=configs/nq.py:eval.k=5 --topology=v5e:4x4

Weights come from Hugging Face: facebook/dpr-question_encoder-single-nq-base, facebook/dpr-ctx_encoder-single-nq-base
and facebook/bart-large. Passages are DPR's psgs_w100.tsv. Questions are DPR's biencoder-nq-train.json or
nq-train.qa.csv and nq-test.qa.csv (from https://github.com/facebookresearch/DPR), or NQ-open's NQ-open.train.jsonl and
NQ-open.dev.jsonl (from https://github.com/google-research-datasets/natural-questions), which TFDS prepares as
natural_questions_open: then both paths are its folder, and `--config.eval.split=validation` are the paper's test
questions.

    rag-jax convert dpr-question_encoder-single-nq-base weights \
      --passage-encoder dpr-ctx_encoder-single-nq-base --generator bart-large

The index, once, where all hosts see it; a run builds it itself if it is not there, which takes long:

    rag-jax index build psgs_w100.tsv /mnt/shared/index --weights weights --backend device --dtype int8 \
      --max-passage-tokens 256

One host, here with RAG-Token:

    python3 train.py --config=configs/nq.py:variant=token --workdir=runs/nq \
      --config.model.init_from=weights --config.index.directory=index --config.data.passages_path=psgs_w100.tsv \
      --config.data.questions_path=nq-train.qa.csv --config.data.eval_questions_path=nq-test.qa.csv
    python3 eval.py --workdir=runs/nq

The variant is given after the colon, as here: how many passages are read at test follows from it, 15 for RAG-Token and
50 for RAG-Sequence, and would not from `--config.variant`.

A slice of several hosts runs the same on each of them, over files that all see:

    gcloud compute tpus tpu-vm ssh $TPU --zone=$ZONE --worker=all --command="cd rag-jax && \
      python3 train.py --config=configs/nq.py:variant=token --workdir=/mnt/shared/nq \
      --config.model.init_from=/mnt/shared/weights --config.index.directory=/mnt/shared/index \
      --config.data.passages_path=/mnt/shared/psgs_w100.tsv \
      --config.data.questions_path=/mnt/shared/nq-train.qa.csv \
      --config.data.eval_questions_path=/mnt/shared/nq-test.qa.csv"

Queued resources, GKE, xpk and other machines: docs/how-to/tpu-pod.md. The index lies in the chips' memory and is
searched inside the step; where they are too few for it take `index.backend=scann,index.in_step=false`.
"""

from rag_jax.config import Config, tested_as_in_the_paper, wikipedia_bart_large


def get_config(arg: str = "") -> Config:
    """The configuration; `arg` sets fields, as in `configs/nq.py:variant=token,k=10`."""
    config = wikipedia_bart_large()
    config.k = 5
    config.data.dataset = "natural_questions"
    config.data.train_answers = "each"
    config.train.steps = 12_000
    config.eval.metrics = ("em", "f1")
    return tested_as_in_the_paper(config, arg)
