"""HOST. How fast a run goes and what it waits for: speed.jsonl, a line for each logged step.

These numbers differ from run to run, even between two that compute the same; what a step computes is in metrics.jsonl.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax

from rag_jax.training.metrics import MetricsWriter

GIB = 1 << 30
WARM_UP = 20  # steps after which every shape is expected to have come
_COMPILED = "/jax/core/compile/backend_compile_duration"
_seconds_compiling: list[float] = []  # of this process, one for each program


def _note_compile(event: str, duration_secs: float, **details: str | int) -> None:
    if event == _COMPILED:
        _seconds_compiling.append(duration_secs)


jax.monitoring.register_event_duration_secs_listener(_note_compile)


class Speed:
    """Counts and times of a run.

    Args:
      directory: of the run.
      batch_size: questions a step, over all devices.
      start: steps done before.
    """

    def __init__(self, directory: str | os.PathLike[str], batch_size: int, start: int):
        self._writer = MetricsWriter(directory, start, "speed.jsonl")
        self._batch_size, self._start, self._done = batch_size, start, start
        self._time = time.monotonic()
        self._now: dict[str, float] = {}  # of the step that is under way
        self._ended: list[dict[str, float]] = []  # of those without a line yet
        self._known = len(_seconds_compiling)

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Adds the time inside to '<what>_milliseconds', a mean over steps."""
        begin, name = time.monotonic(), f"{what}_milliseconds"
        yield
        self._now[name] = self._now.get(name, 0.0) + 1e3 * (time.monotonic() - begin)

    @contextlib.contextmanager
    def aside(self, what: str) -> Iterator[None]:
        """As `waiting`, for work that is no step's: what is compiled in it is not told by `compiled`."""
        with self.waiting(what):
            yield
        self._known = len(_seconds_compiling)

    def padding(self, share: float | None) -> None:
        """Notes which share of a step's encoder tokens is padding, from 0 to 1; None where nobody knows."""
        if share is not None:
            self._now["padding_share"] = share

    def end_step(self) -> None:
        """What was noted since the last call belongs to one step, which was just started."""
        self._ended.append(self._now)
        self._now = {}

    def compiled(self, step: int, batch: Any) -> None:
        """Says on standard error if a program was compiled since the last call, once `WARM_UP` steps are over.

        Args:
          step: the number of the step that was just started.
          batch: what it was started with; a record whose arrays' shapes are named.
        """
        new = _seconds_compiling[self._known :]
        self._known += len(new)
        if new and step > self._start + WARM_UP and jax.process_index() == 0:
            fields = {name: getattr(value, "shape", None) for name, value in vars(batch).items()}
            shapes = ", ".join(f"{name} {list(shape)}" for name, shape in fields.items() if shape is not None)
            print(f"step {step}: {sum(new):.1f} s of compiling, for {shapes}", file=sys.stderr, flush=True)

    def write(self, step: int) -> None:
        """One line for the steps since the last one."""
        steps, now = step - self._done, time.monotonic()
        rate = steps / max(now - self._time, 1e-9)
        line = {"steps_per_second": rate, "questions_per_second": rate * self._batch_size}
        told, self._ended = self._ended[:steps], self._ended[steps:]
        for name in sorted({name for one in told for name in one}):
            line[name] = sum(one.get(name, 0.0) for one in told) / steps
        line |= {"compiles": len(_seconds_compiling), "compile_seconds": sum(_seconds_compiling)}
        self._writer.write(step, line | {"memory_gib": _memory() / GIB})
        self._done, self._time = step, now

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()

    def __enter__(self) -> Speed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Trace:
    """Writes what JAX's profiler sees of some steps to `directory`/profile, for TensorBoard or Perfetto.

    Args:
      directory: of the run.
      steps: numbered as in the log; None: none. What runs when the last one ends, and is not waited for, is cut off.
    """

    def __init__(self, directory: str | os.PathLike[str], steps: range | None):
        self._place = os.path.join(directory, "profile")
        self._steps = steps or range(0)
        self._running = False

    def before(self, step: int) -> None:
        """To be called before every step."""
        if step in self._steps and not self._running:
            jax.profiler.start_trace(self._place)
            self._running = True
        elif self._running and step not in self._steps:
            self._stop()

    def _stop(self) -> None:
        if self._running:
            jax.profiler.stop_trace()
            self._running = False

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()


def _memory() -> int:
    """The most bytes that were used: of the first device, or of this process where a device does not say."""
    stats = jax.local_devices()[0].memory_stats()
    return stats["peak_bytes_in_use"] if stats else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
