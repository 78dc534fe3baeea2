"""What the layers are made of, against the library's own."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.layers import FeedForward, gelu

VALUES = jnp.linspace(-8, 8, 1601)


@pytest.mark.parametrize(("dtype", "near"), [(jnp.float32, 1e-6), (jnp.bfloat16, 1e-2)])
def test_gelu_and_its_derivatives_are_those_of_the_library(dtype, near):
    ours, theirs = gelu, lambda x: nn.gelu(x, approximate=False)
    for _ in range(2 if dtype == jnp.bfloat16 else 3):  # the value, the slope and the slope's own
        got, expected = (jax.vmap(f)(VALUES.astype(dtype)) for f in (ours, theirs))
        assert got.dtype == dtype
        np.testing.assert_allclose(got.astype(np.float32), expected.astype(np.float32), atol=near, rtol=near)
        ours, theirs = jax.grad(ours), jax.grad(theirs)


def test_backward_pass_keeps_two_arrays_of_the_hidden_width():
    block, x = FeedForward(8, 32, "gelu", 0.0, jnp.float32, 0.1), jnp.ones((2, 3, 8))
    params = block.init(jax.random.key(0), x)
    _, backward = jax.vjp(lambda params, x: block.apply(params, x), params, x)
    assert [kept.shape for kept in jax.tree.leaves(backward)].count((2, 3, 32)) == 2  # the slope, what is projected
