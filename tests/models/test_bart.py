"""The generator: sizes, padding, causality, the cached step against teacher forcing, precision and recomputation."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.bart import Bart, BartConfig, shift_right
from rag_jax.models.bart_step import cross_caches, empty_caches, step_states, unstack_layers
from rag_jax.models.layers import LANES, Segment, attend, head_groups, split_heads
from rag_jax.rag.model import architecture, init_params

CONFIG = BartConfig(
    vocab_size=29,
    vocab_multiple=8,
    width=16,
    encoder_layers=2,
    decoder_layers=2,
    encoder_heads=2,
    decoder_heads=4,
    encoder_hidden=32,
    decoder_hidden=24,
    max_positions=9,
    init_std=0.25,
)
R, S, T = 3, 8, 6
LENGTHS = np.array([8, 5, 3])
STATES = jnp.asarray(np.random.default_rng(4).normal(size=(R, 16)), jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def logits_of(config, params, source, mask, inputs):
    return Bart(config).apply({"params": params}, source, mask, inputs)


@functools.partial(jax.jit, static_argnums=0)
def loss_and_gradients(config, params, source, mask, inputs, key):
    def loss(params):
        logits = Bart(config).apply({"params": params}, source, mask, inputs, False, rngs={"dropout": key})
        return jnp.tanh(logits[..., : config.vocab_size]).sum()

    return jax.value_and_grad(loss)(params)


@jax.jit
def encode(params, source, mask):
    return Bart(CONFIG).apply({"params": params}, source, mask, method="encode")


@jax.jit
def sources_keys_values(params, encoded):
    return cross_caches(unstack_layers(params, CONFIG), CONFIG, encoded)


@jax.jit
def one_step(params, tokens, position, caches, cross, own_mask, source_mask):
    split = unstack_layers(params, CONFIG)
    states, caches = step_states(
        split, CONFIG, tokens, position[None, None], position * tokens.shape[1], caches, cross, own_mask, source_mask
    )
    return Bart(CONFIG).apply({"params": params}, states, method="logits"), caches


def init(config):
    ids, real = jnp.ones((1, 4), jnp.int32), jnp.ones((1, 4), bool)
    return jax.jit(Bart(config).init)(jax.random.key(0), ids, real, ids)["params"]


@pytest.fixture(scope="module")
def params():
    return init(CONFIG)


@pytest.fixture(scope="module")
def case():
    """Source, mask and decoder inputs."""
    rng = np.random.default_rng(1)
    mask = np.arange(S) < LENGTHS[:, None]
    source = np.where(mask, rng.integers(3, 29, (R, S)), CONFIG.pad_id)
    inputs = rng.integers(3, 29, (R, T))
    inputs[:, 0] = CONFIG.decoder_start_id
    return jnp.asarray(source, jnp.int32), jnp.asarray(mask), jnp.asarray(inputs, jnp.int32)


def quick_key(seed):
    """A dropout key whose generator compiles in a fraction of the default's time."""
    return jax.random.key(seed, impl="unsafe_rbg")


def changed(**settings):
    return dataclasses.replace(CONFIG, **settings)


