"""Two sides of a benchmark, each in a process of its own, taking their steps in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any


def serve(step: Callable[[], Any], tell: Callable[[Any], dict[str, Any]]) -> None:
    """Answers each line on standard input with a line of JSON about one step: its seconds, and what `tell` adds.

    What a library prints goes to standard error.

    Args:
      step: what is timed, in wall and in processor time.
      tell: its result -> what else to answer; not timed.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for _ in sys.stdin:
        begin, used = time.perf_counter(), time.process_time()
        value = step()
        times = {"seconds": time.perf_counter() - begin, "processor_seconds": time.process_time() - used}
        print(json.dumps(times | tell(value)), file=out, flush=True)


def launch(arguments: list[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """A process of this Python, its input and output piped as text, its standard error dropped.

    Args:
      arguments: behind the interpreter.
      environment: variables beside those of this process.
    """
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | (environment or {}),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def alternate(processes: dict[str, subprocess.Popen[str]], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Steps of all sides in turn; the first of each, which compiles, is left out.

    Raises:
      RuntimeError: a side ended without an answer.
    """
    taken: dict[str, list[dict[str, Any]]] = {side: [] for side in processes}
    for _ in range(rounds + 1):
        for side, process in processes.items():
            process.stdin.write("go\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{side} ended without an answer")
            taken[side].append(json.loads(line))
    for process in processes.values():
        process.stdin.close()
        process.wait()
    return {side: steps[1:] for side, steps in taken.items()}
