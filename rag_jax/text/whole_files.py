"""HOST. Text files that are either as they were or as they shall be: written beside, then renamed."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any


def write_json(path: pathlib.Path, value: Any) -> None:
    """JSON, indented."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: pathlib.Path, text: str) -> None:
    """Text in UTF-8."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, "utf-8")
    os.replace(beside, path)
