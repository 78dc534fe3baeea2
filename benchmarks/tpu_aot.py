"""Programs compiled for TPU slices that are not there: read and priced, never timed. One JSON object for each figure.

    python benchmarks/tpu_aot.py                    needs libtpu (the extra `tpu`); most of an hour on two cores
    python benchmarks/tpu_aot.py --only search      retrieval alone, some minutes
    python benchmarks/tpu_aot.py --only step        train steps, their compile time and the loss alone
    python benchmarks/tpu_aot.py --quick            retrieval on one slice and the loss alone, about a minute

Times are AOT estimates for ratios and regressions only; see `tpu_search` and `tpu_step`. Decoding: `decode_tpu`.
"""

from __future__ import annotations

import argparse

import jax
from tpu_search import search_figures
from tpu_step import step_figures

FIGURES = {"search": search_figures, "step": step_figures}


def main() -> None:
    """Every case of what was chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="about a minute")
    parser.add_argument("--only", choices=sorted(FIGURES), help="one kind of program")
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")  # the host's backend; the programs are compiled, not run
    for kind, figures in FIGURES.items():
        if options.only in (None, kind):
            figures(options.quick)


if __name__ == "__main__":
    main()
