"""HOST. Runs that are asked to stop: SIGTERM, Ctrl-C, or the notice that a TPU will be taken away.

A run that is asked finishes its step, saves and leaves with the exit code `STOPPED`; the same command goes on from
there. Of several processes all stop after one and the same step, whichever of them was asked.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

import jax

STOPPED = 75  # sysexits.h: temporary failure, try again

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """A run was asked to stop and has saved its state; the message says after which step."""


class StopRequest:
    """Notes the signals that ask a process to stop, in `with`. The second one acts as if nobody noted it.

    Several processes leave SIGTERM to JAX's preemption service, which agrees with the others on a step.

    Args:
      several_agree: step -> whether all processes stop after it, see `Checkpointer.stops_after`.
    """

    def __init__(self, several_agree: Callable[[int], bool]):
        self._several_agree = several_agree
        self._alone = jax.process_count() == 1
        self._asked = False
        self._before: dict[int, Any] = {}

    def after(self, step: int) -> bool:
        """Whether to stop once `step` steps are done. Several processes call it after every step."""
        return self._asked if self._alone else self._several_agree(step)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        self._restore()

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def __enter__(self) -> StopRequest:
        # Python lets the main thread alone handle signals; in another one the program's own handlers stay.
        if self._alone and threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._restore()
