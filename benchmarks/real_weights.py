"""Trained weights against torch: token ids of a real BART, sentence vectors of real BERTs. One JSON object per result.

    python benchmarks/real_weights.py --passages psgs.tsv --bart bart_g2p --bert minilm --bert tinybert

`--bart` is a grapheme-to-phoneme model whose config.json lists its characters (grapheme_chars); the words to spell are
the commonest of the passages. `--bert` is an encoder with its tokenizer. Needs the extra `parity`.
"""

import argparse
import collections
import csv
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers

from rag_jax.models import hf
from rag_jax.models.bert import Bert
from rag_jax.rag.decode import decode_token
from rag_jax.rag.rules import DecodeOptions
from rag_jax.text.tokens import pad_rows

BATCH = 50
BOS, EOS, UNKNOWN = 1, 2, 3  # of the grapheme-to-phoneme model
MAX_TOKENS = 48


def show(**result: Any) -> None:
    """One result as a line of JSON."""
    print(json.dumps(result), flush=True)


def read_passages(path: pathlib.Path, count: int) -> list[tuple[str, str]]:
    """(title, text) of the first passages of a file in DPR's format."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return [(row["title"], row["text"]) for row, _ in zip(rows, range(count), strict=False)]


def batches(rows: list[Any]) -> Iterator[list[Any]]:
    """Runs of one size; the last one is filled up with its own first row, so that one program serves all."""
    for start in range(0, len(rows), BATCH):
        run = rows[start : start + BATCH]
        yield run + run[:1] * (BATCH - len(run))


def common_words(passages: list[tuple[str, str]], letters: str, count: int) -> list[str]:
    """The commonest words that are written with these letters."""
    words = collections.Counter(re.findall(r"[A-Za-z']{2,16}", " ".join(text for _, text in passages)))
    return [word for word, _ in words.most_common() if set(word) <= set(letters)][:count]


def up_to_end(rows: np.ndarray) -> list[list[int]]:
    """Ids before the end token."""
    return [row[: row.index(EOS)] if EOS in row else row for row in rows.tolist()]


def compare_bart(directory: pathlib.Path, passages: list[tuple[str, str]], count: int) -> None:
    """Token ids of real words, greedy and with four beams."""
    letters = json.loads((directory / "config.json").read_text())["grapheme_chars"]
    ids = {letter: number for number, letter in enumerate(letters) if number > UNKNOWN}
    words = common_words(passages, "".join(ids), count)
    rows = pad_rows([[BOS, *(ids[letter] for letter in word), EOS] for word in words], 0)
    config, params, _ = hf.load_bart(directory)
    peer = transformers.BartForConditionalGeneration.from_pretrained(directory).eval()
    for beams, name in ((1, "greedy"), (4, "beam 4")):
        options = DecodeOptions(max_new_tokens=MAX_TOKENS, num_beams=beams)
        decode = jax.jit(lambda p, ids, prior, o=options: decode_token(p, config, ids, ids != 0, prior, o).tokens[:, 0])
        ours, theirs = [], []
        for batch in batches(list(rows)):
            source = jnp.asarray(np.stack(batch))[:, None]
            ours += up_to_end(np.asarray(decode(params, source, jnp.zeros((BATCH, 1)))))
            given = torch.tensor(np.stack(batch)).long()
            settings = {"num_beams": beams, "max_length": MAX_TOKENS + 1, "early_stopping": False}
            with torch.no_grad():
                out = peer.generate(given, attention_mask=(given != 0).long(), bad_words_ids=[[0]], **settings)
            theirs += up_to_end(out[:, 1:].numpy())
        equal = sum(one == other for one, other in zip(ours[: len(words)], theirs[: len(words)], strict=True))
        tokens = sum(map(len, theirs[: len(words)]))
        case = {"case": f"{directory.name} {name}", "metric": "words with equal token ids", "tokens": tokens}
        show(**case, ours=equal, bound=len(words), ratio=equal / len(words))


def compare_bert(directory: pathlib.Path, passages: list[tuple[str, str]]) -> None:
    """Sentence vectors of real passages, with every pooling."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    peer = transformers.BertModel.from_pretrained(directory, add_pooling_layer=False).eval()
    texts = [f"{title} {text}" for title, text in passages]
    for pooling in ("mean", "cls"):
        config, params, _ = hf.load_bert(directory, pooling=pooling)
        encode = jax.jit(Bert(config).apply)
        largest = 0.0
        for batch in batches(texts):
            rows = tokenizer(batch, padding=True, truncation=True, max_length=256, return_tensors="pt")
            ids, mask = rows["input_ids"], rows["attention_mask"]
            ours = encode({"params": params}, jnp.asarray(ids.numpy()), jnp.asarray(mask.numpy() > 0))
            with torch.no_grad():
                states = peer(ids, attention_mask=mask).last_hidden_state
            mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            theirs = states[:, 0] if pooling == "cls" else torch.nn.functional.normalize(mean, dim=-1)
            largest = max(largest, float(np.abs(np.asarray(ours) - theirs.numpy()).max()))
        case = {"case": f"{directory.name} {pooling}", "metric": "largest difference of vectors", "texts": len(texts)}
        show(**case, ours=largest, bound=1e-5, ratio=largest / 1e-5)


def main() -> None:
    """Compares what is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=pathlib.Path, required=True)
    parser.add_argument("--bart", type=pathlib.Path)
    parser.add_argument("--bert", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--quick", action="store_true", help="a tenth of the words and passages")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    passages = read_passages(options.passages, 2000)
    if options.bart:
        compare_bart(options.bart, passages, 100 if options.quick else 1000)
    for directory in options.bert:
        compare_bert(directory, passages[: 20 if options.quick else 200])


if __name__ == "__main__":
    main()
