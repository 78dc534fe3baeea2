"""HOST. What eval.py runs, and how its failures end: one message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rag_jax.config import Config, parse_arg, update
from rag_jax.evaluation.run import Restore, evaluate_runs
from rag_jax.sharding import start
from rag_jax.text.printable import printable


def evaluate_command(workdir: str | os.PathLike[str], restore: Restore, changes: Sequence[str] = ()) -> int:
    """Evaluates; what a user can mend ends in one message on standard error.

    Args:
      workdir: a run, or a directory of runs.
      restore: gives a run's trained parameters.
      changes: 'field=value' each, set in every run's configuration.

    Returns:
      The exit code: 0, or 1 after a message.
    """

    def settings(config: Config) -> Config:
        return update(config, parse_arg(",".join(changes)))

    try:
        start()
        evaluate_runs(workdir, restore, settings)
    except (ValueError, OSError) as error:
        print(printable(f"error: {error}"), file=sys.stderr)
        return 1
    return 0
