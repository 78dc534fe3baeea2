"""HOST. What `rag-jax index build` shows while it works: passages read, the estimate, passages embedded."""

from __future__ import annotations

import os
import pathlib
import shutil
import time
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from rag_jax.index.footprint import Estimate
from rag_jax.types import Passage

EVERY = 1000  # passages between two updates while reading


class BuildProgress:
    """A context manager around a build; its methods are the build's callbacks. It writes to standard error.

    Args:
      directory: where the index will be, whose disk must hold it.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        self._directory = pathlib.Path(directory).resolve()
        self._console = Console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task: Any = None
        self._start, self._first = 0.0, 0

    def __enter__(self) -> BuildProgress:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def reading(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """Passes passages on and counts them."""
        task = self._progress.add_task("reading", total=None, speed="")
        count = 0
        for count, passage in enumerate(passages, start=1):
            if not count % EVERY:
                self._progress.update(task, completed=count)
            yield passage
        self._progress.update(task, completed=count, total=count)

    def estimate(self, expected: Estimate, embeds: bool) -> None:
        """Prints what the index will take, before the long part begins."""
        place = self._directory
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free
        needed = expected.disk_while_building if embeds else expected.disk + expected.passages
        self._console.print(
            f"about {size(expected.memory)} in memory to search (codes {size(expected.codes)}, vectors "
            f"{size(expected.vectors)}), {size(expected.disk)} on disk, {size(needed)} while it is built; "
            f"{size(free)} are free",
            highlight=False,
        )
        if needed > free:
            self._console.print("warning: the disk may be too small", style="yellow")

    def embedded(self, done: int, count: int) -> None:
        """Shows how many of the passages have their vectors, how many a second, and the time that is left."""
        if self._task is None:
            self._task = self._progress.add_task("embedding", total=count, completed=done, speed="")
            self._start, self._first = time.monotonic(), done
            if done:
                self._console.print(f"going on after {done:,} of {count:,} passages", highlight=False)
            return
        seconds = max(time.monotonic() - self._start, 1e-9)
        speed = f"{(done - self._first) / seconds:,.0f} passages/s"
        self._progress.update(self._task, completed=done, speed=speed)


def size(count: int) -> str:
    """Bytes for people: 64.6 GB, in steps of 1000."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
