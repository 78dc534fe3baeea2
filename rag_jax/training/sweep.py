"""HOST. The runs of a sweep, one after the other. Finished ones are not repeated; a failed one stops none after it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rag_jax.config import SweepRun, to_json
from rag_jax.training.checkpoint import newest_step
from rag_jax.training.loop import Validate
from rag_jax.training.recipes import FAILED, run_recipe
from rag_jax.training.stopping import STOPPED


def run_sweep(runs: Sequence[SweepRun], profile: str = "", validate: Validate | None = None) -> int:
    """Runs each in its own directory. The same command again goes on where it was stopped.

    Args:
      runs: in order.
      profile: steps to trace of each, see `run_recipe`.
      validate: see `run_recipe`.

    Returns:
      The exit code: 0; 1 where a run ended with a message; `STOPPED`, at once, where one was asked to stop.
    """
    failed = []
    for number, run in enumerate(runs, start=1):
        place = f"{number} of {len(runs)}: {run.change}"
        if is_finished(run):
            print(f"{place} is finished, in {run.directory}", flush=True)
            continue
        print(f"{place}, in {run.directory}", flush=True)
        code = run_recipe(run.config, run.directory, profile, validate)
        if code == STOPPED:
            return STOPPED
        if code:
            failed.append(run.change)
    if failed:
        print(f"error: {len(failed)} of {len(runs)} runs failed, see above: {'; '.join(failed)}", file=sys.stderr)
    return FAILED if failed else 0


def is_finished(run: SweepRun) -> bool:
    """Whether the run's directory holds this configuration's last step; without loading anything else."""
    step = newest_step(run.directory, to_json(run.config))
    return step is not None and step >= run.config.train.steps
