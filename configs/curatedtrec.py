r"""HOST. CuratedTREC at the paper's size, from the model of Natural Questions. Its answers are regexes.

Published (regex match on the test questions): RAG-Token 50.0 %, RAG-Sequence 52.2 %.

The weights are those of a run of configs/nq.py of the same variant, passages and index are that run's too:

    rag-jax export runs/nq nq-weights

Questions are large2470-train.tsv and large2470-test.tsv (from https://github.com/brmson/dataset-factoid-curated), or
DPR's curatedtrec-train.qa.csv and curatedtrec-test.qa.csv (from https://github.com/facebookresearch/DPR). The target of
a training question is the likeliest string that its regex stands for; the paper takes what the regex matches most often
in a thousand passages, and falls back on that string.

One host, here with RAG-Token:

    python3 train.py --config=configs/curatedtrec.py:variant=token --workdir=runs/curatedtrec \
      --config.model.init_from=nq-weights --config.index.directory=index --config.data.passages_path=psgs_w100.tsv \
      --config.data.questions_path=large2470-train.tsv --config.data.eval_questions_path=large2470-test.tsv
    python3 eval.py --workdir=runs/curatedtrec

The variant is given after the colon, as here: how many passages are read at test follows from it, 15 for RAG-Token and
50 for RAG-Sequence, and would not from `--config.variant`.

A slice of several hosts runs the same on each of them, over files that all see:

    gcloud compute tpus tpu-vm ssh $TPU --zone=$ZONE --worker=all --command="cd rag-jax && \
      python3 train.py --config=configs/curatedtrec.py:variant=token --workdir=/mnt/shared/curatedtrec \
      --config.model.init_from=/mnt/shared/nq-weights --config.index.directory=/mnt/shared/index \
      --config.data.passages_path=/mnt/shared/psgs_w100.tsv \
      --config.data.questions_path=/mnt/shared/large2470-train.tsv \
      --config.data.eval_questions_path=/mnt/shared/large2470-test.tsv"
"""

from rag_jax.config import Config, tested_as_in_the_paper, wikipedia_bart_large


def get_config(arg: str = "") -> Config:
    """The configuration; `arg` sets fields, as in `configs/curatedtrec.py:variant=token,k=10`."""
    config = wikipedia_bart_large()
    config.k = 5
    config.data.dataset = "curated_trec"
    config.data.regex_answers = True
    config.optimizer.warmup_steps = 50
    config.train.steps = 500
    config.train.checkpoint_every = 500
    config.eval.metrics = ("regex",)
    return tested_as_in_the_paper(config, arg)
