r"""HOST. Jeopardy question generation at the paper's size: given the answer, an entity, write the clue asking for it.

Published (BLEU-1 and Q-BLEU-1): RAG-Token 17.3 and 22.2, RAG-Sequence 14.7 and 21.4; BART alone 15.1 and 19.7.

Weights, passages and index are those of configs/nq.py. The pairs are SearchQA's: the folders that train.zip and
test.zip of its json files unpack to (from https://github.com/nyu-dl/dl4ir-searchQA), a file for each.

One host, here with RAG-Token:

    python3 train.py --config=configs/jeopardy.py:variant=token --workdir=runs/jeopardy \
      --config.model.init_from=weights --config.index.directory=index --config.data.passages_path=psgs_w100.tsv \
      --config.data.questions_path=searchqa/train --config.data.eval_questions_path=searchqa/test
    python3 eval.py --workdir=runs/jeopardy

A slice of several hosts runs the same on each of them, over files that all see:

    gcloud compute tpus tpu-vm ssh $TPU --zone=$ZONE --worker=all --command="cd rag-jax && \
      python3 train.py --config=configs/jeopardy.py:variant=token --workdir=/mnt/shared/jeopardy \
      --config.model.init_from=/mnt/shared/weights --config.index.directory=/mnt/shared/index \
      --config.data.passages_path=/mnt/shared/psgs_w100.tsv \
      --config.data.questions_path=/mnt/shared/searchqa/train \
      --config.data.eval_questions_path=/mnt/shared/searchqa/test"
"""

from rag_jax.config import Config, parse_arg, update, wikipedia_bart_large


def get_config(arg: str = "") -> Config:
    """The configuration; `arg` sets fields, as in `configs/jeopardy.py:variant=token`."""
    config = wikipedia_bart_large()
    config.k = 10
    config.data.dataset = "jeopardy"
    config.train.steps = 12_000
    config.eval.beams = 4
    config.eval.decoding = "fast"
    config.eval.metrics = ("bleu1", "qbleu1", "distinct_trigrams")
    return update(config, parse_arg(arg))
