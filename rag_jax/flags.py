"""HOST. The command line's side of `rag_jax.config`: the flag `--config`, its overrides, and one message for a mistake.

A main is `_CONFIG = define_flag()`, `app.run(main, flags_parser=parse_flags)`, and in it `from_flag(_CONFIG)`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from absl import flags
from ml_collections import config_flags

from rag_jax.config import FIELDS, LEAVES, Config, ConfigError, finalise, unknown_field


def define_flag(flag_values: flags.FlagValues = flags.FLAGS, argv: list[str] | None = None) -> flags.FlagHolder:
    """Defines `--config` and its overrides. `argv` is for tests; the command line is sys.argv."""
    text = "Experiment file, with its arguments after a colon: configs/world.py:variant=token,k=10"
    return config_flags.DEFINE_config_file("config", None, text, flag_values=flag_values, sys_argv=argv)


def from_flag(holder: flags.FlagHolder | flags.Flag) -> Config:
    """The final configuration behind `define_flag`'s holder, once flags are parsed."""
    config = holder.value
    if config is None:
        raise ConfigError("--config is needed: an experiment file, as in --config=configs/world.py")
    if not isinstance(config, Config):
        # config_flags keeps the failure to read a file inside the value, until somebody looks.
        reason = getattr(config, "__dict__", {}).get("_error", "its get_config() returned no rag_jax.config.Config")
        raise ConfigError(f"--config: {reason}")
    return finalise(config)


def parse_flags(argv: Sequence[str], flag_values: flags.FlagValues = flags.FLAGS) -> list[str]:
    """For `absl.app.run(main, flags_parser=parse_flags)`: returns the arguments that are no flags.

    A mistake in the command line or in the configuration, up to what `finalise` finds, ends in one message and exit
    code 2 before main starts.
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
        return rest
    except (flags.Error, ConfigError, OSError) as error:
        # config_flags wraps what get_config raised in a traceback's text; the first cause says it best.
        cause: BaseException | None = error
        while cause := cause.__cause__ or cause.__context__:
            error = cause if isinstance(cause, ConfigError) else error
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
