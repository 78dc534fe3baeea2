"""HOST. Checkpoints of a run: a state every few steps, kept by Orbax, beside the configuration that made them.

A run directory holds `config.json`, the text of `rag_jax.config.to_json`, and `checkpoints/<step>`, Orbax's own files.
Both are written beside and renamed, so a killed run leaves only whole ones.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

# Fields that a run may change and still go on from its checkpoints: how long and how often, what is measured, what is
# recomputed in the backward pass, and on how many devices in how many parts. A group's name stands for all its fields.
MAY_DIFFER = (
    "train.steps",
    "train.log_every",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "train.accumulate",
    "data.eval_questions_path",
    "data.regex_answers",
    "model.remat",
    "eval",
    "sharding",
)


class ConfigurationMismatch(ValueError):
    """The run directory holds checkpoints of another configuration."""


class _OrbaxChatter(logging.Filter):
    """Drops Orbax's information lines, of which each save writes about thirty; its warnings pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or f"{os.sep}orbax{os.sep}" not in record.pathname


_CHATTER = _OrbaxChatter()  # one object, so that adding it again changes nothing


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def differences(ours: str, theirs: str) -> dict[str, tuple[Any, Any]]:
    """Dotted field -> (value in `ours`, value in `theirs`) where two config.json texts differ; `MAY_DIFFER` left out.

    A field that one of them lacks counts as 'absent' there.
    """
    left, right = _flatten(json.loads(ours)), _flatten(json.loads(theirs))
    found = {}
    for field in dict.fromkeys([*left, *right]):
        values = left.get(field, "absent"), right.get(field, "absent")
        may_differ = any(field == name or field.startswith(name + ".") for name in MAY_DIFFER)
        if values[0] != values[1] and not may_differ:
            found[field] = values
    return found


class Checkpointer:
    """Saves and restores the training state of one run. Usable in `with`, which waits for the last save.

    On several hosts every process makes one over the same directory and calls each method at the same steps.

    Args:
      directory: the run directory; made if it is not there.
      config_json: the configuration, JSON text of an object.
      keep: how many checkpoints stay; older ones are deleted.
      record: write config.json; a reader of checkpoints leaves the one that is there.

    Raises:
      ConfigurationMismatch: the directory holds checkpoints made with another configuration, or with an unknown one.
        Nothing has been written then.
    """

    def __init__(self, directory: str | os.PathLike[str], config_json: str, keep: int = 2, record: bool = True):
        run = Path(os.path.abspath(directory))
        states, written = run / "checkpoints", run / "config.json"
        if states.is_dir() and ocp.utils.checkpoint_steps(states):
            _refuse_another(run, config_json, written.read_text("utf-8") if written.exists() else None)
        logging.getLogger("absl").addFilter(_CHATTER)
        if record and jax.process_index() == 0:
            run.mkdir(parents=True, exist_ok=True)
            beside = run / "config.json.partial"
            beside.write_text(config_json, "utf-8")
            os.replace(beside, written)
        self._manager = ocp.CheckpointManager(
            states,
            options=ocp.CheckpointManagerOptions(max_to_keep=keep),
            item_handlers=ocp.StandardCheckpointHandler(),  # so that a fresh process can read a checkpoint's shapes
        )

    def save(self, step: int, state: Any) -> bool:
        """Starts to save `state`, a pytree of arrays; returns once the arrays may be overwritten or donated.

        Returns:
          Whether it is being saved: False when there is a checkpoint of this step, or a later one, already.
        """
        return self._manager.save(step, args=ocp.args.StandardSave(state))

    def latest_step(self) -> int | None:
        """The step of the newest whole checkpoint, None when there is none."""
        return self._manager.latest_step()

    def restore(self, abstract_state: Any) -> Any:
        """The newest state, in the structure, dtypes and shardings of `abstract_state`.

        Args:
          abstract_state: a pytree of `jax.ShapeDtypeStruct`s (as from `jax.eval_shape`), with shardings on several
            devices; it need not be sharded as the state was that was saved.

        Raises:
          FileNotFoundError: there is no checkpoint yet; ask `latest_step` first.
          ValueError: the checkpoint holds other arrays; the first that differ are named with both shapes.
        """
        self._manager.wait_until_finished()
        step = self.latest_step()
        if step is None:
            raise FileNotFoundError(f"no checkpoint in {self._manager.directory}")
        # Orbax would find it too, halfway through, and would name no array.
        wanted, stored = _shapes(abstract_state), _shapes(self._manager.item_metadata(step).tree)
        wrong = [name for name in wanted | stored if wanted.get(name) != stored.get(name)]
        if wrong:
            lines = [f"{name}: stored {stored.get(name)}, wanted {wanted.get(name)}" for name in wrong[:5]]
            raise ValueError(f"checkpoint {self._manager.directory / str(step)} does not fit: " + "; ".join(lines))
        return self._manager.restore(step, args=ocp.args.StandardRestore(abstract_state))

    def wait(self) -> None:
        """Returns when every save has reached the disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, then lets go of the threads that save."""
        self._manager.wait_until_finished()
        self._manager.close()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """Path -> shape of every array. A field, a key and a number are spelt alike: Orbax stores dicts and lists only."""

    def shape(leaf: Any) -> tuple[int, ...]:
        if jnp.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key):
            leaf = jax.eval_shape(jax.random.key_data, leaf)  # keys are stored as their integers
        return tuple(getattr(leaf, "shape", ()))

    leaves = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): shape(leaf) for path, leaf in leaves}


def _refuse_another(run: Path, ours: str, theirs: str | None) -> None:
    if theirs is None:
        raise ConfigurationMismatch(f"{run} holds checkpoints but no config.json: use another --workdir, or delete it")
    found = differences(ours, theirs)
    if found:
        lines = [f"  {field}: {json.dumps(old)} there, {json.dumps(new)} now" for field, (new, old) in found.items()]
        raise ConfigurationMismatch(
            f"{run} holds checkpoints of another configuration:\n"
            + "\n".join(lines)
            + f"\nUse another --workdir, or set these fields back, or delete {run}. Nothing was overwritten."
        )


def newest_step(directory: str | os.PathLike[str], config_json: str) -> int | None:
    """The step of the newest whole checkpoint that a configuration made in a run directory, None when there is none."""
    run = Path(os.path.abspath(directory))
    states, written = run / "checkpoints", run / "config.json"
    steps = ocp.utils.checkpoint_steps(states) if states.is_dir() else []
    if not steps or not written.is_file() or differences(config_json, written.read_text("utf-8")):
        return None
    return max(steps)
