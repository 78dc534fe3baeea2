"""HOST. Texts to token ids, one method for each role a text plays, so that no role meets another's vocabulary.

The retriever reads questions and passages (a BERT vocabulary); the generator reads both again and writes answers
(BART's). Rows are int32 arrays padded at the end with the role's own padding id.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rag_jax.types import Passage

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # BART's first ids


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer in BART's manner, made from these texts. Same texts, same tokenizer.

    Every word starts with a space, also the first, so that a name is the same pieces in a question and in a passage.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return wrap_tokenizer(tokenizer)


def wrap_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """A transformers tokenizer with BART's names for the special tokens."""
    bos, pad, eos, unknown, mask = SPECIAL_TOKENS
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos,
        pad_token=pad,
        eos_token=eos,
        cls_token=bos,
        sep_token=eos,
        unk_token=unknown,
        mask_token=mask,
        clean_up_tokenization_spaces=False,
    )


def load_tokenizer(path: str | pathlib.Path) -> PreTrainedTokenizerFast:
    """A tokenizer from its tokenizer.json file.

    Raises:
      FileNotFoundError: no such file.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no tokenizer there")
    return wrap_tokenizer(Tokenizer.from_file(str(path)))


def pad_rows(rows: Sequence[Sequence[int]], pad_id: int) -> Int[np.ndarray, "N L"]:
    """Rows of different lengths as one int32 array, as wide as the longest row (at least 1)."""
    width = max((len(row) for row in rows), default=0)
    out = np.full((len(rows), max(width, 1)), pad_id, np.int32)
    for index, row in enumerate(rows):
        out[index, : len(row)] = row
    return out


def trim(rows: Int[np.ndarray, "*axes L"], pad_id: int, multiple: int) -> Int[np.ndarray, "*axes M"]:
    """Cuts the columns that hold only padding, down to a multiple, so that few widths are compiled."""
    used = np.flatnonzero((rows != pad_id).any(axis=tuple(range(rows.ndim - 1))))
    longest = int(used[-1]) + 1 if used.size else 1
    width = -(-longest // multiple) * multiple
    if width <= rows.shape[-1]:
        return rows[..., :width]
    widen = [(0, 0)] * (rows.ndim - 1) + [(0, width - rows.shape[-1])]
    return np.pad(rows, widen, constant_values=pad_id)


@dataclasses.dataclass(frozen=True)
class Tokenizers:
    """The retriever's and the generator's tokenizers with the limits of every role, in tokens.

    Attributes:
      retriever: tokenizer of both towers.
      generator: tokenizer of the generator.
      max_question: a retriever question with its special tokens; a generator question without.
      max_passage: a retriever passage with its special tokens; a generator passage without.
      max_target: an answer with its end token.
    """

    retriever: PreTrainedTokenizerFast
    generator: PreTrainedTokenizerFast
    max_question: int = 32
    max_passage: int = 160
    max_target: int = 24

    def _ids(self, tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        encoded = tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)
        return encoded["input_ids"]

    def questions(self, texts: Sequence[str]) -> Int[np.ndarray, "N Q"]:
        """[CLS] question [SEP] for the question tower."""
        t = self.retriever
        rows = self._ids(t, texts)
        return pad_rows(
            [[t.cls_token_id, *row[: self.max_question - 2], t.sep_token_id] for row in rows], t.pad_token_id
        )

    def passages(self, passages: Sequence[Passage]) -> Int[np.ndarray, "N P"]:
        """[CLS] title [SEP] text [SEP] for the passage tower, as DPR reads passages; the text's tail is cut."""
        t = self.retriever
        rows = []
        titles = self._ids(t, [p.title for p in passages])
        for title, text in zip(titles, self._ids(t, [p.text for p in passages]), strict=True):
            row = [t.cls_token_id, *title, t.sep_token_id, *text]
            rows.append([*row[: self.max_passage - 1], t.sep_token_id])
        return pad_rows(rows, t.pad_token_id)

    def source_questions(self, texts: Sequence[str]) -> Int[np.ndarray, "N Q"]:
        """Questions for the generator, without special tokens: `rag_jax.rag.source` joins them to passages."""
        rows = self._ids(self.generator, texts)
        return pad_rows([row[: self.max_question] for row in rows], self.generator.pad_token_id)

    def source_passages(self, passages: Sequence[Passage]) -> Int[np.ndarray, "N P"]:
        """`title </s> text` for the generator, without outer special tokens."""
        t = self.generator
        titles = self._ids(t, [p.title for p in passages])
        texts = self._ids(t, [p.text for p in passages])
        rows = [[*a, t.eos_token_id, *b][: self.max_passage] for a, b in zip(titles, texts, strict=True)]
        return pad_rows(rows, t.pad_token_id)

    def targets(self, texts: Sequence[str]) -> Int[np.ndarray, "N T"]:
        """`answer </s>`: what the generator is to write, its end token included."""
        t = self.generator
        rows = self._ids(t, texts)
        return pad_rows([[*row[: self.max_target - 1], t.eos_token_id] for row in rows], t.pad_token_id)

    def text(self, ids: Int[np.ndarray, "T"]) -> str:
        """The text of generated ids, without special tokens and outer spaces."""
        return self.generator.decode(np.asarray(ids).tolist(), skip_special_tokens=True).strip()
