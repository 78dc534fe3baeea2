"""Fusion-in-Decoder: one decoder over all passages, against states that are joined by hand, and its own laws."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.fit.model_flops import forward_flops
from rag_jax.models.bart import Bart
from rag_jax.rag.decode import decode_sequence, decode_together
from rag_jax.rag.labels import decode_labels
from rag_jax.rag.rules import DecodeOptions
from rag_jax.rag.score import answer_token_logprobs
from rag_jax.rag.shapes import packed
from rag_jax.types import Batch
from tests.small_models import SMALL_BART, small_bart_params

CONFIG = SMALL_BART
PAD, EOS = CONFIG.pad_id, CONFIG.eos_id
B, K, S, T = 4, 3, 8, 5
GREEDY, BEAMS = DecodeOptions(max_new_tokens=T), DecodeOptions(max_new_tokens=T, num_beams=3, num_return_sequences=2)


@pytest.fixture(scope="module")
def params():
    return small_bart_params()


@pytest.fixture(scope="module")
def case():
    """Sources, their masks with one passage that does not exist, and answers."""
    rng = np.random.default_rng(5)
    mask = np.arange(S) < rng.integers(2, 6, (B, K, 1))
    mask[1, 2] = False
    source = np.where(np.arange(S) < 6, rng.integers(3, 21, (B, K, S)), PAD)
    source = np.where(mask | ~mask.any(-1, keepdims=True), source, PAD)
    return jnp.asarray(source, jnp.int32), jnp.asarray(mask), jnp.asarray(rng.integers(3, 21, (B, T)), jnp.int32)


@jax.jit
def scored(params, source, mask, targets, slots=None):
    """log p of each answer's tokens [B,T], and the gradient of their weighted sum."""
    weights = jnp.cos(jnp.arange(targets.size, dtype=jnp.float32)).reshape(targets.shape)

    def total(params):
        logp = answer_token_logprobs(params, CONFIG, source, mask, targets, slots=slots, together=True)[:, 0]
        return (weights * logp).sum(), logp

    (_, logp), gradient = jax.value_and_grad(total, has_aux=True)(params)
    return logp, gradient


@functools.partial(jax.jit, static_argnames="options")
def decoded(params, source, mask, options, slots=None):
    return decode_together(params, CONFIG, source, mask, options, slots=slots)


@jax.jit
def encoded(params, source, mask):
    return Bart(CONFIG).apply({"params": params}, source, mask, method=Bart.encode)


@jax.jit
def next_logprobs(params, states, seen, inputs):
    model = Bart(CONFIG)
    x = model.apply({"params": params}, inputs[None], states[None], seen[None], method=model.decode)
    return jax.nn.log_softmax(model.apply({"params": params}, x, method=model.logits))[0]


def joined_by_hand(params, source, mask):
    """One question's states of real tokens, one passage behind the other, and how many; rubbish behind them."""
    states = np.full((K * S, CONFIG.width), 7.0, np.float32)
    real = np.asarray(encoded(params, source, mask))[np.asarray(mask)]
    states[: len(real)] = real
    return jnp.asarray(states), jnp.arange(K * S) < len(real)


def close(ours, expected, atol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol), ours, expected)


def test_an_answer_is_scored_over_the_states_of_all_its_passages_joined(params, case):
    ours, _ = scored(params, *case)
    for row, (source, mask, target) in enumerate(zip(*case, strict=True)):
        inputs = jnp.concatenate([jnp.asarray([CONFIG.decoder_start_id]), target[:-1]])
        logp = next_logprobs(params, *joined_by_hand(params, source, mask), inputs)
        close(ours[row], np.take_along_axis(np.asarray(logp), np.asarray(target)[:, None], 1)[:, 0])


def test_greedy_decoding_equals_a_plain_loop_without_cache(params, case):
    found, lengths = decoded(params, *case[:2], GREEDY), []
    for row, (source, mask) in enumerate(zip(*case[:2], strict=True)):
        given, tokens, total = joined_by_hand(params, source, mask), [], 0.0
        while len(tokens) < T and EOS not in tokens:
            inputs = np.full(T, PAD, np.int32)
            inputs[: len(tokens) + 1] = [CONFIG.decoder_start_id, *tokens]
            logp = np.asarray(next_logprobs(params, *given, jnp.asarray(inputs)))[len(tokens)]
            tokens.append(int(np.where(np.arange(len(logp)) == PAD, -np.inf, logp).argmax()))
            total += logp[tokens[-1]]
        lengths.append(len(tokens))
        assert found.tokens[row, 0].tolist() == tokens + [PAD] * (T - len(tokens))
        assert found.logprob[row, 0] == pytest.approx(total, abs=1e-4)
    assert len(set(lengths)) > 1
    assert found.posterior is None


