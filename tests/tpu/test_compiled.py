"""Programs compiled for a TPU that is not there. They need libtpu, which no other test does."""

import jax
import jax.numpy as jnp
import pytest

from rag_jax.tpu.chips import CHIPS
from rag_jax.tpu.price import price
from rag_jax.tpu.topology import can_compile, devices

pytestmark = [
    pytest.mark.skipif(not can_compile(), reason="libtpu is not installed"),
    pytest.mark.usefixtures("as_users_compile"),
]
V5E = CHIPS["v5e"]


def text_of(function, *shapes, dtype=jnp.bfloat16):
    place = jax.sharding.SingleDeviceSharding(devices("v5e:2x4")[0])
    inputs = [jax.ShapeDtypeStruct(shape, dtype, sharding=place) for shape in shapes]
    return jax.jit(function).lower(*inputs).compile().as_text()


def test_a_scan_on_a_tpu_is_counted_as_often_as_it_runs():
    def scanned(weights, x):
        return jax.lax.scan(lambda y, w: (y @ w, None), x, weights)[0]

    cost = price(text_of(scanned, (12, 1024, 1024), (256, 1024)), V5E)
    assert cost.flops == 12 * 2 * 256 * 1024 * 1024
    weights = 12 * 1024 * 1024 * 2
    assert weights <= cost.hbm_bytes < 1.3 * weights


def test_a_large_product_on_a_tpu_is_estimated_near_its_peak():
    cost = price(text_of(jnp.matmul, (8192, 8192), (8192, 8192)), V5E)
    assert cost.flops == 2 * 8192**3
    assert 1 < cost.seconds / (cost.flops / V5E.flops) < 1.3


def test_products_with_batch_dimensions_have_their_flops_on_a_tpu():
    text = text_of(lambda q, k: jnp.einsum("bhtd,bhsd->bhts", q, k), (10, 16, 8, 128), (10, 16, 256, 128))
    assert "lhs_dilate" in text
    assert price(text, V5E).flops == 2 * 10 * 16 * 8 * 256 * 128


def test_an_unknown_topology_is_an_error_that_names_it():
    with pytest.raises(RuntimeError, match="v5e:7x7x7"):
        devices("v5e:7x7x7")
