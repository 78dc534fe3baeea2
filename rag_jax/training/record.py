"""HOST. What a run was made with, beside it: versions, the code's revision, devices, the index.

`record.json` has one entry for every time that a run was started, so that a run which went on elsewhere says so.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess

import jax

from rag_jax.index import Baseline, Index
from rag_jax.text.whole_files import write_json

_OF_THE_INDEX = ("backend", "count", "dim", "passages", "encoder")  # the last two are fingerprints
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "transformers", "scann", "numpy")


def versions() -> dict[str, str]:
    """Package -> version, of what decides about a run's numbers; without those that are not installed."""
    found = {"python": platform.python_version()}
    for name in ("rag-jax", *PACKAGES):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def revision() -> str | None:
    """The git revision of the code, with '+' where files differ from it; None outside a checkout of it."""
    here = pathlib.Path(__file__).resolve()

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(here.parent), *arguments], capture_output=True, text=True, check=True, timeout=10
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    # An installed package may lie inside somebody else's checkout.
    if git("ls-files", "--error-unmatch", here.name) is None:
        return None
    head = git("rev-parse", "HEAD")
    return head and head + "+" * bool(git("status", "--porcelain", "--untracked-files=no"))


def write_record(workdir: str | os.PathLike[str], step: int, index: Index | Baseline | None) -> None:
    """Adds this start to `workdir`/record.json; of several processes only the first writes.

    Args:
      workdir: the run's.
      step: that it starts from.
      index: what is searched; None where nothing is.
    """
    if jax.process_index() != 0:
        return
    manifest = index.manifest if isinstance(index, Index) else None  # for a baseline nothing was built
    path = pathlib.Path(workdir) / "record.json"
    starts = json.loads(path.read_text("utf-8")) if path.exists() else []
    starts.append(
        {
            "step": step,
            "versions": versions(),
            "revision": revision(),
            "devices": {"kind": jax.devices()[0].device_kind, "count": jax.device_count()},
            "processes": jax.process_count(),
            "index": {name: getattr(manifest, name) for name in _OF_THE_INDEX} if manifest else None,
        }
    )
    write_json(path, starts)
