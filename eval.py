"""HOST. Evaluates a run, or every run in a directory, into metrics.json and report.html.

python eval.py --workdir=runs/world
python eval.py --workdir=runs/world/sequence --ks=1,2,5,10,20 --decodings=thorough,fast
"""

import sys
from collections.abc import Sequence

from absl import app, flags

from rag_jax.evaluation.command import evaluate_command
from rag_jax.training.loop import trained_params

_WORKDIR = flags.DEFINE_string(
    "workdir", None, "A run, or a directory of runs; metrics.json and report.html are written there.", required=True
)
_SET = flags.DEFINE_multi_string("set", [], "Field of the configuration to change for this evaluation, e.g. eval.k=10.")
_KS = flags.DEFINE_list("ks", [], "Answer with each of these numbers of passages too, for EM over k: 1,2,5,10,20.")
_DECODINGS = flags.DEFINE_list("decodings", [], "Answer with each of these decodings of RAG-Sequence: thorough,fast.")


def main(argv: Sequence[str]) -> int:
    """Flags to evaluation."""
    return evaluate_command(_WORKDIR.value, trained_params, _SET.value, ks=_KS.value, decodings=_DECODINGS.value)


if __name__ == "__main__":
    app.run(lambda argv: sys.exit(main(argv)))
