"""HOST. Checkpoints of a run: a state every few steps, kept by Orbax, beside the configuration that made them.

A run directory holds `config.json`, the text of `rag_jax.config.to_json`, and `checkpoints/<step>`, Orbax's own files.
Both are written beside and renamed, so a killed run leaves only whole ones.
"""

from __future__ import annotations

import contextlib
import json
import logging
import operator
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from rag_jax.sharding import first_alone, is_first
from rag_jax.text.whole_files import write_text

# Fields that a run may change and still go on from its checkpoints: how long and how often, what is measured, how
# layers run, and on how many devices in how many parts. A group's name stands for all its fields.
MAY_DIFFER = (
    "train.steps",
    "train.log_every",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "train.validation_questions",
    "train.keep_best",
    "train.accumulate",
    "data.eval_questions_path",
    "data.validation_questions_path",
    "data.regex_answers",
    "model.remat",
    "model.unroll",
    "eval",
    "sharding",
)


UNMEASURED = -1e30  # the figure of a checkpoint that was saved because the run had to stop


class ConfigurationMismatch(ValueError):
    """The run directory holds checkpoints of another configuration."""


class InUse(ValueError):
    """Another process trains in the run directory."""


class _OrbaxChatter(logging.Filter):
    """Drops Orbax's information lines, of which each save writes about thirty; its warnings pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or f"{os.sep}orbax{os.sep}" not in record.pathname


_CHATTER = _OrbaxChatter()  # one object, so that adding it again changes nothing


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
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
      keep: how many of the newest checkpoints stay.
      keep_best: how many of those with the highest figure stay beside them, of equal ones the newest. 0: no figure is
        stored.
      record: write config.json, and keep other runs out; a reader of checkpoints leaves what is there.

    Raises:
      ConfigurationMismatch: the directory holds checkpoints made with another configuration, or with an unknown one.
        Nothing has been written then.
      InUse: another process trains there.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        config_json: str,
        keep: int = 2,
        keep_best: int = 0,
        record: bool = True,
    ):
        run = Path(os.path.abspath(directory))
        states, written = run / "checkpoints", run / "config.json"
        self._lock = contextlib.ExitStack()
        with contextlib.ExitStack() as undone:  # lets go of the directory if anything below fails
            if states.is_dir() and ocp.utils.checkpoint_steps(states):
                _refuse_another(run, config_json, written.read_text("utf-8") if written.exists() else None)
            if record:
                first_alone(lambda: undone.enter_context(_alone_in(run)))
            logging.getLogger("absl").addFilter(_CHATTER)
            if record and is_first():
                write_text(written, config_json)
            self._manager = ocp.CheckpointManager(
                states,
                options=_options(keep, keep_best),
                item_handlers=ocp.StandardCheckpointHandler(),  # so that a fresh process can read a checkpoint's shapes
            )
            self._lock = undone.pop_all()

    def save(self, step: int, state: Any, figure: float | None = None) -> bool:
        """Starts to save `state`, a pytree of arrays; returns once the arrays may be overwritten or donated.

        Args:
          step: how many updates it has seen.
          state: of all processes together.
          figure: what tells the best checkpoints, the higher the better; None where nobody measured it.

        Returns:
          Whether it is being saved: False when there is a checkpoint of this step, or a later one, already.

        Raises:
          OSError: this checkpoint or the one before could not be written; those that are there stay.
        """
        metrics = {"figure": UNMEASURED if figure is None else figure}
        with self._writing():
            return self._manager.save(step, args=ocp.args.StandardSave(state), metrics=metrics)

    def stops_after(self, step: int) -> bool:
        """Whether all processes stop after this step, as one of them was told that it will be taken away.

        Called by every process after every step; only where there are several.
        """
        return self._manager.reached_preemption(step)

    def latest_step(self) -> int | None:
        """The step of the newest whole checkpoint, None when there is none."""
        return self._manager.latest_step()

    def best_step(self) -> int | None:
        """The step of the checkpoint with the highest figure, of equal ones the newest; None where none has one."""
        stored = {step: self._manager.metrics(step) for step in self._manager.all_steps()}
        figures = [(of["figure"], step) for step, of in stored.items() if of and of["figure"] > UNMEASURED]
        return max(figures)[1] if figures else None

    def restore(self, abstract_state: Any, best: bool = False) -> Any:
        """The newest state, in the structure, dtypes and shardings of `abstract_state`.

        Args:
          abstract_state: a pytree of `jax.ShapeDtypeStruct`s (as from `jax.eval_shape`), with shardings on several
            devices; it need not be sharded as the state was that was saved.
          best: the one of `best_step` instead of the newest.

        Raises:
          FileNotFoundError: there is no checkpoint yet, or none with a figure; ask `latest_step` first.
          ValueError: the checkpoint holds other arrays; the first that differ are named with both shapes. Or its files
            are damaged.
        """
        self._manager.wait_until_finished()
        step = self.best_step() if best else self.latest_step()
        if step is None:
            of_which = " with a figure of validation" * best
            raise FileNotFoundError(f"no checkpoint{of_which} in {self._manager.directory}")
        place = str(self._manager.directory / str(step))
        earlier = [other for other in self._manager.all_steps() if other < step]
        with _readable(place, earlier):
            stored = _shapes(self._manager.item_metadata(step).tree)
        # Orbax would find it too, halfway through, and would name no array.
        wanted = _shapes(abstract_state)
        wrong = [name for name in wanted | stored if wanted.get(name) != stored.get(name)]
        if wrong:
            lines = [f"{name}: stored {stored.get(name)}, wanted {wanted.get(name)}" for name in wrong[:5]]
            raise ValueError(f"checkpoint {place} does not fit: " + "; ".join(lines))
        with _readable(place, earlier):
            return self._manager.restore(step, args=ocp.args.StandardRestore(abstract_state))

    def wait(self) -> None:
        """Returns when every save has reached the disk.

        Raises:
          OSError: as `save`.
        """
        with self._writing():
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, then lets go of the threads that save, and of the directory."""
        with self._lock:
            self.wait()
            self._manager.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns whatever Orbax raises when it cannot write into one message."""
        try:
            yield
        except Exception as error:
            whole = self.latest_step()
            stays = "there is no checkpoint yet" if whole is None else f"the checkpoint of step {whole} is whole"
            raise OSError(
                f"{self._manager.directory}: a checkpoint could not be written ({_first_line(error)}); {stays}. Make "
                "room, or look at who may write there; the same command goes on"
            ) from error

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@contextlib.contextmanager
def _alone_in(run: Path) -> Iterator[None]:
    """Holds the right to train in a directory; the system gives it back however the process ends."""
    import fcntl  # late: a system without it can still read checkpoints

    run.mkdir(parents=True, exist_ok=True)
    with open(run / ".lock", "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise InUse(
                f"{run}: process {file.read().strip()} trains there; wait for it, or use another --workdir"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


@contextlib.contextmanager
def _readable(place: str, earlier: list[int]) -> Iterator[None]:
    """Turns whatever Orbax raises at damaged files into one message.

    A lack of memory, of permission or of a file system is none of the checkpoint's: it keeps its own words.
    """
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise
        then = f"goes on from step {max(earlier)}" if earlier else "starts anew"
        raise ValueError(
            f"checkpoint {place} is damaged: {_first_line(error)}. Delete that directory, and the run {then}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _options(keep: int, keep_best: int) -> ocp.CheckpointManagerOptions:
    managers = ocp.checkpoint_managers
    figure = operator.itemgetter("figure")
    policies: list[Any] = [managers.LatestN(keep)]
    if keep_best:
        policies.append(managers.BestN(get_metric_fn=figure, n=keep_best, keep_checkpoints_without_metrics=False))
    return ocp.CheckpointManagerOptions(
        best_fn=figure if keep_best else None,  # without it no figure is stored
        preservation_policy=managers.AnyPreservationPolicy(policies),
    )


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """Path -> shape of every array. A field, a key and a number are spelt alike: Orbax stores dicts and lists only."""

    def shape(leaf: Any) -> tuple[int, ...]:
        if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
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
