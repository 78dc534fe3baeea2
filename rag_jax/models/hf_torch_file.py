"""HOST. Tensors in and out of the files that torch.save writes: zip archives, and the raw files of torch before 1.6.

Torch is not needed, and nothing in a file is executed: see `rag_jax.models.hf_torch_program`.
"""

from __future__ import annotations

import functools
import math
import os
import pathlib
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from rag_jax.models.hf_stored import CheckpointError, Stored
from rag_jax.models.hf_torch_program import Storage, View, interpret, program

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # the first value of a file from torch < 1.6
_LEGACY_PROTOCOL = 1001


def _look(flat: np.ndarray, view: View) -> np.ndarray:
    """The values of a tensor, bounds checked first: strides from a file must not read outside its storage."""
    if min((*view.shape, *view.strides, view.offset)) < 0:
        raise CheckpointError(f"a tensor of shape {view.shape} and strides {view.strides} at {view.offset}")
    count = math.prod(view.shape)
    reach = view.offset + sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
    if count and (reach >= flat.size or count > flat.size):
        raise CheckpointError(f"a tensor of shape {view.shape} lies outside its storage of {flat.size} values")
    strides = [stride * flat.itemsize for stride in view.strides]
    window = flat[view.offset :] if count else flat[:0]
    return np.array(np.lib.stride_tricks.as_strided(window, view.shape, strides))


class _ZipStorages:
    """The storages of a file from torch >= 1.6: entries of a zip archive, with checksums."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        with zipfile.ZipFile(path) as archive:
            programs = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
            if len(programs) != 1:
                raise CheckpointError("a zip archive, but not one that torch.save wrote (it has no data.pkl)")
            self.prefix = programs[0].removesuffix("data.pkl")
            if f"{self.prefix}byteorder" in archive.namelist() and archive.read(f"{self.prefix}byteorder") != b"little":
                raise CheckpointError("written on a big-endian machine; save it again on a little-endian one")
            with archive.open(programs[0]) as stream:
                self.value = interpret(stream)
        self.read = functools.lru_cache(maxsize=1)(self._read)  # tensors of one storage come one after the other

    def _read(self, storage: Storage) -> np.ndarray:
        with zipfile.ZipFile(self.path) as archive:
            content = archive.read(f"{self.prefix}data/{storage.key}")
        if len(content) < storage.length * storage.dtype.itemsize:
            raise CheckpointError(
                f"storage {storage.key} has {len(content)} bytes, fewer than its {storage.length} values"
            )
        return np.frombuffer(content, storage.dtype, storage.length)


class _LegacyStorages:
    """The storages of a file from torch < 1.6: raw bytes behind five pickles."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.places: dict[str, tuple[int, int]] = {}
        size = path.stat().st_size
        with open(path, "rb") as stream:
            if interpret(stream) != _LEGACY_MAGIC or interpret(stream) != _LEGACY_PROTOCOL:
                raise CheckpointError("a pickle, but not one that torch.save wrote")
            machine = interpret(stream)
            if not isinstance(machine, dict) or not machine.get("little_endian", True):
                raise CheckpointError("written on a big-endian machine; save it again on a little-endian one")
            self.value = interpret(stream)
            items = {view.storage.key: view.storage.dtype.itemsize for view in _views(self.value).values()}
            keys = interpret(stream)
            if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
                raise CheckpointError("no list of its tensors' storages")
            for key in keys:
                head = stream.read(8)
                count = struct.unpack("<q", head)[0] if len(head) == 8 else -1
                start, length = stream.tell(), count * items.get(key, 0)
                if count < 0 or key not in items or start + length > size:
                    raise CheckpointError("the file ends before its last tensor; copy it again")
                self.places[key] = (start, count)
                stream.seek(length, os.SEEK_CUR)
        self.read = functools.lru_cache(maxsize=1)(self._read)

    def _read(self, storage: Storage) -> np.ndarray:
        start, count = self.places[storage.key]
        return np.fromfile(self.path, storage.dtype, count, offset=start)


def _views(value: Any) -> dict[str, View]:
    if not isinstance(value, dict) or not value:
        raise CheckpointError(f"it holds a {type(value).__name__}, not the state dict of a model")
    odd = [repr(name) for name, view in value.items() if not isinstance(view, View)]
    if odd:
        raise CheckpointError(f"not a state dict: these entries are no tensors: {', '.join(odd[:10])}")
    return value


def read_torch(path: str | os.PathLike[str]) -> dict[str, Stored]:
    """The tensors of a torch .bin or .pt file that holds a state dict, zipped (torch >= 1.6) or not.

    Raises:
      CheckpointError: not such a file, a damaged one, or one that holds anything but tensors.
    """
    path = pathlib.Path(path)

    def load(storages: Any, view: View) -> np.ndarray:
        try:
            return _look(storages.read(view.storage), view)
        except (CheckpointError, zipfile.BadZipFile, KeyError, OSError, EOFError) as error:
            raise CheckpointError(f"{path}: {error}; copy it again") from None

    try:
        with open(path, "rb") as stream:
            zipped = stream.read(4) == b"PK\x03\x04"
        storages = _ZipStorages(path) if zipped else _LegacyStorages(path)
        views = _views(storages.value)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise CheckpointError(f"{path}: not a whole torch file ({error}); copy it again") from None
    return {
        name: Stored(view.shape, view.storage.dtype, functools.partial(load, storages, view))
        for name, view in views.items()
    }


def write_torch(path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a file that torch.load reads as a state dict; equal tensors give equal bytes.

    Args:
      path: the file to make.
      tensors: name -> array; order is kept.
    """
    with zipfile.ZipFile(path, "w") as archive:

        def entry(name: str, content: Any) -> None:
            # A fixed date, or the same weights would never give the same file.
            info = zipfile.ZipInfo(f"archive/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            with archive.open(info, "w", force_zip64=True) as stream:
                stream.write(content)

        entry("data.pkl", program(tensors))
        entry("byteorder", b"little")
        for number, tensor in enumerate(tensors.values()):
            entry(f"data/{number}", np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)
        entry("version", b"3\n")
