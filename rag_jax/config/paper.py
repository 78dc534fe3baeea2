"""HOST. What the paper's experiments have in common: networks, Wikipedia's index, the optimiser."""

from rag_jax.config.arguments import parse_arg
from rag_jax.config.schema import Config
from rag_jax.config.values import update

MOST_PASSAGES_OF_TWO = 32  # questions that a chip of v5e decodes at a time


def wikipedia_bart_large() -> Config:
    """BERT-base towers, BART-large, an index of 21 million passages that is searched inside the step; not final.

    A config file adds its data set, how many passages it reads and how it is decoded and measured.
    """
    config = Config()
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
    config.train.checkpoint_every = 1_000
    config.sharding.params = "fsdp"
    return config


def tested_as_in_the_paper(config: Config, arg: str) -> Config:
    """The configuration with the fields of `arg`, and as many passages at test as open-domain answers are found in.

    These are 15 for RAG-Token and 50 for RAG-Sequence. With so many a chip of v5e has room for one question at a time,
    and so sixteen of them for 16.
    """
    values = parse_arg(arg)
    config.eval.k = 15 if values.get("variant") == "token" else 50
    if (values.get("eval.k", config.eval.k) or config.k) > MOST_PASSAGES_OF_TWO:
        config.eval.batch_size = 16
    return update(config, values)
