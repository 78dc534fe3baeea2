"""What all tests share: the platform, the compilation cache, the random generator, the examples of a property."""

import gc
import os
import pathlib
from importlib import metadata

# Before anything imports jax, which reads it once. The tests' expectations are for the CPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Nearly all the tests' time is XLA compiling tiny programs that run once or twice: optimising them does not pay.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
# These save most of what is left. XLA ends the process at a flag that it does not know: add a version once it has run
# with them. Without them the tests pass too, only later.
if metadata.version("jaxlib") in ("0.10.2",):
    flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ.setdefault("XLA_FLAGS", flags)

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Properties: a few examples, always the same ones, or with --hypothesis-profile=long (`make test-long`) many, of which
# each run makes its own. Half a minute is no fault: an example may build an index, or wait for other tests.
slow_is_fine = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
settings.register_profile("short", max_examples=25, stateful_step_count=5, derandomize=True, **slow_is_fine)
settings.register_profile("long", max_examples=1000, stateful_step_count=10, print_blob=True, **slow_is_fine)
settings.load_profile("short")


MOST_MAPS = 40_000  # a file of tests takes some thousands


def pytest_configure(config):
    """Lets a rerun load compiled programs from pytest's cache folder instead of compiling them again."""
    if hasattr(config, "cache"):  # absent under `-p no:cacheprovider`
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("jax")))
        # The models in the tests are tiny: with jax's own bound of one second almost nothing would be kept. Keeping
        # everything costs a first run more than it saves it.
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.4")


def pytest_collection_finish(session):
    """What is imported by now stays, as does most of what jax traces: the collector need not walk it all the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(autouse=True, scope="module")
def room_for_programs():
    """Drops compiled programs while there is still room for more.

    A program takes six of the 65,530 memory maps that Linux gives a process. XLA ends the process when none is left, as
    happened to one process that ran all the tests.
    """
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        import jax  # here, as the environment above is read when it is first imported

        jax.clear_caches()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def as_users_compile(monkeypatch):
    """Compiling for a TPU without the flags that the other tests run with: libtpu ends the process at unknown ones."""
    import jax

    jax.devices("cpu")  # has read the flags by now
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
