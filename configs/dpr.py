r"""HOST. The retriever alone: contrastive training of both towers, as DPR is trained (Karpukhin et al. 2020).

Natural Questions at the paper's size: two BERT-base towers, 128 questions a batch, one hard negative for each and all
other passages of the batch, 40 epochs of 58,880 questions, linear decay. The learning rate, 2e-5, and the clipping are
those of the authors' repository (github.com/facebookresearch/DPR, conf/train/biencoder_nq.yaml); the paper has 1e-5.

The paper reports an answer in the first 20 passages of 78.4 % of the test questions and in the first 100 of 85.4 %; the
authors' repository 68.1 % for the first 5 of its own model. This project has not run it at this size.

Training files are those of DPR (`data.retriever.nq-train` and `-dev`, download_data.py of the same repository), weights
a plain BERT, which becomes both towers:

    rag-jax convert bert-base-uncased weights

One host:

    python3 train.py --config=configs/dpr.py --workdir=runs/dpr --config.model.init_from=weights \
      --config.data.questions_path=biencoder-nq-train.json --config.data.eval_questions_path=biencoder-nq-dev.json

Whether it fits a slice, without the slice (on sixteen chips of v5e 4.7 GiB of 15.75 a chip):

    rag-jax fit --config=configs/dpr.py --topology=v5e:4x4

A slice of several hosts runs the same on each of them, over files that all see:

    gcloud compute tpus tpu-vm ssh $TPU --zone=$ZONE --worker=all --command="cd rag-jax && \
      python3 train.py --config=configs/dpr.py --workdir=/mnt/shared/dpr --config.model.init_from=/mnt/shared/weights \
      --config.data.questions_path=/mnt/shared/biencoder-nq-train.json \
      --config.data.eval_questions_path=/mnt/shared/biencoder-nq-dev.json"

At its end a run ranks the passages of the evaluation file (or those of `data.passages_path`) for its questions. What it
leaves in `weights` is a retriever; a generator makes it what `model.init_from` takes for a RAG:

    rag-jax convert runs/dpr/weights rag --generator bart-large

World Facts from nothing, the size of the weights that ship with the package, on a CPU; ends with the gold passage first
for 0.784 of the test countries' questions, and among the first 5 for 0.957:

    python train.py --config=configs/dpr.py:data.dataset=world_facts --workdir=runs/dpr
    rag-jax convert runs/dpr/weights runs/dpr/rag --generator rag_jax/pretrained/world
"""

from rag_jax.config import Config, parse_arg, update

WORLD = {
    "data.max_question_tokens": 24,
    "data.max_passage_tokens": 112,
    "dpr.hard_negatives": 0,
    "model.question_encoder": "tiny",
    "model.passage_encoder": "tiny",
    "model.dropout": 0.0,
    "model.dtype": "float32",
    "optimizer.learning_rate": 1e-3,
    "optimizer.schedule": "cosine",
    "optimizer.warmup_steps": 100,
    "optimizer.weight_decay": 0.01,
    "optimizer.clip_norm": 1.0,
    "optimizer.b2": 0.98,
    "train.batch_size": 48,
    "train.steps": 600,
    "train.log_every": 50,
    "train.checkpoint_every": 100,
}


def get_config(arg: str = "") -> Config:
    """The configuration; `arg` sets fields. `data.dataset=world_facts` is the small experiment."""
    config = Config(recipe="dpr")
    config.data.dataset = "files"
    config.data.max_question_tokens = 32
    config.data.max_passage_tokens = 256
    config.data.max_source_tokens = 256
    config.dpr.hard_negatives = 1
    config.model.question_encoder = "bert-base"
    config.model.passage_encoder = "bert-base"
    config.model.init_from = ""
    config.model.dropout = 0.1
    config.model.dtype = "bfloat16"
    config.optimizer.learning_rate = 2e-5
    config.optimizer.schedule = "linear"
    config.optimizer.warmup_steps = 1237
    config.optimizer.weight_decay = 0.0
    config.optimizer.clip_norm = 2.0
    config.train.batch_size = 128
    config.train.steps = 40 * 58_880 // 128
    config.train.checkpoint_every = 460  # an epoch
    values = parse_arg(arg)
    if values.get("data.dataset") == "world_facts":
        values = WORLD | values
    return update(config, values)
