"""HOST. A tensor that lies in a file, known by shape before it is read; and the error of every bad checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

BFLOAT16 = np.dtype(jnp.bfloat16)
STORAGE_DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": BFLOAT16}


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message names the place and, where there is one, the way out."""


@dataclasses.dataclass(frozen=True)
class Stored:
    """One tensor of a file.

    Attributes:
      shape: its shape, known without reading the values.
      dtype: the type in the file.
      load: reads it; raises CheckpointError when the bytes are damaged.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    load: Callable[[], np.ndarray]


def storage_dtype(name: str) -> np.dtype:
    """The numpy type behind a name that a user gives.

    Raises:
      ValueError: not a type that weights are stored in; the message lists those that are.
    """
    if name not in STORAGE_DTYPES:
        raise ValueError(f"dtype={name!r}: weights are stored as {', '.join(STORAGE_DTYPES)}")
    return STORAGE_DTYPES[name]
