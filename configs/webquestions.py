r"""HOST. WebQuestions at the paper's size, from the model of Natural Questions: its 3,800 questions alone are too few.

Published (exact match on the test questions): RAG-Token 45.5 %, RAG-Sequence 45.2 %.

The weights are those of a run of configs/nq.py of the same variant, passages and index are that run's too (the passage
encoder has not changed):

    rag-jax export runs/nq nq-weights

Questions are DPR's webquestions-train.qa.csv and webquestions-test.qa.csv (from
https://github.com/facebookresearch/DPR); the authors' webquestions.examples.train.json and
webquestions.examples.test.json (from https://nlp.stanford.edu/software/sempre), which TFDS prepares as web_questions;
or the same questions with ids and the fields qId, qText, answers.

One host, here with RAG-Token:

    python3 train.py --config=configs/webquestions.py:variant=token --workdir=runs/webquestions \
      --config.model.init_from=nq-weights --config.index.directory=index --config.data.passages_path=psgs_w100.tsv \
      --config.data.questions_path=webquestions.examples.train.json \
      --config.data.eval_questions_path=webquestions.examples.test.json
    python3 eval.py --workdir=runs/webquestions

The variant is given after the colon, as here: how many passages are read at test follows from it, 15 for RAG-Token and
50 for RAG-Sequence, and would not from `--config.variant`.

A slice of several hosts runs the same on each of them, over files that all see:

    gcloud compute tpus tpu-vm ssh $TPU --zone=$ZONE --worker=all --command="cd rag-jax && \
      python3 train.py --config=configs/webquestions.py:variant=token --workdir=/mnt/shared/webquestions \
      --config.model.init_from=/mnt/shared/nq-weights --config.index.directory=/mnt/shared/index \
      --config.data.passages_path=/mnt/shared/psgs_w100.tsv \
      --config.data.questions_path=/mnt/shared/webquestions.examples.train.json \
      --config.data.eval_questions_path=/mnt/shared/webquestions.examples.test.json"
"""

from rag_jax.config import Config, tested_as_in_the_paper, wikipedia_bart_large


def get_config(arg: str = "") -> Config:
    """The configuration; `arg` sets fields, as in `configs/webquestions.py:variant=token,k=10`."""
    config = wikipedia_bart_large()
    config.k = 5
    config.data.dataset = "web_questions"
    config.data.train_answers = "each"
    config.optimizer.warmup_steps = 100
    config.train.steps = 1_000
    config.eval.metrics = ("em", "f1")
    return tested_as_in_the_paper(config, arg)
