"""HOST. Evaluates a run, or every run in a directory: `python eval.py --workdir=runs/world`."""

import sys
from collections.abc import Sequence

from absl import app, flags

from rag_jax.evaluation.command import evaluate_command
from rag_jax.training.loop import trained_params

_WORKDIR = flags.DEFINE_string(
    "workdir", None, "A run, or a directory of runs; metrics.json is written there.", required=True
)
_SET = flags.DEFINE_multi_string("set", [], "Field of the configuration to change for this evaluation, e.g. eval.k=10.")


def main(argv: Sequence[str]) -> int:
    """Flags to evaluation."""
    return evaluate_command(_WORKDIR.value, trained_params, _SET.value)


if __name__ == "__main__":
    app.run(lambda argv: sys.exit(main(argv)))
