"""HOST. Trains one configuration: `python train.py --config=configs/world.py:variant=token --workdir=runs/mine`."""

import sys
from collections.abc import Sequence

from absl import app, flags

from rag_jax.flags import define_flag, from_flag, parse_flags
from rag_jax.training.recipes import run_recipe

_CONFIG = define_flag()
_WORKDIR = flags.DEFINE_string("workdir", None, "Directory of the run: checkpoints, metrics, index.", required=True)
_PROFILE = flags.DEFINE_string("profile", "", "Steps for JAX's profiler to trace into WORKDIR/profile, as in 10-13.")


def main(argv: Sequence[str]) -> int:
    """Flags to configuration to recipe."""
    return run_recipe(from_flag(_CONFIG), _WORKDIR.value, _PROFILE.value)


if __name__ == "__main__":
    app.run(lambda argv: sys.exit(main(argv)), flags_parser=parse_flags)
