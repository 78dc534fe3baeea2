"""Compiling with the least effort: it is what the tests here cost, as every model has sizes of its own."""

from typing import Any

import jax


def compile_fast(function: Any, *args: Any) -> Any:
    """A jitted function compiled for these arguments with the least effort: compiling is what the tests here cost."""
    lowered = function.lower(*args)
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    options |= {"xla_cpu_parallel_codegen_split_count": 1}
    try:
        return lowered.compile(compiler_options=options | {"xla_cpu_use_fusion_emitters": False})
    except jax.errors.JaxRuntimeError:  # a jax that does not know an option
        return lowered.compile()


def run(function: Any, *args: Any) -> Any:
    """The value of a function, as one compiled program."""
    return compile_fast(jax.jit(function), *args)(*args)
