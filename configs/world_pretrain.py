"""HOST. The tiny model that ships with the package, from nothing: tokenizer, both towers, the generator.

    python train.py --config=configs/world_pretrain.py --workdir=runs/world_pretrain

It sees the training countries alone. The towers learn from real and made-up questions with in-batch negatives; the
generator reads made-up passages, one fact long, then three, then whole sections. The weights that the package ships
as rag_jax/pretrained/world were made by an earlier form of this recipe (eight passages of each country in a batch of
the towers, now two); their log lies beside them. One to two hours on two CPU cores.
"""

from rag_jax.config import Config, parse_arg, update


def get_config(arg: str = "") -> Config:
    """The configuration; `arg` sets fields, as in `configs/world_pretrain.py:pretrain.tower_steps=100`."""
    config = Config(recipe="world_pretrain")
    config.data.max_question_tokens = 32
    config.data.max_passage_tokens = 160
    config.data.max_target_tokens = 24
    config.pretrain.tower_steps = 2400
    config.pretrain.tower_groups = 10
    config.pretrain.one_fact_steps = 700
    config.pretrain.three_fact_steps = 400
    config.pretrain.whole_steps = 2200
    return update(config, parse_arg(arg))
