"""HOST. The two towers of a weights directory, as functions of texts, for the commands that embed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from rag_jax.index import Index, embed, fingerprint
from rag_jax.index.manifest import MAX_PASSAGE_TOKENS
from rag_jax.rag.model import architecture, check_tokenizers, load_tokenizers, load_weights, weights_name
from rag_jax.rag.retrieve import embed_passages, encode
from rag_jax.types import Passage

MAX_QUESTION, MAX_PASSAGE, MAX_TARGET = 32, 128, 24  # tokens, as a configuration has them by default
DEFAULT_WEIGHTS = "world"


@dataclasses.dataclass(frozen=True)
class PassageTower:
    """The passage encoder of some weights.

    Attributes:
      embed: passages -> vectors [n, D].
      fingerprint: of its parameters.
      dim: D.
      made_with: what the manifest keeps, so that `tower_of` finds the same tower again.
    """

    embed: Callable[[Sequence[Passage]], Float[np.ndarray, "n D"]]
    fingerprint: str
    dim: int
    made_with: dict[str, Any]


def passage_tower(weights: str, max_passage: int = MAX_PASSAGE, batch_size: int = 128) -> PassageTower:
    """Loads it.

    Args:
      weights: a name that ships with the package, or a directory.
      max_passage: tokens of a passage; the rest is cut.
      batch_size: passages at a time.

    Raises:
      FileNotFoundError, ValueError: weights that are not there or do not fit together.
    """
    part = "passage_encoder"
    config, params, tokenizers = _tower(weights, part, max_passage)
    return PassageTower(
        functools.partial(embed_passages, config, params, tokenizers, batch_size=batch_size),
        fingerprint(params),
        config.width,
        {"weights": weights_name(weights), MAX_PASSAGE_TOKENS: max_passage},
    )


def tower_of(index: Index, weights: str | None, batch_size: int = 128) -> PassageTower:
    """The tower that an index was made with, by what its manifest says, or the one of other weights."""
    made_with = index.manifest.made_with
    name = weights or made_with.get("weights", DEFAULT_WEIGHTS)
    return passage_tower(str(name), int(made_with.get(MAX_PASSAGE_TOKENS, MAX_PASSAGE)), batch_size)


def embed_questions(weights: str, texts: Sequence[str], batch_size: int = 128) -> Float[np.ndarray, "B D"]:
    """Vectors of questions by the question encoder of some weights, so many questions at a time."""
    config, params, tokenizers = _tower(weights, "question_encoder", MAX_PASSAGE)
    rows = tokenizers.questions(texts)
    encode_rows = functools.partial(encode, config, params)
    return embed(encode_rows, rows, pad_id=config.pad_id, batch_size=min(batch_size, len(texts)))


def _tower(weights: str, part: str, max_passage: int) -> tuple[Any, Any, Any]:
    """Sizes, parameters and tokenizers of one part."""
    arch = architecture("", "", "", init_from=weights, parts=(part,))
    limits = {"max_question": MAX_QUESTION, "max_passage": max_passage, "max_target": MAX_TARGET}
    tokenizers = load_tokenizers(weights, **limits, parts=(part,))
    check_tokenizers(arch, tokenizers, (part,))
    return getattr(arch, part), load_weights(arch, weights, (part,))[part], tokenizers
