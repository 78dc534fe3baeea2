"""HOST. Floating-point operations of the matrix products in a compiled program.

On TPUs every product is a convolution, those with batch dimensions in a form of their own: a batch dimension becomes a
window over a dilated axis in which one place in n meets data. Only places that meet data are counted.
"""

from __future__ import annotations

import functools
import math
import re

import numpy as np

from rag_jax.tpu.hlo import Computation, Instruction, Program, Shape

PRODUCTS = ("dot", "convolution")


def flops_of(program: Program, computation: Computation, instruction: Instruction) -> float:
    """Two for each multiply-add of a dot or convolution, or of those inside a fusion; 0 for everything else."""
    if instruction.operation == "fusion":
        inner = program.computations[instruction.called("calls")[0]]
        return sum((flops_of(program, inner, part) for part in inner.instructions.values()), 0.0)
    if instruction.operation not in PRODUCTS:
        return 0.0
    sides = [computation.instructions[name].shapes[0] for name in instruction.operands]
    if instruction.operation == "dot":
        listed = instruction.attribute(r"lhs_contracting_dims=\{([\d,]*)\}") or ""
        summed = math.prod(sides[0].dims[int(axis)] for axis in listed.split(",") if axis)
        return 2.0 * instruction.shapes[0].elements * summed
    return _convolution(instruction, sides[0], sides[1])


def _convolution(instruction: Instruction, data: Shape, kernel: Shape) -> float:
    """`data` and `kernel` are the operands; dim_labels says which of their dimensions is which."""
    of_data, of_kernel, of_result = re.split("_|->", instruction.needed(r"dim_labels=([\w?]+_[\w?]+->[\w?]+)"))
    result = instruction.shapes[0]
    pairs = 1
    for axis, window in _windows(instruction, len(of_data) - 2).items():
        sizes = (s.dims[labels.index(axis)] for s, labels in ((data, of_data), (result, of_result)))
        pairs *= _meeting(*sizes, *window)
    features = kernel.dims[of_kernel.index("i")] * result.dims[of_result.index("f")]
    return 2.0 * pairs * features * result.dims[of_result.index("b")]


Window = tuple[int, int, int, int, int]
"""Size, stride, padding before, dilation of the data, dilation of the window."""


def _windows(instruction: Instruction, axes: int) -> dict[str, Window]:
    """The window along each spatial axis '0', '1', ...; along an axis that the text leaves out it is trivial."""
    said = instruction.attribute(r"window=\{([^}]*)\}") or ""
    fields = dict(field.split("=") for field in said.split())
    found = {}
    for axis in range(axes):
        of = {name: value.split("x")[axis] for name, value in fields.items()}
        before = int(of.get("pad", "0_0").split("_")[0])
        size, stride, dilate, spread = (int(of.get(f, 1)) for f in ("size", "stride", "lhs_dilate", "rhs_dilate"))
        found[str(axis)] = (size, stride, before, dilate, spread)
    return found


@functools.lru_cache(maxsize=4096)
def _meeting(data: int, result: int, size: int, stride: int, before: int, dilate: int, spread: int) -> int:
    """How many (place of the result, place of the window) meet an element of the data: no padding, no hole."""
    at = np.arange(result)[:, None] * stride + np.arange(size) * spread - before
    return int(((at >= 0) & (at <= (data - 1) * dilate) & (at % dilate == 0)).sum())