def test_labels_are_as_likely_as_the_one_decoder_says(params, case):
    labels = (5, 9, 12)
    found = jax.jit(decode_labels, static_argnums=(1, 5), static_argnames="together")(
        params, CONFIG, *case[:2], jnp.full((B, K), 9.0), labels, together=True
    )
    start = jnp.full(T, PAD).at[0].set(CONFIG.decoder_start_id)
    for row, (source, mask) in enumerate(zip(*case[:2], strict=True)):
        logp = np.asarray(next_logprobs(params, *joined_by_hand(params, source, mask), start))[0]
        close(found.logprob[row], sorted(logp[list(labels)], reverse=True))
        assert found.tokens[row, 0, 0] == max(labels, key=lambda label: logp[label])
    assert found.posterior is None


def test_with_one_passage_it_is_rag_sequence_with_one_passage(params, case):
    source, mask, targets = (x[:, :1] if x.ndim == 3 else x for x in case)

    @jax.jit
    def both(params):
        score = functools.partial(answer_token_logprobs, params, CONFIG, source, mask, targets)
        theirs = decode_sequence(params, CONFIG, source, mask, jnp.zeros((B, 1)), GREEDY, fast=True)
        ours = decode_together(params, CONFIG, source, mask, GREEDY)
        return (score(together=True), ours.tokens, ours.logprob), (score(), theirs.tokens, theirs.logprob)

    ours, theirs = both(params)
    close(ours, theirs)
    assert (ours[1] == theirs[1]).all()


def test_order_of_passages_changes_nothing(params, case):
    source, mask, targets = case
    turned = source[:, ::-1], mask[:, ::-1]
    for a, b in zip(*map(jax.tree.leaves, (scored(params, *turned, targets), scored(params, *case))), strict=True):
        # Sums in another order, and where their parts cancel: near the greatest of the array, no nearer.
        close(a, b, atol=1e-5 * max(1, np.abs(b).max()))
    ours, theirs = decoded(params, *turned, BEAMS), decoded(params, source, mask, BEAMS)
    np.testing.assert_array_equal(ours.tokens, theirs.tokens)
    np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=1e-5)


def test_a_passage_that_does_not_exist_has_no_influence(params, case):
    source, mask, targets = case
    other = jnp.where(mask.any(-1, keepdims=True), source, 9)
    assert (other != source).any()
    close(scored(params, other, mask, targets), scored(params, *case), atol=1e-7)
    np.testing.assert_array_equal(
        decoded(params, other, mask, BEAMS).tokens, decoded(params, source, mask, BEAMS).tokens
    )


def test_packed_sources_give_the_same_answers_and_gradients(params, case):
    (source, mask, _), groups = case, 2
    batch = Batch(None, np.zeros((B, 0), np.int32), np.asarray(source), None, np.asarray(mask.any(-1)))
    slots = packed(batch, PAD, S, groups).slots
    assert slots.shape[0] == groups
    assert slots.shape[0] * slots.shape[1] < B * K
    close(scored(params, *case, slots), scored(params, *case))
    ours, theirs = decoded(params, source, mask, BEAMS, slots), decoded(params, source, mask, BEAMS)
    np.testing.assert_array_equal(ours.tokens, theirs.tokens)
    np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=1e-5)


def test_the_decoder_runs_once_for_each_question(params, case):
    """Not once for each passage: that is what the variant saves. What it looks at is as much as before."""

    def flops(together):
        return forward_flops(
            lambda *given: answer_token_logprobs(given[0], CONFIG, *given[1:], together=together), params, *case
        )

    width, hidden = CONFIG.width, CONFIG.decoder_hidden
    layer = 6 * width**2 + 2 * width * hidden + 2 * T * width  # six products of the width, the wide ones, attention
    row = T * (CONFIG.decoder_layers * layer + width * CONFIG.table_rows)
    assert flops(False) - flops(True) == 2 * B * (K - 1) * row
