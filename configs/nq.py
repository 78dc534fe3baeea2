"""HOST. Natural Questions at the paper's size: BERT-base towers, BART-large, 21 million passages of Wikipedia.

Before renting chips:

    rag-jax fit --config=configs/nq.py --topology=v5e:4x4

The paper reports 44.1 % exact match for RAG-Token and 44.5 % for RAG-Sequence on the test questions.

Weights come from Hugging Face; passages are DPR's psgs_w100.tsv, questions JSON lines (`id`, `question`, `answers`):

    rag-jax convert dpr-question_encoder-single-nq-base weights \
      --passage-encoder dpr-ctx_encoder-single-nq-base --generator bart-large

The index, once, where all hosts see it; a run builds it itself if it is not there, which takes long:

    rag-jax index build psgs_w100.tsv /mnt/shared/index --weights weights --backend device --dtype int8 \
      --max-passage-tokens 256

One host, here with RAG-Token:

    python3 train.py --config=configs/nq.py:variant=token --workdir=runs/nq \
      --config.model.init_from=weights --config.index.directory=index --config.data.passages_path=psgs_w100.tsv \
      --config.data.questions_path=nq-train.jsonl --config.data.eval_questions_path=nq-test.jsonl
    python3 eval.py --workdir=runs/nq --set eval.k=15

A slice of several hosts runs the same on each of them, over files that all see:

    gcloud compute tpus tpu-vm ssh $TPU --zone=$ZONE --worker=all --command="cd rag-jax &&
      python3 train.py --config=configs/nq.py:variant=token --workdir=/mnt/shared/nq
      --config.model.init_from=/mnt/shared/weights --config.index.directory=/mnt/shared/index
      --config.data.passages_path=/mnt/shared/psgs_w100.tsv
      --config.data.questions_path=/mnt/shared/nq-train.jsonl
      --config.data.eval_questions_path=/mnt/shared/nq-test.jsonl"

Queued resources, GKE, xpk and other machines: the README's "Many chips". The index lies in the chips' memory and is
searched inside the step; where they are too few for it take `index.backend=scann,index.in_step=false`.
"""

from rag_jax.config import Config, parse_arg, update


def get_config(arg: str = "") -> Config:
    """The configuration; `arg` sets fields, as in `configs/nq.py:variant=token,k=10`."""
    config = Config()
    config.k = 5
    config.data.dataset = "files"
    config.data.max_question_tokens = 32
    config.data.max_passage_tokens = 256
    config.data.max_source_tokens = 256
    config.data.max_target_tokens = 64
    config.model.question_encoder = "bert-base"
    config.model.passage_encoder = "bert-base"
    config.model.generator = "bart-large"
    config.model.init_from = ""
    config.model.dtype = "bfloat16"
    config.model.remat = "dots"
    config.index.backend = "device"
    config.index.dtype = "int8"
    config.index.in_step = True
    # The original script's; the paper names no optimiser.
    config.optimizer.learning_rate = 3e-5
    config.optimizer.warmup_steps = 500
    config.optimizer.clip_norm = 0.1
    config.optimizer.weight_decay = 1e-3
    config.optimizer.label_smoothing = 0.1
    config.train.batch_size = 64
    config.train.steps = 12_000
    config.train.checkpoint_every = 1_000
    config.sharding.params = "fsdp"
    return update(config, parse_arg(arg))
