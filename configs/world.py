r"""HOST. World Facts: the main job in miniature, minutes on two CPU cores.

    python train.py --config=configs/world.py:variant=sequence --workdir=runs/world/sequence
    python train.py --config=configs/world.py:variant=token --workdir=runs/world/token
    python train.py --config=configs/world.py:variant=closed_book --workdir=runs/world/closed_book
    python eval.py --workdir=runs/world

Starts from the weights that ship with the package and trains on the training countries' questions of the 2020 edition,
with the original script's learning rate and for few steps: the weights answer those questions nearly all, and long
training on them costs accuracy on other countries.
`variant=closed_book` trains the same generator as long without passages. Expected results: the README's table.

All chips of a host are used as they are. On a slice of several hosts the same command runs on each, over a directory
that all of them see; `train.batch_size` is a multiple of the chips:

    gcloud compute tpus tpu-vm ssh $TPU --zone=$ZONE --worker=all --command="cd rag-jax && \
      python3 train.py --config=configs/world.py:variant=sequence --workdir=/mnt/shared/sequence"

Sweeps, a run for each line of a list in SWEEPS below; `paper` is the table of the README:

    python train.py --config=configs/world.py:variant=token --sweep=k --workdir=runs/sweep
    python eval.py --workdir=runs/sweep --ks=1,2,5,10,20
    rag-jax compare runs/sweep

Queued resources, GKE, xpk and other machines: docs/how-to/tpu-pod.md.
"""

from rag_jax.config import Config, parse_arg, update

# train.py --sweep=NAME: a run for each change, which is written as after the colon of --config.
SWEEPS = {
    "k": ("k=1", "k=2", "k=5", "k=10", "k=20"),
    "freeze": ("freeze=", "freeze=question_encoder", "freeze=generator"),
    "retriever": ("retriever=dpr", "retriever=bm25", "retriever=random", "retriever=gold", "retriever=none"),
    "variant": ("variant=sequence", "variant=token", "variant=fid"),
    "paper": tuple(
        f"variant={variant},{retrieval}"
        for variant in ("sequence", "token")
        for retrieval in (
            "retriever=dpr",
            "freeze=question_encoder",
            "retriever=bm25",
            "retriever=random",
            "retriever=none",
        )
    ),
}


def get_config(arg: str = "") -> Config:
    """The configuration; `arg` sets fields, as in `configs/world.py:variant=token,k=10`."""
    config = Config()
    config.k = 5
    config.data.max_question_tokens = 32
    config.data.max_passage_tokens = 112
    config.data.max_source_tokens = 128
    config.data.max_target_tokens = 24
    config.model.dropout = 0.0
    config.optimizer.learning_rate = 3e-5
    config.optimizer.warmup_steps = 3
    config.optimizer.clip_norm = 1.0
    config.optimizer.label_smoothing = 0.0
    config.train.batch_size = 16
    config.train.steps = 30
    config.train.checkpoint_every = 15
    values = parse_arg(arg)
    if values.get("variant") == "closed_book":
        values |= {"variant": "sequence", "retriever": "none", "k": 1}
    return update(config, values)
