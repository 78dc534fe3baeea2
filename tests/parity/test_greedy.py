"""Greedy decoding against the peer's generate: token ids, equal one by one."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from rag_jax.rag import marginal
from rag_jax.rag.decode import decode_token
from rag_jax.rag.rules import DecodeOptions
from rag_jax.rag.score import passage_scores
from tests.parity.peer import make_case, to_torch
from tests.parity.programs import run

MAX_TOKENS = 8  # the seeds below are of models that say something by then, and end at different lengths


def scores_of(case):
    query = case.torch["token"].question_encoder(to_torch(case.question), to_torch(case.question_mask))[0]
    return passage_scores(jnp.asarray(query.detach().numpy()), case.vectors)


def rows(tokens, eos, pad):
    """Ids up to the end token; what stands behind it, and how wide the padding is, is nobody's business."""
    cut = []
    for row in np.asarray(tokens).tolist():
        row = row[: row.index(eos) + 1] if eos in row else row
        cut.append([token for token in row if token != pad])
    return cut


@pytest.mark.parametrize("seed", [200, 205, 210, 225, 234, 235])
def test_rag_token_ids_are_the_peers(seed):
    case = make_case(seed)
    c, scores = case.ours.generator, scores_of(case)
    decode = functools.partial(decode_token, config=c, options=DecodeOptions(max_new_tokens=MAX_TOKENS))
    ours = run(
        lambda params, source, mask, prior: decode(params, source=source, source_mask=mask, prior=prior).tokens[:, 0],
        case.ours.params["generator"],
        case.source,
        case.source_mask,
        marginal.log_prior(scores),
    )
    model = case.torch["token"]
    with torch.no_grad():
        theirs = model.generate(
            context_input_ids=to_torch(case.source).flatten(0, 1),
            context_attention_mask=to_torch(case.source_mask).flatten(0, 1),
            doc_scores=to_torch(scores),
            num_beams=1,
            do_sample=False,
            max_length=MAX_TOKENS + 1,
            decoder_start_token_id=c.decoder_start_id,
            bos_token_id=c.bos_id,
            eos_token_id=c.eos_id,
            pad_token_id=c.pad_id,
            forced_eos_token_id=None,
        )
    expected = rows(theirs[:, 1:], c.eos_id, c.pad_id)
    assert rows(ours, c.eos_id, c.pad_id) == expected
    assert any(len(set(row)) > 1 for row in expected)


@pytest.mark.parametrize("seed", [203, 221, 239])
def test_barts_own_ids_are_the_peers(seed):
    case = make_case(seed)
    c = case.ours.generator
    source = case.source.reshape(-1, 1, case.source.shape[-1])
    mask = case.source_mask.reshape(source.shape)
    prior = jnp.zeros((len(source), 1))  # one passage: RAG-Token is the generator alone
    decode = functools.partial(decode_token, config=c, options=DecodeOptions(max_new_tokens=MAX_TOKENS))
    ours = run(
        lambda params, source, mask, prior: decode(params, source=source, source_mask=mask, prior=prior).tokens[:, 0],
        case.ours.params["generator"],
        source,
        mask,
        prior,
    )
    with torch.no_grad():
        theirs = case.torch["token"].generator.generate(
            to_torch(source)[:, 0],
            attention_mask=to_torch(mask)[:, 0],
            num_beams=1,
            do_sample=False,
            max_length=MAX_TOKENS + 1,
            forced_eos_token_id=None,
        )
    assert rows(ours, c.eos_id, c.pad_id) == rows(theirs[:, 1:], c.eos_id, c.pad_id)
