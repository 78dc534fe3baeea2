r"""HOST. Your own documents on one TPU of Colab: DPR's towers and BART-base, an index in the chip's memory.

No published result: the documents are yours.

Weights come from Hugging Face: facebook/dpr-question_encoder-single-nq-base, facebook/dpr-ctx_encoder-single-nq-base
and facebook/bart-base. Documents are a folder of text and Markdown files, or anything else that `rag-jax index build`
reads; questions are JSON lines with `id`, `question` and `answers`.

    rag-jax convert dpr-question_encoder-single-nq-base weights \
      --passage-encoder dpr-ctx_encoder-single-nq-base --generator bart-base
    python3 train.py --config=configs/colab.py:variant=token --workdir=runs/mine --config.model.init_from=weights \
      --config.data.passages_path=notes --config.data.questions_path=train.jsonl \
      --config.data.eval_questions_path=test.jsonl
    python3 eval.py --workdir=runs/mine

A slice of several hosts runs the same on each of them, over files that all see:

    gcloud compute tpus tpu-vm ssh $TPU --zone=$ZONE --worker=all --command="cd rag-jax && \
      python3 train.py --config=configs/colab.py:train.batch_size=64 --workdir=/mnt/shared/mine \
      --config.model.init_from=/mnt/shared/weights --config.data.passages_path=/mnt/shared/notes \
      --config.data.questions_path=/mnt/shared/train.jsonl --config.data.eval_questions_path=/mnt/shared/test.jsonl"
"""

from rag_jax.config import Config, parse_arg, update


def get_config(arg: str = "") -> Config:
    """The configuration; `arg` sets fields, as in `configs/colab.py:variant=token,k=10`."""
    config = Config()
    config.k = 5
    config.data.dataset = "files"
    config.data.max_question_tokens = 32
    config.data.max_passage_tokens = 192
    config.data.max_source_tokens = 224
    config.data.max_target_tokens = 32
    config.model.question_encoder = "bert-base"
    config.model.passage_encoder = "bert-base"
    config.model.generator = "bart-base"
    config.model.init_from = ""
    config.model.dtype = "bfloat16"
    config.index.backend = "device"
    config.index.dtype = "bfloat16"
    config.index.in_step = True
    config.optimizer.learning_rate = 3e-5
    config.optimizer.warmup_steps = 50
    config.train.batch_size = 16
    config.train.steps = 1_000
    config.train.checkpoint_every = 200
    return update(config, parse_arg(arg))
