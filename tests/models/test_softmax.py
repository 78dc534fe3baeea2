"""Attention in pieces against attention over the row that the pieces make."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.softmax import normalise, partial_attention

R, G, S, W = 2, 3, 12, 4


def in_one_row(query, key, value, mask):
    score = jnp.where(mask, jnp.einsum("rgtw,rgsw->rgts", query, key), -jnp.inf)
    return jnp.einsum("rgts,rgsw->rgtw", jax.nn.softmax(score, axis=-1), value)


def in_pieces(cuts, query, key, value, mask):
    pieces = zip(*(jnp.split(x, cuts, axis=2) for x in (key, value)), jnp.split(mask, cuts, axis=3), strict=True)
    return normalise([partial_attention(query, *piece) for piece in pieces])


def make(rng, queries, rows_of_mask):
    made = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    mask = jnp.asarray(rng.random((R, 1, rows_of_mask, S)) < 0.5).at[..., 0].set(True)
    return made(R, G, queries, W), made(R, G, S, W), made(R, G, S, W), mask


@pytest.mark.parametrize("cuts", [(), (1, 10)])
@pytest.mark.parametrize(("queries", "rows_of_mask"), [(2, 1), (2, 2), (S + 3, S + 3)])
def test_pieces_are_weighted_as_if_they_stood_in_one_row(rng, cuts, queries, rows_of_mask):
    """More queries than keys and fewer; values and gradients."""
    case = make(rng, queries, rows_of_mask)
    weight = jnp.asarray(rng.normal(size=(R, G, queries, W)), jnp.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def value_and_gradients(f, *given):
        loss = lambda *given: (f(*given, case[3]) * weight).sum()  # noqa: E731
        return f(*given, case[3]), *jax.grad(loss, argnums=(0, 1, 2))(*given)

    found, expected = (value_and_gradients(f, *case[:3]) for f in (functools.partial(in_pieces, cuts), in_one_row))
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=5e-6)


@pytest.mark.parametrize("queries", [2, S])
def test_a_query_that_may_look_nowhere_gets_the_mean_of_all_values(rng, queries):
    query, key, value, mask = make(rng, queries, 1)
    nowhere = mask.at[1].set(False)
    mean = jnp.broadcast_to(value[1].mean(1, keepdims=True), (G, queries, W))
    for cuts in ((), (5,)):
        found = in_pieces(cuts, query, key, value, nowhere)
        np.testing.assert_allclose(found[1], mean, atol=1e-6)
        np.testing.assert_allclose(found[0], in_one_row(query, key, value, mask)[0], atol=2e-6)


@pytest.mark.parametrize("queries", [2, S])
def test_what_is_masked_is_not_seen_however_large(rng, queries):
    query, key, value, mask = make(rng, queries, 1)
    loud = jnp.where(mask.swapaxes(2, 3), key, 1e6)
    np.testing.assert_allclose(
        in_pieces((), query, loud, value, mask), in_pieces((), query, key, value, mask), atol=2e-6
    )
