"""HOST. A sweep: one experiment with several changes, each of which is a run in a directory named after it."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

from rag_jax.config.arguments import parse_arg
from rag_jax.config.schema import Config, ConfigError
from rag_jax.config.values import finalise, from_dict, update


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """One run of a sweep.

    Attributes:
      change: 'field=value,...', as after the colon of `--config=file.py:...`.
      config: the experiment with the change, final.
      directory: of this run alone.
    """

    change: str
    config: Config
    directory: pathlib.Path


def sweep_runs(config: Config, changes: Sequence[str], workdir: str | PathLike[str]) -> tuple[SweepRun, ...]:
    """A run for each change.

    Args:
      config: what all of them start from; not yet final, as what `finalise` derives may follow from the change.
      changes: 'field=value,...' each.
      workdir: where the runs' directories lie.

    Raises:
      ConfigError: no changes, a change that cannot be made, or two that would share a directory.
    """
    found: dict[pathlib.Path, SweepRun] = {}
    for change in changes:
        try:
            changed = finalise(update(from_dict(dataclasses.asdict(config)), parse_arg(change)))
        except ConfigError as error:
            raise ConfigError(f"sweep, change {change!r}: {error}") from None
        directory = pathlib.Path(workdir) / change.replace("/", "_")
        if directory in found:
            raise ConfigError(f"sweep: {change!r} and {found[directory].change!r} would both be {directory}")
        found[directory] = SweepRun(change, changed, directory)
    if not found:
        raise ConfigError("sweep: no changes in it")
    return tuple(found.values())


def override_flags(values: Iterable[tuple[str, Any]]) -> list[str]:
    """Fields and their values as flags of train.py: ('k', 5) -> '--config.k=5'."""
    return [f"--config.{path}={_text(value)}" for path, value in values]


def _text(value: Any) -> str:
    if isinstance(value, tuple):  # a regex may hold a comma, and is told from a list of names by brackets
        return json.dumps(value) if any("," in name for name in value) else ",".join(value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)
