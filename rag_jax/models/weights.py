"""HOST. Parameters in and out of safetensors files under this project's own names."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

SHIPPED = pathlib.Path(__file__).parent.parent / "pretrained"


def save_params(path: str | pathlib.Path, params: Mapping[str, Any], dtype: str = "float32") -> None:
    """Writes a parameter tree, beside and renamed.

    Args:
      path: the file to make.
      params: nested dict of arrays; names become 'a/b/c'.
      dtype: storage type, float32 or float16 (half the size, rounded).
    """
    flat = {"/".join(k): np.ascontiguousarray(np.asarray(v, dtype)) for k, v in flatten_dict(dict(params)).items()}
    save_tensors(path, flat)


def save_tensors(
    path: str | pathlib.Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a safetensors file, beside and renamed, that everybody may read.

    Args:
      path: the file to make.
      tensors: contiguous arrays by name.
      metadata: texts to keep with them.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(dict(tensors), beside, metadata=None if metadata is None else dict(metadata))
        beside.chmod(0o644)  # safetensors makes files that only their owner may read
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def load_params(path: str | pathlib.Path, like: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Reads a parameter tree as float32.

    Args:
      path: a file from `save_params`.
      like: a tree of arrays or shapes that the result must match name by name and shape by shape.

    Raises:
      FileNotFoundError: no such file.
      ValueError: not a whole safetensors file, or a name or shape that differs; every difference is listed.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no weights there")
    try:
        flat = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error}); copy it again") from error
    flat = {name: value.astype(np.float32) for name, value in flat.items()}
    if like is not None:
        wanted = {"/".join(k): tuple(v.shape) for k, v in flatten_dict(dict(like)).items()}
        found = {name: value.shape for name, value in flat.items()}
        faults = [f"missing {name} {wanted[name]}" for name in sorted(wanted.keys() - found.keys())]
        faults += [f"not wanted {name} {found[name]}" for name in sorted(found.keys() - wanted.keys())]
        faults += [
            f"{name} is {found[name]}, should be {wanted[name]}"
            for name in sorted(wanted.keys() & found.keys())
            if wanted[name] != found[name]
        ]
        if faults:
            raise ValueError(f"{path}: does not fit this model:\n  " + "\n  ".join(faults))
    return unflatten_dict({tuple(name.split("/")): value for name, value in flat.items()})
