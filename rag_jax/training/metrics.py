"""HOST. Numbers of a run on their way out: metrics.jsonl, TensorBoard, and a line of progress for whoever watches."""

from __future__ import annotations

import io
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as RichProgress

from rag_jax.text.whole_files import write_text


def _number(value: Any) -> int | float | str:
    """A JSON value; JSON has no NaN or infinity, so these become strings that `float` reads back."""
    array = np.asarray(value)
    if array.size != 1:
        raise ValueError(f"a metric is one number, got shape {array.shape}")
    number = array.reshape(()).astype(float if array.dtype.kind not in "biu" else int).item()
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


class MetricsWriter:
    """Appends one JSON object per line to a file, flushed line by line. On several hosts only process 0 writes.

    What a killed run left is removed first: half a line, and lines of steps that are done again.

    Args:
      directory: made if it is not there.
      start: the last step whose line stays; None: all lines stay.
      name: of the file.
      tensorboard: also write TensorBoard event files there.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        start: int | None = None,
        name: str = "metrics.jsonl",
        tensorboard: bool = False,
    ):
        self._file: IO[str] | None = None
        self._events = None
        if jax.process_index() != 0:
            return
        path = Path(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _drop_half_a_line(path)
        if start is not None:
            _drop_after(path, start)
        self._file = path.open("a", encoding="utf-8")
        if tensorboard:
            from tensorboardX import SummaryWriter  # slow to import, and not everybody wants it

            self._events = SummaryWriter(str(directory))

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """One line: {"step": step, name: number, ...}. NaN and infinities are written as strings.

        Args:
          step: the step that the numbers belong to.
          values: Python numbers, arrays of one element on host or device (these are waited for), or words for whoever
            reads the file, which TensorBoard does not get.

        Raises:
          ValueError: a value is an array, and not of one element.
        """
        if self._file is None:
            return
        words = {name: value for name, value in values.items() if isinstance(value, str)}
        numbers = {name: _number(value) for name, value in values.items() if name not in words}
        self._file.write(json.dumps({"step": step} | numbers | words, allow_nan=False) + "\n")
        self._file.flush()
        if self._events is not None:
            for name, number in numbers.items():
                self._events.add_scalar(name, float(number), step)

    def close(self) -> None:
        """Closes the files; `write` must not be called again."""
        for output in (self._file, self._events):
            if output is not None:
                output.close()

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _drop_half_a_line(path: Path) -> None:
    if path.exists():
        whole = path.read_bytes().rpartition(b"\n")
        if whole[2]:
            os.truncate(path, len(whole[0] + whole[1]))


def _drop_after(path: Path, step: int) -> None:
    if not path.exists():
        return
    lines = path.read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["step"] <= step]
    if len(kept) < len(lines):
        write_text(path, "".join(kept))


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl in the order written, NaN and infinities as floats again."""

    def back(value: Any) -> Any:
        return float(value) if value in ("NaN", "Infinity", "-Infinity") else value

    with open(path, encoding="utf-8") as lines:
        return [{name: back(value) for name, value in json.loads(line).items()} for line in lines]


class Progress:
    """Step, loss, questions per second and time left: a bar on a terminal, elsewhere a plain line for each update.

    Attributes:
      questions_per_second: between the last two updates; the first of a run includes compilation.

    Args:
      steps: number of steps of the whole run.
      batch_size: questions per step, over all devices.
      start: steps already done, when a run goes on from a checkpoint.
      file: where to; standard output by default.
    """

    def __init__(self, steps: int, batch_size: int, start: int = 0, file: io.TextIOBase | None = None):
        self.questions_per_second = 0.0
        self._steps, self._batch_size, self._done = steps, batch_size, start
        self._time = time.monotonic()
        self._console = Console(file=cast("IO[str] | None", file))  # as rich calls it
        self._bar: RichProgress | None = None
        self._quiet = jax.process_index() != 0
        if self._console.is_terminal and not self._quiet:
            text = "loss {task.fields[loss]}  {task.fields[rate]} questions/s  {task.fields[left]} left"
            self._bar = RichProgress(
                TextColumn("step"), MofNCompleteColumn(), BarColumn(), TextColumn(text), console=self._console
            )
            self._task = self._bar.add_task("", total=steps, completed=start, loss="-", rate="-", left="-")
            self._bar.start()

    def update(self, step: int, loss: Any) -> None:
        """Shows that `step` steps are done; `loss` is a number or an array of one element (waited for)."""
        shown = f"{float(np.asarray(loss).reshape(())):.4f}"
        now = time.monotonic()
        if step > self._done:
            self.questions_per_second = (step - self._done) * self._batch_size / max(now - self._time, 1e-9)
            self._done, self._time = step, now
        rate = f"{self.questions_per_second:.1f}"
        left = "?"
        if self.questions_per_second:
            left = _clock((self._steps - step) * self._batch_size / self.questions_per_second)
        if self._bar is not None:
            self._bar.update(self._task, completed=step, loss=shown, rate=rate, left=left)
        elif not self._quiet:
            # Straight to the file: the console would wrap at 80 columns, which splits lines in logs.
            line = f"step {step}/{self._steps}  loss {shown}  {rate} questions/s  {left} left"
            print(line, file=self._console.file, flush=True)

    def say(self, text: str) -> None:
        """A line of its own, above the bar if there is one."""
        if self._bar is not None:
            self._console.print(text, markup=False, highlight=False)
        elif not self._quiet:
            print(text, file=self._console.file, flush=True)

    def close(self) -> None:
        """Leaves the bar as it stands and gives the terminal back."""
        if self._bar is not None:
            self._bar.stop()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _clock(seconds: int | float) -> str:
    """4000 -> '1:06:40'; 61 -> '1:01'."""
    minutes, second = divmod(math.ceil(max(seconds, 0)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