def count(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def test_the_full_model_has_the_parameters_of_the_paper():
    shapes = jax.eval_shape(functools.partial(init_params, architecture()), jax.random.key(0))
    assert count(shapes["generator"]) == 406_291_456
    assert count((shapes["question_encoder"], shapes["generator"])) == 108_891_648 + 406_291_456
    assert count(shapes["passage_encoder"]) == 108_891_648


def test_padding_of_the_source_changes_no_logit(params, case):
    source, mask, inputs = case
    logits = logits_of(CONFIG, params, source, mask, inputs)
    garbage = logits_of(CONFIG, params, jnp.where(mask, source, 11), mask, inputs)
    np.testing.assert_allclose(garbage, logits, atol=1e-5)


def test_a_state_sees_no_later_input(params, case):
    source, mask, inputs = case
    logits = logits_of(CONFIG, params, source, mask, inputs)
    other = logits_of(CONFIG, params, source, mask, inputs.at[:, 3:].set(7))
    np.testing.assert_array_equal(other[:, :3], logits[:, :3])
    assert np.abs(other[:, 3:] - logits[:, 3:])[..., :29].max((1, 2)).min() > 0.01


def test_source_reaches_every_logit(params, case):
    source, mask, inputs = case
    other = logits_of(CONFIG, params, source.at[:, 0].add(1), mask, inputs)
    assert np.abs(other - logits_of(CONFIG, params, source, mask, inputs)).max(-1).min() > 1e-3


def test_cached_step_equals_teacher_forcing(params, case):
    source, mask, inputs = case
    expected = logits_of(CONFIG, params, source, mask, inputs)
    cross = sources_keys_values(params, encode(params, source, mask))
    caches = empty_caches(CONFIG, R, T)
    for t in range(T):
        seen = jnp.broadcast_to(jnp.arange(T) <= t, (R, 1, T))
        logits, caches = one_step(params, inputs[:, t : t + 1], jnp.int32(t), caches, cross, seen, mask)
        np.testing.assert_allclose(logits[:, 0], expected[:, t], atol=1e-5)


def test_cached_step_of_two_beams_follows_their_ancestors(params, case):
    """Beams change their parents; slots stay, the mask picks: every beam's logits are those of its own path."""
    source, mask, _ = case
    rng = np.random.default_rng(2)
    parents = rng.integers(0, 2, (T, R, 2))
    tokens = rng.integers(3, 29, (T, R, 2))
    tokens[0] = CONFIG.decoder_start_id
    assert (parents[1:, :, 0] == 1).any()
    cross = sources_keys_values(params, encode(params, source, mask))
    caches, ancestors = empty_caches(CONFIG, R, T * 2), np.zeros((R, 2, T * 2), bool)
    paths = np.full((R, 2, T), 7)
    for t in range(T):
        ancestors = np.take_along_axis(ancestors, parents[t][..., None], axis=1)
        paths = np.take_along_axis(paths, parents[t][..., None], axis=1)
        ancestors[:, [0, 1], [2 * t, 2 * t + 1]] = True
        paths[:, :, t] = tokens[t]
        logits, caches = one_step(
            params, jnp.asarray(tokens[t], jnp.int32), jnp.int32(t), caches, cross, jnp.asarray(ancestors), mask
        )
        for beam in range(2):
            expected = logits_of(CONFIG, params, source, mask, jnp.asarray(paths[:, beam], jnp.int32))
            np.testing.assert_allclose(logits[:, beam], expected[:, t], atol=1e-5)


@pytest.mark.parametrize("has_logits_bias", [False, True])
def test_vocabulary_padding_never_gets_probability(params, has_logits_bias):
    config = changed(has_logits_bias=has_logits_bias)
    if has_logits_bias:
        params = params | {"final_logits_bias": jnp.full(32, 100.0)}
    assert params["tokens"]["embedding"].shape == (32, 16)
    logits = Bart(config).apply({"params": params}, STATES, method="logits")
    probabilities = jax.nn.softmax(logits, axis=-1)
    assert (probabilities[..., 29:] == 0).all()
    np.testing.assert_allclose(probabilities[..., :29].sum(-1), 1, atol=1e-5)


def test_logits_bias_is_added_and_gets_no_gradient(params):
    head = lambda config, p: Bart(config).apply({"params": p}, STATES, method="logits")[..., :29]  # noqa: E731
    config, bias = changed(has_logits_bias=True), jnp.linspace(-1, 1, 32)
    added = head(config, params | {"final_logits_bias": bias}) - head(CONFIG, params)
    np.testing.assert_allclose(added, jnp.broadcast_to(bias[:29], added.shape), atol=1e-5)
    gradient = jax.grad(lambda b: jnp.tanh(head(config, params | {"final_logits_bias": b})).sum())(bias)
    assert (gradient == 0).all()


@pytest.mark.parametrize("has_logits_bias", [False, True])
def test_the_logit_of_one_token_is_that_of_all(params, has_logits_bias):
    config = changed(has_logits_bias=has_logits_bias)
    params = params | {"final_logits_bias": jnp.linspace(-1, 1, 32)} if has_logits_bias else params
    tokens = jnp.asarray([5, 28, 31])
    every = Bart(config).apply({"params": params}, STATES, method="logits")
    one = Bart(config).apply({"params": params}, STATES, tokens, method="token_logits")
    np.testing.assert_allclose(one, jnp.take_along_axis(every, tokens[:, None], axis=1)[:, 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "width", "groups"), [(16, 1024, 8), (12, 768, 6), (4, 128, 1), (3, 384, 3), (2, 512, 2)]
)
def test_as_many_heads_share_a_row_of_a_cache_as_it_holds(heads, width, groups):
    assert head_groups(heads, width, LANES) == groups
    assert dataclasses.replace(CONFIG, decoder_heads=heads, width=width, cache_row=LANES).cache_groups == groups
    assert head_groups(heads, width) == (groups if jax.default_backend() == "tpu" else heads)


@pytest.mark.parametrize("per_query", [False, True])
def test_grouped_heads_and_split_keys_attend_as_single_heads_and_whole_keys(per_query):
    """Each head sees its own keys only, whatever shares their rows, and wherever the keys lie."""
    rng = np.random.default_rng(6)
    time, slots, heads, width = 3, 7, 6, 24
    query, key, value = (
        jnp.asarray(rng.normal(size=(2, length, width)), jnp.float32) for length in (time, slots, slots)
    )
    mask = jnp.asarray(rng.random((2, 1, time if per_query else 1, slots)) < 0.6).at[..., 0].set(True)
    single = attend(split_heads(query, heads), Segment(split_heads(key, heads), split_heads(value, heads), mask))

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def grouped(groups, cuts, query, key, value, mask):
        parts = zip(*(jnp.split(x, cuts, axis=1) for x in (key, value)), jnp.split(mask, cuts, axis=-1), strict=True)
        segments = [Segment(split_heads(k, groups), split_heads(v, groups), m) for k, v, m in parts]
        first = segments[0]  # of which the keys lie the other way round
        segments[0] = first._replace(key=first.key.swapaxes(2, 3), key_axes="rgws")
        return attend(split_heads(query, groups), *segments, together=heads // groups)

    for groups in (6, 3, 2, 1):
        for cuts in ((), (5,), (2, 4)):
            np.testing.assert_allclose(grouped(groups, cuts, query, key, value, mask), single, atol=1e-6)


@pytest.mark.slow
def test_how_layers_run_changes_neither_loss_nor_gradients(params, case):
    key = quick_key(1)
    loss, gradients = loss_and_gradients(CONFIG, params, *case, key)
    for how in ({"remat": "dots"}, {"remat": "full"}, {"unroll": 9}):
        same, gradients_again = loss_and_gradients(changed(**how), params, *case, key)
        np.testing.assert_allclose(same, loss, rtol=1e-5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), gradients_again, gradients)


@pytest.mark.parametrize(("unroll", "loops"), [(1, True), (2, False)])
def test_layers_of_one_pass_are_no_loop(params, case, unroll, loops):
    lowered = jax.jit(lambda p: Bart(changed(unroll=unroll)).apply({"params": p}, *case)).lower(params)
    assert (" while(" in lowered.compile().as_text()) == loops


def test_dropout_is_off_unless_asked_for_and_then_follows_its_key(params, case):
    np.testing.assert_array_equal(logits_of(CONFIG, params, *case), logits_of(CONFIG, params, *case))
    first, again, other = (loss_and_gradients(CONFIG, params, *case, quick_key(i))[0] for i in (1, 1, 2))
    assert first == again
    assert abs(first - other) > 1e-3


@pytest.mark.parametrize(("source", "target", "what"), [(10, 4, "source: 10"), (4, 10, "target: 10")])
def test_texts_longer_than_the_positions_are_refused(source, target, what):
    ids = jnp.ones((1, source), jnp.int32)
    with pytest.raises(ValueError, match=f"{what} tokens, but BART has 9 positions"):
        jax.eval_shape(Bart(CONFIG).init, jax.random.key(0), ids, ids == 1, jnp.ones((1, target), jnp.int32))


def test_bfloat16_compute_keeps_parameters_and_logits_in_float32(params, case):
    half = changed(dtype=jnp.bfloat16)
    ids = jnp.ones((1, 4), jnp.int32)
    made = jax.eval_shape(Bart(half).init, jax.random.key(0), ids, ids == 1, ids)
    assert {leaf.dtype for leaf in jax.tree.leaves(made)} == {jnp.dtype("float32")}
    logits = logits_of(half, params, *case)
    assert logits.dtype == jnp.float32
    assert 0 < np.abs(logits - logits_of(CONFIG, params, *case))[..., :29].max() < 0.25


def test_decoder_inputs_are_the_targets_behind_the_start_token():
    targets = jnp.asarray([[5, 6, 2], [7, 2, 1]])
    assert shift_right(targets, 2).tolist() == [[2, 5, 6], [2, 7, 2]]
