"""HOST. Texts to token ids, one method for each role a text plays, so that no role meets another's vocabulary.

Four roles, each with a tokenizer of its own: the question tower and the passage tower of the retriever (BERT
vocabularies), and the generator's input and output (BART's). Rows are int32 arrays padded at the end with the role's
own padding id.
"""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from rag_jax.types import Passage, name_special_tokens

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # BART's first ids
_NEEDED = {
    "question": ("cls", "sep", "pad"),
    "passage": ("cls", "sep", "pad"),
    "source": ("bos", "eos", "pad"),
    "target": ("eos", "pad"),
}
_LEAST = {"max_question": 2, "max_passage": 3, "max_target": 1}


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
    """A transformers tokenizer with BART's or BERT's names for the special tokens, those of them that it has."""
    known = tokenizer.get_vocab(with_added_tokens=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **name_special_tokens(known)
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


def load_tokenizer_folder(directory: str | pathlib.Path, model: str) -> PreTrainedTokenizerBase:
    """A tokenizer from the files that transformers keeps beside a model. Nothing is fetched, no code in them is run.

    Args:
      directory: with vocab.txt, vocab.json and merges.txt, or tokenizer.json.
      model: 'bert' or 'bart', for files that do not name their tokenizer's class.

    Raises:
      ValueError: files that are damaged, or of a tokenizer that would need code from the directory.
    """
    directory = pathlib.Path(directory)
    if (directory / "tokenizer.json").is_file() and not (directory / "tokenizer_config.json").is_file():
        return load_tokenizer(directory / "tokenizer.json")  # as this project keeps it: transformers would guess
    from transformers import AutoTokenizer, BartConfig, BertConfig  # late: they take seconds, and import torch

    # Old checkpoints leave the tokenizer's class out: then it is the one that goes with the model.
    config = {"bert": BertConfig, "bart": BartConfig}[model]()
    try:
        return AutoTokenizer.from_pretrained(directory, config=config, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises whatever its parsers do
        raise ValueError(f"{directory}: no tokenizer can be made of these files: {error}") from error


def _is_text(text: str) -> bool:
    """False for halves of surrogate pairs, which is how Python reads bytes that are not UTF-8 from a command line."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cut_questions(rows: Sequence[list[int]], limit: int, reader: str) -> list[list[int]]:
    if long := sum(len(row) > limit for row in rows):
        logging.getLogger(__name__).warning(
            "%d of %d questions have more than the %d tokens that %s reads; their ends are cut. Shorten them, or "
            "raise config.data.max_question_tokens",
            *(long, len(rows), limit, reader),
        )
    return [row[:limit] for row in rows]


def pad_rows(rows: Sequence[Sequence[int]], pad_id: int) -> Int[np.ndarray, "N L"]:
    """Rows of different lengths as one int32 array, as wide as the longest row (at least 1)."""
    width = max((len(row) for row in rows), default=0)
    out = np.full((len(rows), max(width, 1)), pad_id, np.int32)
    for index, row in enumerate(rows):
        out[index, : len(row)] = row
    return out


def trim(rows: Int[np.ndarray, "*axes L"], pad_id: int, multiple: int) -> Int[np.ndarray, "*axes M"]:
    """Cuts columns that hold only padding, or adds some: the width is the least multiple that holds all tokens.

    So few widths are compiled. Rows of nothing but padding are one multiple wide.
    """
    used = np.flatnonzero((rows != pad_id).any(axis=tuple(range(rows.ndim - 1))))
    longest = int(used[-1]) + 1 if used.size else 1
    width = -(-longest // multiple) * multiple
    if width <= rows.shape[-1]:
        return rows[..., :width]
    widen = [(0, 0)] * (rows.ndim - 1) + [(0, width - rows.shape[-1])]
    return np.pad(rows, widen, constant_values=pad_id)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizers:
    """The tokenizers of all roles, with the limits of every role in tokens. `shared` makes one serve them all.

    A role's methods read its own tokenizer and no other, and pad with its own padding id. None stands for a part that
    is not loaded: its role's methods raise a ValueError.

    Attributes:
      question: of the question tower.
      passage: of the passage tower.
      source: of the generator's input: question and passage, as the generator reads them.
      target: of the generator's output.
      max_question: a question for the tower with its special tokens; one for the generator without.
      max_passage: a passage for the tower with its special tokens; one for the generator without.
      max_target: an answer with its end token.

    A text is text all through: where it says "</s>" or "[PAD]", those letters are tokenized, and no special token.

    Raises:
      ValueError: a tokenizer without a special token that its role needs, or a limit that leaves no room beside them.
    """

    # `PreTrainedTokenizerBase | None`; Any, as whoever asks for a role's ids has loaded its part.
    question: Any
    passage: Any
    source: Any
    target: Any
    max_question: int = 32
    max_passage: int = 160
    max_target: int = 24

    def __post_init__(self) -> None:
        """Checks the special tokens and the limits."""
        for role, names in _NEEDED.items():
            tokenizer = getattr(self, role)
            missing = [n for n in names if tokenizer is not None and getattr(tokenizer, f"{n}_token_id") is None]
            if missing:
                tokens = ", ".join(f"{name}_token" for name in missing)
                raise ValueError(f"the tokenizer for the {role} has no {tokens}: it belongs to another kind of model")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(
                    f"{name}={getattr(self, name)} leaves no room beside the special tokens: {least} or more"
                )

    @classmethod
    def shared(cls, tokenizer: PreTrainedTokenizerBase, **limits: int) -> Tokenizers:
        """One tokenizer in every role, as in the models that are made here. `limits` are the fields max_*."""
        return cls(question=tokenizer, passage=tokenizer, source=tokenizer, target=tokenizer, **limits)

    @property
    def is_shared(self) -> bool:
        """Whether one tokenizer plays every role."""
        return self.question is self.passage is self.source is self.target

    def _of(self, role: str) -> PreTrainedTokenizerBase:
        tokenizer = getattr(self, role)
        if tokenizer is None:
            raise ValueError(f"there is no tokenizer for the {role}: its part of the weights was not loaded")
        return tokenizer

    def _ids(self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        for number, text in enumerate(texts):
            if not _is_text(text):
                raise ValueError(
                    f"text {number} of {len(texts)} is not Unicode: {text[:80]!a}; decode it as what it is"
                )
        plain = {"add_special_tokens": False, "split_special_tokens": True, "return_attention_mask": False}
        return tokenizer(list(texts), **plain, verbose=False)["input_ids"]

    def count(self, role: str, text: str) -> int:
        """The tokens that a text is in this role, neither framed nor cut.

        Raises:
          ValueError: a text that is not Unicode.
        """
        return len(self._ids(self._of(role), [text])[0])

    def questions(self, texts: Sequence[str]) -> Int[np.ndarray, "N Q"]:
        """[CLS] question [SEP] for the question tower. The end of a question past the limit is cut, with a warning."""
        t = self._of("question")
        rows = _cut_questions(self._ids(t, texts), self.max_question - 2, "the question tower")
        return pad_rows([[t.cls_token_id, *row, t.sep_token_id] for row in rows], t.pad_token_id)

    def passages(self, passages: Sequence[Passage]) -> Int[np.ndarray, "N P"]:
        """[CLS] title [SEP] text [SEP] for the passage tower, as DPR reads passages; the text's tail is cut."""
        t = self._of("passage")
        rows = []
        titles = self._ids(t, [p.title for p in passages])
        for title, text in zip(titles, self._ids(t, [p.text for p in passages]), strict=True):
            row = [t.cls_token_id, *title, t.sep_token_id, *text]
            rows.append([*row[: self.max_passage - 1], t.sep_token_id])
        return pad_rows(rows, t.pad_token_id)

    def source_questions(self, texts: Sequence[str]) -> Int[np.ndarray, "N Q"]:
        """Questions for the generator, without special tokens: `rag_jax.rag.source` joins them to passages.

        The end of a question past the limit is cut, with a warning.
        """
        t = self._of("source")
        return pad_rows(_cut_questions(self._ids(t, texts), self.max_question, "the generator"), t.pad_token_id)

    def source_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts that are joined already, for the generator: neither framed nor cut nor padded."""
        return self._ids(self._of("source"), texts)

    def source_passages(self, passages: Sequence[Passage]) -> Int[np.ndarray, "N P"]:
        """`title </s> text` for the generator, without outer special tokens."""
        t = self._of("source")
        titles = self._ids(t, [p.title for p in passages])
        texts = self._ids(t, [p.text for p in passages])
        rows = [[*a, t.eos_token_id, *b][: self.max_passage] for a, b in zip(titles, texts, strict=True)]
        return pad_rows(rows, t.pad_token_id)

    def targets(self, texts: Sequence[str]) -> Int[np.ndarray, "N T"]:
        """`answer </s>`: what the generator is to write, its end token included."""
        t = self._of("target")
        rows = self._ids(t, texts)
        return pad_rows([[*row[: self.max_target - 1], t.eos_token_id] for row in rows], t.pad_token_id)

    def pieces(self, tokens: Sequence[str]) -> tuple[str, ...]:
        """Generated tokens as they read, each with the space that it begins with; U+FFFD for parts of a letter."""
        return tuple(self._of("target").convert_tokens_to_string([token]) for token in tokens)

    def labels(self, words: Sequence[str]) -> tuple[int, ...]:
        """The one token of the generator's output that each label is: as it stands, else as after a space.

        Raises:
          ValueError: a label that is several tokens, or that its token does not spell.
        """
        t = self._of("target")
        found = []
        for word in words:
            readings = self._ids(t, [word, f" {word}"])
            ids = [row[0] for row in readings if len(row) == 1 and self.text(np.array(row)) == word]
            if not ids:
                raise ValueError(
                    f"config.data.labels: {word!r} is {len(readings[0])} tokens of the generator, and a label is one; "
                    f"choose another word (its tokens: {' '.join(t.convert_ids_to_tokens(readings[0]))})"
                )
            found.append(ids[0])
        return tuple(found)

    def text(self, ids: Int[np.ndarray, "T"]) -> str:
        """The text of generated ids, without special tokens and outer spaces."""
        return self._of("target").decode(np.asarray(ids).tolist(), skip_special_tokens=True).strip()
