"""What all tests share: the platform, the compilation cache and the random generator."""

import os

# Before anything imports jax, which reads it once. The tests' expectations are for the CPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
import pytest


def pytest_configure(config):
    """Lets a rerun load compiled programs from pytest's cache folder instead of compiling them again."""
    if hasattr(config, "cache"):  # absent under `-p no:cacheprovider`
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("jax")))
        # The models in the tests are tiny: with jax's own bound of one second almost nothing would be kept.
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


@pytest.fixture
def rng():
    return np.random.default_rng(0)
