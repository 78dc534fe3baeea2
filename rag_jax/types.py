"""HOST and DEVICE. The records and pytrees that cross package borders.

Axis names used in every shape annotation: B questions, K passages per question, Q question tokens, P passage tokens,
S source tokens (question and passage joined), T target tokens, V vocabulary, D embedding, N rows of an index.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container
from typing import Any

import flax.struct

_SPECIAL_TOKENS = {
    "bos_token": ("<s>",),
    "eos_token": ("</s>",),
    "cls_token": ("<s>", "[CLS]"),
    "sep_token": ("</s>", "[SEP]"),
    "pad_token": ("<pad>", "[PAD]"),
    "unk_token": ("<unk>", "[UNK]"),
    "mask_token": ("<mask>", "[MASK]"),
}


def name_special_tokens(known: Container[str]) -> dict[str, str]:
    """The special tokens of BART or BERT that are among `known`, by transformers' names: {'bos_token': '<s>', ...}."""
    found = {
        name: next((token for token in tokens if token in known), None) for name, tokens in _SPECIAL_TOKENS.items()
    }
    return {name: token for name, token in found.items() if token is not None}


@dataclasses.dataclass(frozen=True, slots=True)
class Passage:
    """One retrievable passage of text (paper, section 2.2: a document z).

    Attributes:
      id: the source's own identifier, unique within a collection.
      title: the title of the document that the passage was cut from; may be empty.
      text: the passage itself, about 100 words.
    """

    id: str
    title: str
    text: str


NO_DOCUMENT = Passage("", "(no document)", "")  # the null document, where sources are listed


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One question x with its reference answers y.

    Attributes:
      id: unique within a set; metrics and predictions are matched by it, never by line order.
      text: the question as the user wrote it.
      answers: the accepted answers, any of which counts; empty when there is no reference.
      positive_ids: ids of the passages that are known to hold the answer ("gold"); may be empty.
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    positive_ids: tuple[str, ...] = ()


@flax.struct.dataclass
class Batch:
    """What one training step or one decoding call reads: B questions with their K retrieved passages.

    Where retrieval is a part of the step, `passages`, `vectors` and `valid` are None until then. K counts the null
    document too.

    Attributes:
      question: int32 [B,Q], the question for the question encoder.
      source_question: int32 [B,Q'], the question for the generator, without special tokens; without columns when
        `passages` are whole sources.
      passages: int32 [B,K,P], the passages for the generator, without outer special tokens; padding where none was
        found. Or whole sources, joined on the host (`rag_jax.text.hf_compat_input`).
      vectors: float32 [B,K,D], the passages' stored vectors; D = 0 where the search was by words.
      valid: bool [B,K], whether a passage was found. Where there was none at all the first place counts, as an empty
        passage: the question is then answered as in closed book.
      target: int32 [B,T], the answer with its end token; None when decoding.
      weight: float32 [B], each question's weight in the loss; 0 for a row that only fills the batch up; None when
        decoding.
      scores: float32 [B,K], given logits of p(z|x), BM25's; None: q.d of `question` and `vectors`.
      slots: int32 [G,P,W], how sources share the encoder's rows, see `rag_jax.models.packing`; None: a row each.
      encoder_passages: int32 [B,K,P'], the passages for the passage encoder, where it is trained: their scores are then
        those of the vectors that it gives them now, and not of `vectors`. Else None.
      null_document: whether the last place is the null document, an empty passage whose score is learned.
    """

    question: Any
    source_question: Any
    passages: Any = None
    vectors: Any = None
    valid: Any = None
    target: Any = None
    weight: Any = None
    scores: Any = None
    slots: Any = None
    encoder_passages: Any = None
    null_document: bool = flax.struct.field(pytree_node=False, default=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A passage that an answer came from.

    Attributes:
      passage: id, title and text; `NO_DOCUMENT` for the null document.
      prior: p(z|x), how well the retriever thought it fits the question.
      posterior: p(z|x,y), how much of the answer it accounts for; None with Fusion-in-Decoder, which reads all passages
        at once and so cannot say.
      token_posterior: for RAG-Token the same for each of the answer's tokens (the paper's figure 2); else empty.
    """

    passage: Passage
    prior: float
    posterior: float | None
    token_posterior: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Alternative:
    """Another answer that the search found.

    Attributes:
      text: the answer.
      logprob: log p(y|x), the passages summed out.
    """

    text: str
    logprob: float


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """An answer and where it came from.

    Attributes:
      text: the answer.
      logprob: log p(y|x), the passages summed out.
      sources: the retrieved passages, best prior first.
      tokens: the answer's tokens as text, its end token included.
      alternatives: further answers, the best first; samples of RAG-Token as drawn.
    """

    text: str
    logprob: float
    sources: tuple[Source, ...]
    tokens: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
