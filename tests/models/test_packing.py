"""Sequence packing: sources that share rows have the answers, losses and gradients of sources in rows of their own."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_jax.models.bart import Bart
from rag_jax.models.packing import pack, packing, unpack
from rag_jax.rag.decode import decode_sequence, decode_token
from rag_jax.rag.marginal import log_prior
from rag_jax.rag.rules import DecodeOptions
from rag_jax.rag.score import answer_token_logprobs
from rag_jax.rag.shapes import first_fit_decreasing, packed
from rag_jax.types import Batch
from tests.small_models import SMALL_BART

BATCH, PASSAGES, WIDTH, PAD = 2, 4, 12, SMALL_BART.pad_id
LENGTHS = np.array([[12, 4, 3, 5], [2, 7, 4, 5]])
CONFIG = dataclasses.replace(SMALL_BART, encoder_layers=2)


def joined(lengths=LENGTHS, seed=0):
    """A batch whose sources are joined already, of these lengths."""
    ids = np.random.default_rng(seed).integers(4, CONFIG.vocab_size, (*lengths.shape, WIDTH))
    ids = np.where(np.arange(WIDTH) < lengths[..., None], ids, PAD).astype(np.int32)
    return Batch(None, np.zeros((len(ids), 0), np.int32), ids, None, np.ones(lengths.shape, bool))


@functools.cache
def model():
    ids = jnp.ones((1, 4), jnp.int32)
    return Bart(CONFIG).init(jax.random.key(0), ids, ids > 0, ids)["params"]


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_first_fit_decreasing_gives_every_source_room_of_its_own(lengths):
    row, start = first_fit_decreasing(np.array(lengths), 30)
    taken = np.zeros((len(lengths), 30), int)
    for r, s, n in zip(row, start, lengths, strict=True):
        assert s + n <= 30
        taken[r, s : s + n] += 1
    assert taken.max() == 1
    used = row.max() + 1
    assert (taken[:used].any(1)).all()
    assert used <= 11 / 9 * -(-sum(lengths) // 30) + 1 or used == sum(n > 15 for n in lengths) or used <= len(lengths)


@given(
    lengths=st.lists(st.lists(st.integers(1, WIDTH), min_size=3, max_size=3), min_size=1, max_size=6), data=st.data()
)
def test_each_token_of_any_sources_has_one_slot_beside_its_neighbours(lengths, data):
    lengths = np.array(lengths)
    groups = data.draw(st.sampled_from([number for number in (1, 2, 3) if not len(lengths) % number]))
    batch = packed(joined(lengths), PAD, WIDTH, groups)
    if batch.slots is None:  # too little to save
        return
    for slots, own in zip(batch.slots, lengths.reshape(groups, -1), strict=True):
        tokens = [source * WIDTH + place for source, length in enumerate(own) for place in range(length)]
        assert sorted(slots[slots >= 0].tolist()) == tokens
        for row in slots:
            follows = (row[1:] >= 0) & (row[1:] % WIDTH > 0)
            assert (row[1:][follows] == row[:-1][follows] + 1).all()


@pytest.mark.parametrize("groups", [1, 2])
def test_every_token_goes_into_a_slot_and_comes_back(groups):
    batch = packed(joined(), PAD, WIDTH, groups)
    assert batch.slots.shape == (groups, 4 // groups, WIDTH)
    rows = batch.passages.reshape(-1, WIDTH)
    layout = packing(jnp.asarray(batch.slots), len(rows), WIDTH)
    inside = pack(jnp.asarray(rows), layout, PAD)
    assert sorted(inside[inside != PAD].tolist()) == sorted(rows[rows != PAD].tolist())
    back = unpack(inside[..., None].astype(jnp.float32), layout, WIDTH)[..., 0]
    np.testing.assert_array_equal(np.where(rows == PAD, PAD, back), rows)


def test_packing_that_saves_too_little_is_left_alone():
    full = joined(np.full((2, 4), WIDTH))
    assert packed(full, PAD, WIDTH).slots is None
    assert packed(joined(), PAD, WIDTH).slots is not None
    with pytest.raises(ValueError, match="2 questions cannot be packed in 3 equal groups"):
        packed(joined(), PAD, WIDTH, 3)


@pytest.mark.parametrize("groups", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_packed_answers_have_the_same_probabilities_and_gradients(groups):
    batch = packed(joined(), PAD, WIDTH, groups)
    targets = jnp.asarray(np.random.default_rng(1).integers(4, CONFIG.vocab_size, (BATCH, 3)))
    weights = jax.random.normal(jax.random.key(2), (BATCH, PASSAGES, 3))

    def of(slots):
        def total(params):
            source = jnp.asarray(batch.passages)
            logp = answer_token_logprobs(params, CONFIG, source, source != PAD, targets, slots=slots)
            return (weights * logp).sum(), logp

        (_, logp), gradient = jax.jit(jax.value_and_grad(total, has_aux=True))(model())
        return logp, gradient

    (alone, gradient), (together, packed_gradient) = of(None), of(jnp.asarray(batch.slots))
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), packed_gradient, gradient)


@pytest.mark.parametrize("decode", [decode_token, decode_sequence])
def test_packed_sources_give_the_same_answers(decode):
    batch = packed(joined(), PAD, WIDTH)
    options = DecodeOptions(max_new_tokens=4, num_beams=2)
    prior = log_prior(jnp.asarray([[0.4, 0.1, 1.0, -1.0], [0.0, 0.3, 0.2, 0.5]]))
    source = jnp.asarray(batch.passages)
    of = jax.jit(lambda slots: decode(model(), CONFIG, source, source != PAD, prior, options, slots=slots))
    alone, together = of(None), of(jnp.asarray(batch.slots))
    np.testing.assert_array_equal(together.tokens, alone.tokens)
    np.testing.assert_allclose(together.logprob, alone.logprob, atol=1e-5)
    np.testing.assert_allclose(together.posterior, alone.posterior, atol=1e-5)


def test_a_programs_encoder_reads_the_packed_rows_and_no_others():
    """FLOPs follow the rows: the encoder's part is that of as many sources as there are packed rows."""
    batch = packed(joined(), PAD, WIDTH)

    def flops(rows):
        mask = jax.ShapeDtypeStruct((rows, WIDTH), bool)
        ids = jax.ShapeDtypeStruct((rows, WIDTH), jnp.int32)
        encode = lambda ids, mask: Bart(CONFIG).apply({"params": model()}, ids, mask, method=Bart.encode)  # noqa: E731
        return jax.jit(encode).lower(ids, mask).compile().cost_analysis()["flops"]

    def whole(ids, mask, slots):
        return Bart(CONFIG).apply({"params": model()}, ids, mask, slots, method=Bart.encode_sources)[0]

    ids = jnp.asarray(batch.passages.reshape(-1, WIDTH))
    mine = jax.jit(whole).lower(ids, ids != PAD, batch.slots).compile().cost_analysis()["flops"]
    assert batch.slots.shape[1] == 4
    assert mine < 0.6 * flops(8)
