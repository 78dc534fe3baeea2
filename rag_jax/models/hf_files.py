"""HOST. The files of a Hugging Face checkpoint: which hold the tensors, whole or in shards, and how they are written.

Tensors are found here by name and shape and read one at a time, so that a checkpoint needs little more memory than its
parameters. Torch is not needed for any of the formats.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from rag_jax.models.hf_stored import BFLOAT16, CheckpointError, Stored
from rag_jax.models.hf_torch_file import read_torch, write_torch
from rag_jax.types import name_special_tokens

FORMATS = {"safetensors": "model.safetensors", "bin": "pytorch_model.bin"}
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)
_SAFETENSORS_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": BFLOAT16,
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object of a file.

    Raises:
      CheckpointError: no such file, or something else in it.
    """
    path = pathlib.Path(path)
    try:
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        here = ", ".join(sorted(p.name for p in path.parent.iterdir())) if path.parent.is_dir() else "no such directory"
        raise CheckpointError(
            f"{path}: not there; a checkpoint is a directory with one (found: {here or 'nothing'})"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds a {type(value).__name__}, not an object")
    return value


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Stored]:
    """The tensors of a safetensors file.

    Raises:
      CheckpointError: not a whole safetensors file, or a tensor of a type that weights do not have.
    """
    path = pathlib.Path(path)

    def load(name: str) -> np.ndarray:
        with safe_open(path, framework="numpy") as file:
            return file.get_tensor(name)

    try:
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            kinds = {name: part.get_dtype() for name, part in slices.items()}
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not a whole safetensors file ({error}); copy it again") from None
    odd = [f"{name} ({kind})" for name, kind in kinds.items() if kind not in _SAFETENSORS_DTYPES]
    if odd:
        raise CheckpointError(f"{path}: tensors of types that weights do not have: {', '.join(odd[:10])}")
    return {n: Stored(shapes[n], _SAFETENSORS_DTYPES[kinds[n]], functools.partial(load, n)) for n in shapes}


_READERS: dict[str, Callable[..., dict[str, Stored]]] = {"safetensors": read_safetensors, "bin": read_torch}


def _refuse_pointer(path: pathlib.Path) -> None:
    with open(path, "rb") as stream:
        if stream.read(40).startswith(b"version https://git-lfs"):
            raise CheckpointError(f"{path}: only git-lfs's pointer, not the file; `git lfs pull` brings it")


def _read_shards(index_path: pathlib.Path, read: Callable[..., dict[str, Stored]]) -> dict[str, Stored]:
    places = read_json(index_path).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CheckpointError(f"{index_path}: no weight_map of tensor names to files")
    shards = sorted(set(places.values()))
    # A shard is a name beside its index: an index must not reach files elsewhere.
    elsewhere = [name for name in shards if pathlib.PurePath(name).name != name]
    if elsewhere:
        raise CheckpointError(f"{index_path}: names shards outside its own directory: {', '.join(elsewhere)}")
    missing = [name for name in shards if not (index_path.parent / name).is_file()]
    if missing:
        raise CheckpointError(f"{index_path}: {len(missing)} of {len(shards)} shards are missing: {', '.join(missing)}")
    found: dict[str, Stored] = {}
    for shard in shards:
        _refuse_pointer(index_path.parent / shard)
        tensors = read(index_path.parent / shard)
        absent = [name for name, place in places.items() if place == shard and name not in tensors]
        if absent:
            raise CheckpointError(
                f"{index_path.parent / shard}: the index promises tensors that it lacks: {', '.join(absent)}"
            )
        found |= tensors
    return found


def read_tensors(directory: str | os.PathLike[str]) -> dict[str, Stored]:
    """The tensors of a checkpoint directory: safetensors before torch's format, one file before shards.

    Raises:
      CheckpointError: no weights in a known format, a missing shard, a damaged file.
    """
    directory = pathlib.Path(directory)
    for kind, name in FORMATS.items():
        if (directory / name).is_file():
            _refuse_pointer(directory / name)
            return _READERS[kind](directory / name)
        if (directory / f"{name}.index.json").is_file():
            return _read_shards(directory / f"{name}.index.json", _READERS[kind])
    here = ", ".join(sorted(p.name for p in directory.iterdir())) if directory.is_dir() else "no such directory"
    wanted = ", ".join(f"{name}[.index.json]" for name in FORMATS.values())
    raise CheckpointError(f"{directory}: no weights in a known format (one of {wanted}); found: {here or 'nothing'}")


