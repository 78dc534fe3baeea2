"""The paper's two losses against brute force: a language so small that every answer can be written down.

Torch walks the tree of prefixes one token at a time, in float64 and in probabilities, without our equations.
"""

import dataclasses
import itertools
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from rag_jax.models import hf
from rag_jax.rag import marginal
from rag_jax.rag.score import answer_token_logprobs, passage_scores
from tests.parity.peer import scatter, to_torch
from tests.parity.programs import run

WORDS = (2, 3, 4, 5)  # </s> and three words; <s> and <pad> are made impossible
QUESTIONS, PASSAGES = 2, 3


@dataclasses.dataclass
class Language:
    """One small RAG: the generator on both sides, sources, and the prior as ours and as plain probabilities."""

    peer: torch.nn.Module
    config: hf.BartConfig
    params: dict
    source: jax.Array
    mask: jax.Array
    log_prior: jax.Array
    prior: np.ndarray


@pytest.fixture(scope="module", params=[0, 1])
def language(request):
    torch.manual_seed(request.param)
    rng = np.random.default_rng(request.param)
    config = BartConfig(
        vocab_size=6,
        d_model=12,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=3,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=16,
        init_std=0.35,  # with larger weights the logits' own float32 rounding comes near 1e-5
    )
    peer = scatter(BartForConditionalGeneration(config))
    peer.final_logits_bias[0, :2] = -1e4
    with tempfile.TemporaryDirectory() as directory:
        peer.save_pretrained(directory)
        config, params, _ = hf.load_bart(directory)
    source = rng.integers(2, 6, (QUESTIONS, PASSAGES, 7))
    query, vectors = rng.normal(size=(QUESTIONS, 8)), rng.normal(size=(QUESTIONS, PASSAGES, 8))
    scores = np.einsum("bd,bkd->bk", query, vectors)
    prior = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    ours = marginal.log_prior(passage_scores(*(jnp.asarray(x, jnp.float32) for x in (query, vectors))))
    source = jnp.asarray(source)
    return Language(peer.double(), config, params, source, jnp.ones(source.shape, bool), ours, prior)


def walk(language, question, length):
    """{answer: [K, length] probabilities of its tokens}, by extending every prefix by every word."""
    source = to_torch(language.source[question])
    start = language.config.decoder_start_id
    prefixes = {(): np.zeros((PASSAGES, 0))}
    with torch.no_grad():
        encoded = language.peer.model.encoder(source)
        for _ in range(length):
            longer = {}
            rows = torch.tensor([[start, *prefix] for prefix in prefixes])
            for passage in range(PASSAGES):
                states = encoded.last_hidden_state[passage : passage + 1].expand(len(rows), -1, -1)
                logits = language.peer(encoder_outputs=(states,), decoder_input_ids=rows).logits[:, -1]
                after = torch.softmax(logits, -1).numpy()
                for (prefix, so_far), next_word in zip(prefixes.items(), after, strict=True):
                    for word in WORDS:
                        given = longer.setdefault((*prefix, word), np.zeros((PASSAGES, len(prefix) + 1)))
                        given[passage] = [*so_far[passage], next_word[word]]
            prefixes = longer
    return prefixes


@pytest.mark.parametrize("length", [1, 2, 5])
def test_both_losses_are_those_of_brute_force_for_every_answer_there_is(language, length):
    answers = list(itertools.product(WORDS, repeat=length))
    targets = jnp.asarray(answers)
    real = jnp.ones(targets.shape, bool)

    def loglik(source, mask, prior):
        wide = [jnp.broadcast_to(x, (len(answers), *x.shape)) for x in (source, mask, prior)]
        logp = answer_token_logprobs(language.params, language.config, *wide[:2], targets)
        return marginal.sequence_loglik(wide[2], logp, real), marginal.token_loglik(wide[2], logp, real)

    for question in range(QUESTIONS):
        inputs = (x[question] for x in (language.source, language.mask, language.log_prior))
        ours = run(loglik, *inputs)
        tree = walk(language, question, length)
        prior = language.prior[question]
        sequence = [sum(prior[z] * np.prod(tree[answer][z]) for z in range(PASSAGES)) for answer in answers]
        token = [np.prod([sum(prior[z] * p[z] for z in range(PASSAGES)) for p in tree[answer].T]) for answer in answers]
        np.testing.assert_allclose(ours[0], np.log(sequence), atol=1e-5, rtol=0)
        np.testing.assert_allclose(ours[1], np.log(token), atol=1e-5, rtol=0)
        for loss in ours:  # nothing of the language is left out, so its probabilities sum to one
            assert np.exp(np.asarray(loss, np.float64)).sum() == pytest.approx(1, abs=1e-5)
        if length == 1:
            np.testing.assert_allclose(ours[0], ours[1], atol=1e-6)
        else:
            assert np.abs(ours[0] - ours[1]).max() > 1e-4
