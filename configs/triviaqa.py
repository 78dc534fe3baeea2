r"""HOST. TriviaQA, the open version, at the paper's size.

Published (exact match on the test questions): RAG-Token 55.2 %, RAG-Sequence 56.8 %.

Weights, passages and index are those of configs/nq.py. Questions are DPR's trivia-train.qa.csv and trivia-test.qa.csv
(from https://github.com/facebookresearch/DPR), with the split that the paper has; or the authors'
unfiltered-web-train.json and unfiltered-web-dev.json (from http://nlp.cs.washington.edu/triviaqa), which TFDS prepares
as trivia_qa/unfiltered.nocontext: then both paths are its folder, and `--config.eval.split=validation` are the paper's
test questions. Of a question's many answers the first is trained on; the paper leaves out those that stand in no
passage instead.

One host, here with RAG-Token:

    python3 train.py --config=configs/triviaqa.py:variant=token --workdir=runs/triviaqa \
      --config.model.init_from=weights --config.index.directory=index --config.data.passages_path=psgs_w100.tsv \
      --config.data.questions_path=trivia-train.qa.csv --config.data.eval_questions_path=trivia-test.qa.csv
    python3 eval.py --workdir=runs/triviaqa

The variant is given after the colon, as here: how many passages are read at test follows from it, 15 for RAG-Token and
50 for RAG-Sequence, and would not from `--config.variant`.

A slice of several hosts runs the same on each of them, over files that all see:

    gcloud compute tpus tpu-vm ssh $TPU --zone=$ZONE --worker=all --command="cd rag-jax && \
      python3 train.py --config=configs/triviaqa.py:variant=token --workdir=/mnt/shared/triviaqa \
      --config.model.init_from=/mnt/shared/weights --config.index.directory=/mnt/shared/index \
      --config.data.passages_path=/mnt/shared/psgs_w100.tsv \
      --config.data.questions_path=/mnt/shared/trivia-train.qa.csv \
      --config.data.eval_questions_path=/mnt/shared/trivia-test.qa.csv"
"""

from rag_jax.config import Config, tested_as_in_the_paper, wikipedia_bart_large


def get_config(arg: str = "") -> Config:
    """The configuration; `arg` sets fields, as in `configs/triviaqa.py:variant=token,k=10`."""
    config = wikipedia_bart_large()
    config.k = 5
    config.data.dataset = "trivia_qa"
    config.data.train_answers = "first"
    config.train.steps = 12_000
    config.eval.metrics = ("em", "f1")
    return tested_as_in_the_paper(config, arg)