def _shards(sizes: Mapping[str, int], most: int | None) -> Iterator[list[str]]:
    """Names cut into runs of at most `most` bytes; a larger tensor is alone."""
    run: list[str] = []
    filled = 0
    for name, size in sizes.items():
        if run and most is not None and filled + size > most:
            yield run
            run, filled = [], 0
        run.append(name)
        filled += size
    yield run


def _write_file(path: pathlib.Path, tensors: Mapping[str, np.ndarray], kind: str) -> None:
    # Contiguous, because safetensors copies bytes from the first value's address whatever the strides.
    whole = {name: np.ascontiguousarray(value).reshape(value.shape) for name, value in tensors.items()}
    if kind == "bin":
        write_torch(path, whole)
    else:
        save_file(whole, path, metadata={"format": "pt"})  # transformers refuses a file that does not say so


def write_checkpoint(
    directory: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    *,
    dtype: np.dtype,
    kind: str = "safetensors",
    max_shard_bytes: int | None = None,
    files: Mapping[str, Any] | None = None,
) -> None:
    """Writes a checkpoint directory, beside and renamed into place.

    Args:
      directory: must not exist yet, or be empty.
      tensors: name -> array; may be views, they are copied shard by shard.
      config: config.json.
      dtype: what floating-point tensors are stored as.
      kind: 'safetensors' or 'bin'.
      max_shard_bytes: cut the weights into files of at most this size, with an index.
      files: further files, name (with folders) -> a path to copy, or a value to write as JSON.

    Raises:
      ValueError: unknown `kind`.
      CheckpointError: the directory holds something already.
    """
    if kind not in FORMATS:
        raise ValueError(f"format={kind!r}: choose one of {', '.join(FORMATS)}")
    with fresh_directory(directory) as beside:
        cast = {
            name: value.astype(dtype, copy=False) if value.dtype.kind in "fV" else value
            for name, value in tensors.items()
        }
        runs = list(_shards({name: value.nbytes for name, value in cast.items()}, max_shard_bytes))
        stem, suffix = FORMATS[kind].rsplit(".", 1)
        places: dict[str, str] = {}
        for number, run in enumerate(runs, start=1):
            file = FORMATS[kind] if len(runs) == 1 else f"{stem}-{number:05d}-of-{len(runs):05d}.{suffix}"
            _write_file(beside / file, {name: cast[name] for name in run}, kind)
            places |= dict.fromkeys(run, file)
        if len(runs) > 1:
            index = {"metadata": {"total_size": sum(v.nbytes for v in cast.values())}, "weight_map": places}
            write_json(beside / f"{FORMATS[kind]}.index.json", index)
        for name, source in (files or {}).items():
            (beside / name).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, pathlib.Path):
                shutil.copyfile(source, beside / name)
            else:
                write_json(beside / name, source)
        write_json(beside / "config.json", config)


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes JSON as people like to read it: indented, keys sorted."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", "utf-8")


@contextlib.contextmanager
def fresh_directory(directory: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """A directory to fill, renamed to `directory` at the end; when anything fails it is removed.

    Raises:
      CheckpointError: `directory` holds something already.
    """
    directory = pathlib.Path(directory)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise CheckpointError(f"{directory}: exists and is not empty; choose another place")
    beside = directory.parent / f".{directory.name}.{os.getpid()}"
    beside.mkdir(parents=True)
    try:
        yield beside
        if directory.exists():
            directory.rmdir()
        os.replace(beside, directory)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _describe_tokenizer(path: pathlib.Path) -> dict[str, Any]:
    """tokenizer_config.json for a bare tokenizer.json, by the names that special tokens have in BART and in BERT."""
    special = {token["content"] for token in read_json(path).get("added_tokens", []) if token.get("special")}
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    return described | name_special_tokens(special)


def tokenizer_files(directory: str | os.PathLike[str], into: str = "") -> dict[str, Any]:
    """The tokenizer files of a directory, as `write_checkpoint` takes them; empty when there are none.

    A tokenizer.json alone, as this project keeps it, is completed: transformers would guess its class from the model's.
    """
    directory = pathlib.Path(directory)
    files: dict[str, Any] = {name: directory / name for name in TOKENIZER_FILES if (directory / name).is_file()}
    if "tokenizer.json" in files and "tokenizer_config.json" not in files:
        files["tokenizer_config.json"] = _describe_tokenizer(directory / "tokenizer.json")
    return {str(pathlib.PurePosixPath(into, name)): source for name, source in files.items()}
