r"""HOST. MS MARCO's natural language generation at the paper's size: answers in whole sentences, found in Wikipedia.

Published (ROUGE-L and BLEU-1): RAG-Token 40.1 and 41.5, RAG-Sequence 40.8 and 44.2; BART alone 38.2 and 41.6. They are
of the leaderboard's hidden test set; dev_v2.1.json is the nearest that one can measure.

Weights, passages and index are those of configs/nq.py: the passages that come with the questions are not read, as in
the paper. Questions are train_v2.1.json.gz and dev_v2.1.json.gz (from https://microsoft.github.io/msmarco), of which
those with well-formed answers are the task.

One host, here with RAG-Token:

    python3 train.py --config=configs/msmarco.py:variant=token --workdir=runs/msmarco \
      --config.model.init_from=weights --config.index.directory=index --config.data.passages_path=psgs_w100.tsv \
      --config.data.questions_path=train_v2.1.json.gz --config.data.eval_questions_path=dev_v2.1.json.gz
    python3 eval.py --workdir=runs/msmarco

A slice of several hosts runs the same on each of them, over files that all see:

    gcloud compute tpus tpu-vm ssh $TPU --zone=$ZONE --worker=all --command="cd rag-jax && \
      python3 train.py --config=configs/msmarco.py:variant=token --workdir=/mnt/shared/msmarco \
      --config.model.init_from=/mnt/shared/weights --config.index.directory=/mnt/shared/index \
      --config.data.passages_path=/mnt/shared/psgs_w100.tsv \
      --config.data.questions_path=/mnt/shared/train_v2.1.json.gz \
      --config.data.eval_questions_path=/mnt/shared/dev_v2.1.json.gz"
"""

from rag_jax.config import Config, parse_arg, update, wikipedia_bart_large


def get_config(arg: str = "") -> Config:
    """The configuration; `arg` sets fields, as in `configs/msmarco.py:variant=token`."""
    config = wikipedia_bart_large()
    config.k = 10
    config.data.dataset = "ms_marco"
    config.train.steps = 20_000
    config.eval.beams = 4
    config.eval.decoding = "fast"
    config.eval.metrics = ("rouge_l", "bleu1", "distinct_trigrams")
    return update(config, parse_arg(arg))
