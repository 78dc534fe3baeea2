"""HOST. Trains one configuration, or a sweep of them.

python train.py --config=configs/world.py:variant=token --workdir=runs/mine
python train.py --config=configs/world.py --sweep=k --workdir=runs/sweep
"""

import sys
from collections.abc import Sequence

from absl import app, flags

from rag_jax.evaluation.validation import validation_figures
from rag_jax.flags import define_flag, define_sweep, from_flag, parse_flags, sweep_commands, sweep_from_flags
from rag_jax.training.recipes import run_recipe
from rag_jax.training.sweep import run_sweep

_CONFIG = define_flag()
define_sweep()
_PROFILE = flags.DEFINE_string("profile", "", "Steps for JAX's profiler to trace into WORKDIR/profile, as in 10-13.")


def main(argv: Sequence[str]) -> int:
    """Flags to configurations to recipes."""
    runs = sweep_from_flags()
    if not runs:
        return run_recipe(from_flag(_CONFIG), flags.FLAGS.workdir, _PROFILE.value, validation_figures)
    if flags.FLAGS.sweep_print:
        print("\n".join(sweep_commands(runs)))
        return 0
    return run_sweep(runs, _PROFILE.value, validation_figures)


if __name__ == "__main__":
    app.run(lambda argv: sys.exit(main(argv)), flags_parser=parse_flags)
