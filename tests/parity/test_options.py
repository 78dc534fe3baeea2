"""The options of decoding mean what they mean in transformers: token ids of its BART on the same weights.

Three models of one shape, so that every set of options compiles once.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.generation import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from rag_jax.rag.decode import decode_token
from rag_jax.rag.rules import DecodeOptions, warp
from tests.parity.peer import draw_weights, make_case, to_torch
from tests.parity.programs import compile_fast, run
from tests.parity.test_beam import up_to_end

SHAPE, WEIGHTS = 203, range(3)
BEAMS = {"num_beams": 4, "num_return_sequences": 3}
OPTIONS = [
    {"max_new_tokens": 3},
    {"max_new_tokens": 1},
    {"min_new_tokens": 4},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"forced_bos_token_id": 5},
    {"forced_eos_token_id": 2},
    {"forced_bos_token_id": 5, "forced_eos_token_id": 2, "max_new_tokens": 4},
    {"bad_words_ids": ((4,), (6,), (7,), (11,))},
    {"bad_words_ids": ((5, 5), (9, 9), (3, 3), (10, 10), (12, 12), (4, 8, 4))},
    {"bad_words_ids": ((2,), (8,))},
    BEAMS,
    BEAMS | {"length_penalty": 0.0},
    BEAMS | {"length_penalty": 2.0},
    BEAMS | {"length_penalty": -1.0},
    BEAMS | {"early_stopping": True},
    BEAMS | {"early_stopping": "never"},
    BEAMS | {"early_stopping": "never", "length_penalty": 2.0},
    BEAMS | {"min_new_tokens": 3, "no_repeat_ngram_size": 2},
    BEAMS | {"forced_bos_token_id": 5, "forced_eos_token_id": 2},
    BEAMS | {"bad_words_ids": ((4,), (5, 5), (9, 9))},
]


@functools.cache
def models():
    first = make_case(SHAPE)
    return [first, *(draw_weights(first, number) for number in WEIGHTS[1:])]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(f"{k}={v}" for k, v in options.items()))
def test_ids_are_those_of_transformers(options):
    options = {"max_new_tokens": 8} | options
    c = models()[0].ours.generator
    decode = None
    for case in models():
        source = case.source.reshape(-1, 1, case.source.shape[-1])
        mask = case.source_mask.reshape(source.shape)
        inputs = (case.ours.params["generator"], source, mask, jnp.zeros((len(source), 1)))
        if decode is None:
            decode = compile_fast(
                jax.jit(lambda *given: decode_token(given[0], c, *given[1:], DecodeOptions(**options)).tokens), *inputs
            )
        ours = decode(*inputs)
        theirs = generated(case.torch["token"].generator, source, mask, options, c.pad_id)
        assert up_to_end(ours.reshape(-1, ours.shape[-1]), c.eos_id, c.pad_id) == up_to_end(
            theirs[:, 1:], c.eos_id, c.pad_id
        )


def generated(model, source, mask, options, pad):
    """The peer's ids."""
    words = [[pad], *map(list, options.get("bad_words_ids", ()))]  # padding is a word like any other to it
    given = {"num_beams": 1, "num_return_sequences": 1, "forced_eos_token_id": None} | options
    with torch.no_grad():
        return model.generate(
            to_torch(source)[:, 0],
            attention_mask=to_torch(mask)[:, 0],
            do_sample=False,
            **given | {"bad_words_ids": words},
        )


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("options", [{"temperature": 0.7}, {"top_k": 5}, {"top_k": 1}, {"top_p": 0.8}, {"top_p": 0.01}])
def test_distributions_drawn_from_are_those_of_transformers(options, beams):
    logp = jax.nn.log_softmax(jnp.asarray(np.random.default_rng(0).normal(size=(2, beams, 40)) * 2, jnp.float32))
    ours = warp(logp, DecodeOptions(do_sample=True, num_beams=beams, **options))
    (name, value), least = *options.items(), 2 if beams > 1 else 1
    make = {
        "temperature": lambda: TemperatureLogitsWarper(value),
        "top_k": lambda: TopKLogitsWarper(value, min_tokens_to_keep=least),
        "top_p": lambda: TopPLogitsWarper(value, min_tokens_to_keep=least),
    }
    theirs = make[name]()(None, torch.tensor(np.asarray(logp)).reshape(-1, 40))
    np.testing.assert_allclose(ours.reshape(-1, 40), theirs, atol=1e-6)


def test_several_samples_keep_the_rules():
    case = models()[0]
    c = case.ours.generator
    source = case.source.reshape(-1, 1, case.source.shape[-1])
    options = DecodeOptions(
        max_new_tokens=6, do_sample=True, num_return_sequences=50, no_repeat_ngram_size=2, bad_words_ids=((4,),)
    )

    def decode(params, source, prior, key):
        return decode_token(params, c, source, source != c.pad_id, prior, options, key).tokens

    tokens = run(decode, case.ours.params["generator"], source, jnp.zeros((len(source), 1)), jax.random.key(1))
    assert tokens.shape[:2] == (len(source), 50)
    for answers in tokens.tolist():
        assert len(set(map(tuple, answers))) > 5
    for answer in tokens.reshape(-1, 6).tolist():
        said = [token for token in answer if token != c.pad_id]
        assert 4 not in said
        pairs = list(itertools.pairwise(said))
        assert len(set(pairs)) == len(pairs)
