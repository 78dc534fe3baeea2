"""One tower: sizes, padding, dropout, pooling, precision and recomputation."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.bert import Bert, BertConfig
from rag_jax.rag.model import architecture, init_params

CONFIG = BertConfig(
    vocab_size=31, width=16, layers=2, heads=2, hidden=32, max_positions=12, token_types=2, init_std=0.25
)
TOKENS = jnp.asarray([[2, 5, 9, 11, 3, 0, 0, 0], [2, 7, 8, 3, 0, 0, 0, 0], [2, 9, 5, 11, 12, 13, 14, 3]], jnp.int32)


@functools.partial(jax.jit, static_argnums=0)
def encode(config, params, tokens, mask=None):
    return Bert(config).apply({"params": params}, tokens, mask)


@functools.partial(jax.jit, static_argnums=0)
def encode_with_dropout(config, params, tokens, key):
    return Bert(config).apply({"params": params}, tokens, deterministic=False, rngs={"dropout": key})


@functools.partial(jax.jit, static_argnums=0)
def loss_and_gradients(config, params, tokens, key):
    def loss(params):
        out = Bert(config).apply({"params": params}, tokens, deterministic=False, rngs={"dropout": key})
        return (out**2 * jnp.arange(config.width)).sum()

    return jax.value_and_grad(loss)(params)


def init(config):
    return jax.jit(Bert(config).init)(jax.random.key(0), TOKENS)["params"]


@pytest.fixture(scope="module")
def params():
    return init(CONFIG)


def quick_key(seed):
    """A dropout key whose generator compiles in a fraction of the default's time."""
    return jax.random.key(seed, impl="unsafe_rbg")


def changed(**settings):
    return dataclasses.replace(CONFIG, **settings)


def test_a_tower_of_full_size_has_the_parameters_of_bert_base():
    shapes = jax.eval_shape(functools.partial(init_params, architecture()), jax.random.key(0))
    for tower in ("question_encoder", "passage_encoder"):
        assert sum(leaf.size for leaf in jax.tree.leaves(shapes[tower])) == 108_891_648


def test_padding_changes_no_vector(params):
    config = changed(pooling="mean")  # so that every state has a part in the vector
    vectors = encode(config, params, TOKENS)
    short = encode(config, params, TOKENS[:2, :5])
    np.testing.assert_allclose(vectors[:2], short, atol=1e-5)
    assert np.abs(vectors[0] - vectors[2]).max() > 0.01


def test_masked_places_may_hold_anything(params):
    mask = CONFIG.pad_id != TOKENS
    garbage = jnp.where(mask, TOKENS, 17)
    np.testing.assert_allclose(encode(CONFIG, params, garbage, mask), encode(CONFIG, params, TOKENS), atol=1e-6)
    assert np.abs(encode(CONFIG, params, garbage) - encode(CONFIG, params, TOKENS))[:2].max() > 0.01


def test_order_of_words_matters(params):
    vectors = encode(CONFIG, params, TOKENS[:, jnp.asarray([0, 2, 1, 3, 4, 5, 6, 7])])
    assert np.abs(vectors - encode(CONFIG, params, TOKENS)).max(-1).min() > 0.01


def test_cls_pooling_is_the_first_state_and_mean_pooling_a_unit_mean_of_the_real_ones(params):
    mask = CONFIG.pad_id != TOKENS
    states = jax.jit(lambda p: Bert(CONFIG).apply({"params": p}, TOKENS, mask, method="hidden_states"))(params)
    np.testing.assert_allclose(encode(CONFIG, params, TOKENS), states[:, 0], atol=1e-6)
    means = np.stack([np.asarray(row[real]).mean(0) for row, real in zip(states, np.asarray(mask), strict=True)])
    unit = means / np.linalg.norm(means, axis=-1, keepdims=True)
    np.testing.assert_allclose(encode(changed(pooling="mean"), params, TOKENS), unit, atol=1e-5)


def test_how_layers_run_changes_neither_loss_nor_gradients(params):
    key = quick_key(1)
    loss, gradients = loss_and_gradients(CONFIG, params, TOKENS, key)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradients["layers"]["feed_forward"]))
    for how in ({"remat": "dots"}, {"remat": "full"}, {"unroll": 9}):
        same, gradients_again = loss_and_gradients(changed(**how), params, TOKENS, key)
        np.testing.assert_allclose(same, loss, rtol=1e-5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), gradients_again, gradients)


@pytest.mark.parametrize(("unroll", "loops"), [(1, True), (CONFIG.layers, False)])
def test_layers_of_one_pass_are_no_loop(params, unroll, loops):
    run = jax.jit(lambda p: Bert(changed(unroll=unroll)).apply({"params": p}, TOKENS))
    assert (" while(" in run.lower(params).compile().as_text()) == loops


def test_an_unknown_remat_is_refused():
    with pytest.raises(ValueError, match="remat='some': choose one of none, full, dots"):
        jax.eval_shape(Bert(changed(remat="some")).init, jax.random.key(0), TOKENS)


def test_remat_outside_a_loop_is_refused():
    with pytest.raises(ValueError, match="remat='full' recomputes in a loop of single layers alone, and unroll=2"):
        jax.eval_shape(Bert(changed(remat="full", unroll=2)).init, jax.random.key(0), TOKENS)


def test_layers_have_parameters_of_their_own(params):
    kernels = params["layers"]["attention"]["query"]["kernel"]
    assert kernels.shape == (2, 16, 16)
    assert not np.array_equal(kernels[0], kernels[1])


def test_dropout_is_off_unless_asked_for_and_then_follows_its_key(params):
    np.testing.assert_array_equal(encode(CONFIG, params, TOKENS), encode(CONFIG, params, TOKENS))
    first, again, other = (encode_with_dropout(CONFIG, params, TOKENS, quick_key(i)) for i in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01
    assert np.abs(first - encode(CONFIG, params, TOKENS)).max() > 0.01


def test_a_text_longer_than_the_positions_is_refused():
    with pytest.raises(ValueError, match="13 tokens, but BERT has 12 positions"):
        jax.eval_shape(Bert(CONFIG).init, jax.random.key(0), jnp.ones((1, 13), jnp.int32))


def test_bfloat16_compute_keeps_parameters_and_vectors_in_float32(params):
    half = changed(dtype=jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(jax.eval_shape(Bert(half).init, jax.random.key(0), TOKENS))} == {
        jnp.dtype("float32")
    }
    vectors = encode(half, params, TOKENS)
    assert vectors.dtype == jnp.float32
    exact = encode(CONFIG, params, TOKENS)
    assert 0 < np.abs(vectors - exact).max() < 0.15
