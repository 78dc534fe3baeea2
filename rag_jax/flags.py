"""HOST. The command line's side of `rag_jax.config`: the flag `--config`, its overrides, and one message for a mistake.

A main is `_CONFIG = define_flag()`, `app.run(main, flags_parser=parse_flags)`, and in it `from_flag(_CONFIG)`. One that
runs sweeps calls `define_sweep()` as well: `--sweep=k` names a list of changes in the experiment file's `SWEEPS`.
"""

from __future__ import annotations

import importlib.util
import pathlib
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence

from absl import flags
from ml_collections import config_flags

from rag_jax.config import (
    FIELDS,
    LEAVES,
    Config,
    ConfigError,
    SweepRun,
    finalise,
    override_flags,
    parse_arg,
    sweep_runs,
    unknown_field,
)


def define_flag(flag_values: flags.FlagValues = flags.FLAGS, argv: list[str] | None = None) -> flags.FlagHolder:
    """Defines `--config` and its overrides. `argv` is for tests; the command line is sys.argv."""
    text = "Experiment file, with its arguments after a colon: configs/world.py:variant=token,k=10"
    return config_flags.DEFINE_config_file("config", None, text, flag_values=flag_values, sys_argv=argv)


def define_sweep(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines `--workdir`, `--sweep` and `--sweep_print`."""
    text = "Directory of the run: checkpoints, metrics, index. Of a sweep: where its runs have their directories."
    flags.DEFINE_string("workdir", None, text, required=True, flag_values=flag_values)
    text = (
        "Name of a list in the experiment file's SWEEPS: a run for each change in it; finished ones are not repeated."
    )
    flags.DEFINE_string("sweep", None, text, flag_values=flag_values)
    text = "Print the commands of the sweep's runs, to be started on several machines, and run none."
    flags.DEFINE_bool("sweep_print", False, text, flag_values=flag_values)


def from_flag(holder: flags.FlagHolder | flags.Flag) -> Config:
    """The final configuration behind `define_flag`'s holder, once flags are parsed."""
    return finalise(_given(holder))


def sweep_from_flags(flag_values: flags.FlagValues = flags.FLAGS) -> tuple[SweepRun, ...]:
    """The runs of `--sweep`, each the experiment of the command line with one change more; none without the flag.

    Raises:
      ConfigError: no such sweep in the experiment file, or a change that cannot be made.
    """
    if flag_values["sweep"].value is None:
        if flag_values["sweep_print"].value:
            raise ConfigError("--sweep_print prints the runs of --sweep: give that too")
        return ()
    config, name = _given(flag_values["config"]), flag_values["sweep"].value
    path = _file(flag_values)
    sweeps = _sweeps(path)
    if name not in sweeps:
        known = f"its SWEEPS hold {', '.join(sweeps)}" if sweeps else "it has no SWEEPS"
        raise ConfigError(f"--sweep: {path} has no sweep {name!r}; {known}")
    return sweep_runs(config, sweeps[name], str(flag_values["workdir"].value))


def sweep_commands(runs: Sequence[SweepRun], flag_values: flags.FlagValues = flags.FLAGS) -> list[str]:
    """For each run of a sweep the command line that is that run alone."""
    flag = flag_values["config"]
    given = config_flags.get_override_values(flag)
    commands = []
    for run in runs:
        fields = override_flags((given | parse_arg(run.change)).items())
        words = [f"--config={config_flags.get_config_filename(flag)}", *fields, f"--workdir={run.directory}"]
        commands.append(shlex.join(["python", "train.py", *words]))
    return commands


def parse_flags(argv: Sequence[str], flag_values: flags.FlagValues = flags.FLAGS) -> list[str]:
    """For `absl.app.run(main, flags_parser=parse_flags)`: returns the arguments that are no flags.

    A mistake in the command line, in the configuration or in a sweep's, up to what `finalise` finds, ends in one
    message and exit code 2 before main starts.
    """
    try:
        for argument in flag_values.read_flags_from_files(list(argv), force_gnu=False)[1:]:
            override = re.match(r"--?(?:no)?config\.([^=]*)", argument)
            if override and override[1] not in LEAVES:
                if override[1] in FIELDS:
                    raise ConfigError(f"config.{override[1]}: a group; set one of its fields")
                raise ConfigError(unknown_field(override[1], list(FIELDS)))
        rest = flag_values(list(argv))
        from_flag(flag_values["config"])
        if "sweep" in flag_values:
            sweep_from_flags(flag_values)
        return rest
    except (flags.Error, ConfigError, OSError) as error:
        # config_flags wraps what get_config raised in a traceback's text; the first cause says it best.
        said = [cause for cause in _causes(error) if isinstance(cause, ConfigError)]
        print(f"error: {said[-1] if said else error}", file=sys.stderr)
        sys.exit(2)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What led to an error, the nearest first."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield cause
        yield from _causes(cause)


def _given(holder: flags.FlagHolder | flags.Flag) -> Config:
    """The configuration as the command line has it, before `finalise`."""
    config = holder.value
    if config is None:
        raise ConfigError("--config is needed: an experiment file, as in --config=configs/world.py")
    if not isinstance(config, Config):
        # config_flags keeps the failure to read a file inside the value, until somebody looks.
        reason = getattr(config, "__dict__", {}).get("_error", "its get_config() returned no rag_jax.config.Config")
        raise ConfigError(f"--config: {reason}")
    return config


def _file(flag_values: flags.FlagValues) -> pathlib.Path:
    """The experiment file itself, without its arguments."""
    return pathlib.Path(config_flags.get_config_filename(flag_values["config"]).partition(":")[0])


def _sweeps(path: pathlib.Path) -> Mapping[str, Sequence[str]]:
    """The experiment file's `SWEEPS`: name -> changes. It is run again for that: config_flags keeps no module."""
    spec = importlib.util.spec_from_file_location("experiment", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"--config: {path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, "SWEEPS", {})
