"""What the tests share that compile for a TPU."""

import jax
import pytest

FAST = "jax_disable_most_optimizations"


@pytest.fixture
def as_users_compile(monkeypatch):
    """Without the flags that the other tests run with: libtpu ends the process at one that it does not know."""
    jax.devices("cpu")  # has read them by now
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    before = jax.config.read(FAST)
    jax.config.update(FAST, False)
    yield
    jax.config.update(FAST, before)
