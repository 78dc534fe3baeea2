"""HOST. Retrieval-Augmented Generation (Lewis et al., 2020) in JAX and Flax.

    import rag_jax
    rag = rag_jax.load("path/to/run", index="path/to/index")
    rag.answer("who is the head of government of Kenya", k=10)

The public names of all rooms can be taken from here. Each is imported when it is first used: `import rag_jax` alone
imports neither jax nor anything else that takes time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; `PLACES` says the same to Python
    from rag_jax.api import Answered as Answered
    from rag_jax.api import ChangingIndex as ChangingIndex
    from rag_jax.api import Rag as Rag
    from rag_jax.api import Retrieved as Retrieved
    from rag_jax.api import Scored as Scored
    from rag_jax.api import cache_directory as cache_directory
    from rag_jax.api import load as load
    from rag_jax.config import Config as Config
    from rag_jax.config import finalise as finalise
    from rag_jax.index import Index as Index
    from rag_jax.index import LiveIndex as LiveIndex
    from rag_jax.index import add_passages as add_passages
    from rag_jax.index import build_index as build_index
    from rag_jax.index import delete_passages as delete_passages
    from rag_jax.index import open_index as open_index
    from rag_jax.index import swap_index as swap_index
    from rag_jax.models.bart import Bart as Bart
    from rag_jax.models.bart import BartConfig as BartConfig
    from rag_jax.models.bert import Bert as Bert
    from rag_jax.models.bert import BertConfig as BertConfig
    from rag_jax.rag.decode import decode_sequence as decode_sequence
    from rag_jax.rag.decode import decode_token as decode_token
    from rag_jax.rag.likelihood import answer_likelihood as answer_likelihood
    from rag_jax.rag.loss import rag_loss as rag_loss
    from rag_jax.rag.marginal import log_prior as log_prior
    from rag_jax.rag.marginal import next_token_logprobs as next_token_logprobs
    from rag_jax.rag.marginal import sequence_loglik as sequence_loglik
    from rag_jax.rag.marginal import sequence_posterior as sequence_posterior
    from rag_jax.rag.marginal import token_loglik as token_loglik
    from rag_jax.rag.marginal import token_posterior as token_posterior
    from rag_jax.rag.model import Architecture as Architecture
    from rag_jax.rag.model import architecture as architecture
    from rag_jax.rag.model import init_params as init_params
    from rag_jax.rag.model import load_tokenizers as load_tokenizers
    from rag_jax.rag.model import load_weights as load_weights
    from rag_jax.rag.model import save_weights as save_weights
    from rag_jax.rag.retrieve import Retriever as Retriever
    from rag_jax.rag.retrieve import embed_passages as embed_passages
    from rag_jax.rag.retrieve import encode as encode
    from rag_jax.rag.rules import DecodeOptions as DecodeOptions
    from rag_jax.rag.score import answer_token_logprobs as answer_token_logprobs
    from rag_jax.rag.score import passage_scores as passage_scores
    from rag_jax.text.tokens import Tokenizers as Tokenizers
    from rag_jax.training.optimizer import make_optimizer as make_optimizer
    from rag_jax.training.optimizer import make_rules as make_rules
    from rag_jax.training.step import TrainState as TrainState
    from rag_jax.training.step import create_state as create_state
    from rag_jax.training.step import make_train_step as make_train_step
    from rag_jax.types import Answer as Answer
    from rag_jax.types import Batch as Batch
    from rag_jax.types import Passage as Passage
    from rag_jax.types import Question as Question
    from rag_jax.types import Source as Source

# Module -> the names that it gives, by what they are for.
PLACES = {
    # asking
    "rag_jax.api": ("Answered", "ChangingIndex", "Rag", "Retrieved", "Scored", "cache_directory", "load"),
    "rag_jax.types": ("Answer", "Batch", "Passage", "Question", "Source"),
    # encoders and generator, their sizes and weights
    "rag_jax.models.bert": ("Bert", "BertConfig"),
    "rag_jax.models.bart": ("Bart", "BartConfig"),
    "rag_jax.rag.model": (
        "Architecture",
        "architecture",
        "init_params",
        "load_tokenizers",
        "load_weights",
        "save_weights",
    ),
    "rag_jax.text.tokens": ("Tokenizers",),
    # retrieval
    "rag_jax.index": (
        "Index",
        "LiveIndex",
        "add_passages",
        "build_index",
        "delete_passages",
        "open_index",
        "swap_index",
    ),
    "rag_jax.rag.retrieve": ("Retriever", "embed_passages", "encode"),
    # the paper's equations
    "rag_jax.rag.score": ("answer_token_logprobs", "passage_scores"),
    "rag_jax.rag.marginal": (
        "log_prior",
        "next_token_logprobs",
        "sequence_loglik",
        "sequence_posterior",
        "token_loglik",
        "token_posterior",
    ),
    "rag_jax.rag.likelihood": ("answer_likelihood",),
    "rag_jax.rag.loss": ("rag_loss",),
    # decoders
    "rag_jax.rag.decode": ("decode_sequence", "decode_token"),
    "rag_jax.rag.rules": ("DecodeOptions",),
    # training
    "rag_jax.config": ("Config", "finalise"),
    "rag_jax.training.optimizer": ("make_optimizer", "make_rules"),
    "rag_jax.training.step": ("TrainState", "create_state", "make_train_step"),
}
_MODULE_OF = {name: module for module, names in PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'rag_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
