"""Beam search and both RAG decodings against the peer's generate: token ids, equal one by one, over many random models.

Ten shapes with ten sets of weights and inputs each, so that a shape compiles once.
"""

import functools

import jax
import numpy as np
import pytest
import torch

from rag_jax.rag.decode import decode_sequence, decode_token
from rag_jax.rag.rules import DecodeOptions
from tests.parity.peer import draw_weights, make_case, to_torch
from tests.parity.programs import compile_fast

SHAPES = (301, 306, 309, 316, 327, 329, 300, 303, 312, 304)  # one decoder layer, then two, then three: it is unrolled
WEIGHTS, MAX_TOKENS = range(10), 7
DECODE = {"token": decode_token, "sequence": decode_sequence}


def up_to_end(rows, eos, pad):
    """Ids up to the end token, without padding."""
    cut = [row[: row.index(eos) + 1] if eos in row else row for row in np.asarray(rows).tolist()]
    return [[token for token in row if token != pad] for row in cut]


def seeing_padding(model, pad):
    """The peer's RAG-Sequence calls its generator without a mask, and the beams read the padding; here they don't."""
    generate = type(model.generator).generate
    model.generator.generate = lambda ids, **settings: generate(
        model.generator, ids, **settings | {"attention_mask": ids.ne(pad).long()}
    )


@functools.cache
def first_of(seed):
    return make_case(seed)


@functools.cache
def models_of_a_shape(seed):
    """Ten models of a shape with sources, masks and document scores of their own."""
    return [make_model(seed, number) for number in WEIGHTS]


def make_model(seed, number):
    case = draw_weights(first_of(seed), 1000 * seed + number)
    c = case.ours.generator
    rng = np.random.default_rng((seed, number))
    mask = np.asarray(case.source_mask)
    if number % 2:  # without padding in the batch
        mask = np.ones_like(mask)
    source = np.where(mask, rng.integers(3, c.vocab_size, mask.shape), c.pad_id)
    scores = rng.normal(size=source.shape[:2]).astype(np.float32) * 2
    prior = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    seeing_padding(case.torch["sequence"], c.pad_id)
    return case.torch, case.ours.params["generator"], source.astype(np.int32), mask, scores, prior


@pytest.mark.parametrize(("variant", "beams"), [("token", 1), ("token", 4), ("sequence", 1), ("sequence", 4)])
@pytest.mark.parametrize("seed", SHAPES)
def test_ids_are_the_peers(seed, variant, beams):
    compiled, said = None, set()
    for models, params, source, mask, scores, prior in models_of_a_shape(seed):
        model, c = models[variant], first_of(seed).ours.generator
        options = DecodeOptions(max_new_tokens=MAX_TOKENS, min_new_tokens=2, num_beams=beams)
        inputs = (params, source, mask, prior)
        if compiled is None:
            decode = functools.partial(DECODE[variant], config=c, options=options)
            compiled = compile_fast(
                jax.jit(lambda p, s, m, prior, f=decode: f(p, source=s, source_mask=m, prior=prior)), *inputs
            )
        ours = compiled(*inputs)
        with torch.no_grad():
            theirs = model.generate(
                context_input_ids=to_torch(inputs[1]).flatten(0, 1),
                context_attention_mask=to_torch(inputs[2]).flatten(0, 1),
                doc_scores=torch.tensor(scores),
                num_beams=beams,
                num_return_sequences=1,
                do_sample=False,
                length_penalty=1.0,
                early_stopping=False,
                min_new_tokens=2,  # RAG-Sequence loses the prior of one-token answers there
                max_length=MAX_TOKENS + 1,
                bad_words_ids=[[c.pad_id]],  # padding is a word like any other to it
                decoder_start_token_id=c.decoder_start_id,
                bos_token_id=c.bos_id,
                eos_token_id=c.eos_id,
                pad_token_id=c.pad_id,
                forced_eos_token_id=None,
            )
        expected = up_to_end(theirs[:, 1:], c.eos_id, c.pad_id)
        assert up_to_end(ours.tokens[:, 0], c.eos_id, c.pad_id) == expected
        said |= {tuple(row) for row in expected}
    assert len(said) > 3
