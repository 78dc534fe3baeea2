"""HOST. What eval.py runs, and how its failures end: one message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from rag_jax.config import AS_TRAINED, FIELDS, parse_arg, update
from rag_jax.evaluation.run import Restore, evaluate_runs
from rag_jax.sharding import start
from rag_jax.text.printable import printable

DECODINGS = FIELDS["eval.decoding"].metadata["choices"]


def evaluate_command(
    workdir: str | os.PathLike[str],
    restore: Restore,
    changes: Sequence[str] = (),
    *,
    ks: Sequence[str] = (),
    decodings: Sequence[str] = (),
) -> int:
    """Evaluates; what a user can mend ends in one message on standard error.

    Args:
      workdir: a run, or a directory of runs.
      restore: gives a run's trained parameters.
      changes: 'field=value' each, set in every run's configuration.
      ks: whole numbers of passages, to answer with each of them.
      decodings: ways to decode, to answer with each of them.

    Returns:
      The exit code: 0, or 1 after a message.
    """
    try:
        values = parse_arg(",".join(changes))
        for field, instead in AS_TRAINED.items():
            if field in values:
                given = f"{instead}={values[field]}"
                raise ValueError(
                    f"--set: {field} is what the run was trained with; to answer otherwise give --set={given}"
                )
        more: dict[str, Any] = {"ks": whole_numbers("--ks", ks), "decodings": _known_decodings(decodings)}
        start()
        evaluate_runs(workdir, restore, lambda config: update(config, values), **more)
    except (ValueError, OSError, ImportError) as error:
        print(printable(f"error: {error}"), file=sys.stderr)
        return 1
    return 0


def whole_numbers(flag: str, texts: Sequence[str]) -> tuple[int, ...]:
    """Numbers of passages, in ascending order, each once.

    Raises:
      ValueError: one is no whole number from 1.
    """
    for text in texts:
        if not (text.strip().isascii() and text.strip().isdigit() and int(text)):
            raise ValueError(f"{flag}: {text!r} is no number of passages; give whole numbers from 1, as in 1,2,5,10,20")
    return tuple(sorted({int(text) for text in texts}))


def _known_decodings(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in DECODINGS:
            raise ValueError(f"--decodings: no decoding {name!r}; choose from {', '.join(DECODINGS)}")
    return tuple(dict.fromkeys(names))
