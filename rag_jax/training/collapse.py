"""HOST. Retrieval collapse (the paper's appendix H), told from the numbers of the steps.

A question encoder may learn to find the same passages whatever is asked. The generator then learns to ignore them, and
what is left is closed book at the price of retrieval. The sign is how many different passages a batch finds.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping
from typing import Any

STEPS = 10  # that are looked at together: a single batch may ask alike by chance
COLLAPSED = 0.1  # of the spread that is possible; see `CollapseMonitor`


class CollapseMonitor:
    """Watches how many different passages the batches find, and says once when they have become the same ones.

    B questions find at least K different passages, if all find the same, and at most B*K, or all N there are. The
    spread is where between the two a batch lies: 0 = the same for every question, 1 = as different as can be. Its mean
    over `STEPS` steps under `COLLAPSED` is a collapse; once it is over that again, another collapse is told again.

    Args:
      questions: B, over all devices.
      k: passages a question.
      passages: N, of the index.
    """

    def __init__(self, questions: int, k: int, passages: int):
        self._k = min(k, passages)
        self._found = questions * self._k
        self._most = min(self._found, passages)
        self._recent: collections.deque[tuple[float, float]] = collections.deque(maxlen=STEPS)
        self._told = False

    def warning(self, step: int, report: Mapping[str, Any]) -> str:
        """What to tell the user after this step; empty: nothing, or nothing new.

        Args:
          step: its number.
          report: its `distinct_passages`, different passages as a share of all that the batch found, which closed book
            has none of; and its `prior_entropy`, the mean over the questions in nats.
        """
        if "distinct_passages" not in report or self._most == self._k:  # or no batch could be any different
            return ""
        self._recent.append((float(report["distinct_passages"]), float(report["prior_entropy"])))
        if len(self._recent) < STEPS:
            return ""
        distinct, entropy = (sum(values) / STEPS for values in zip(*self._recent, strict=True))
        collapsed = (distinct * self._found - self._k) / (self._most - self._k) < COLLAPSED
        new, self._told = collapsed and not self._told, collapsed
        if not new:
            return ""
        return (
            f"retrieval collapse: in the {STEPS} steps to step {step} only {distinct:.1%} of the passages found for a "
            f"batch were different ones ({self._k / self._found:.1%} = the same for every question), prior entropy "
            f"{entropy:.2f} of {math.log(self._k):.2f} nats. The generator learns to ignore such passages. Start again "
            "with a lower config.optimizer.retriever_learning_rate or with config.freeze=question_encoder, and compare "
            "with config.retriever=none: if that is as good, the answers do not need passages"
        )
