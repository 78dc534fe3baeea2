"""A WordPiece tokenizer as BERT has it and a byte-level BPE tokenizer as BART has it, made from a few sentences."""

import json
import re

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from rag_jax.text.tokens import SPECIAL_TOKENS

TEXTS = [
    "Who wrote the Iliad? Homer wrote it.",
    "The Iliad is an epic poem; so is the Odyssey.",
    "What is the capital of France / Peru? Paris // Lima",
]


def write_wordpiece(directory, texts=TEXTS):
    """vocab.txt alone, lower-cased, as bert-base-uncased comes: [PAD] is 0. Whole words, and letters for all others."""
    directory.mkdir(parents=True)
    words = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    letters = sorted({letter for word in words for letter in word})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    tokens += [word for word in words if len(word) > 1]
    (directory / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), "utf-8")
    return directory


def write_bpe(directory, texts=TEXTS, vocab_size=320):
    """vocab.json and merges.txt alone, cased, as facebook/bart-large comes: <s> is 0, <pad> 1, </s> 2."""
    directory.mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    (directory / "vocab.json").write_text(json.dumps(model["vocab"]), "utf-8")
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    (directory / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges), "utf-8")
    return directory
