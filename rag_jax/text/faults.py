"""HOST. What can be wrong with an input file: the error that names its place, and a check for ids that came before."""

from __future__ import annotations

import pathlib


class ReadError(ValueError):
    """A fault in an input file. Its message names the file, the line (from 1) and what to do."""

    def __init__(self, path: str | pathlib.Path, line: int | None, fault: str):
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {fault}")
        self.path, self.line, self.fault = str(path), line, fault

    def __reduce__(self) -> tuple[type[ReadError], tuple[str, int | None, str]]:
        """Lets the error travel from another process, as it does out of a Beam worker."""
        return ReadError, (self.path, self.line, self.fault)


class SeenIds:
    """A set of ids. Counting numbers, which DPR's 21 million ids are, cost a bit each and not a Python object."""

    LARGEST_NUMBER = 1 << 28

    def __init__(self) -> None:
        self._bits = bytearray()
        self._others: set[str] = set()

    def add(self, value: str) -> bool:
        """Adds an id; returns whether it was there."""
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 and value[0] != "0" else None
        if number is None or number >= self.LARGEST_NUMBER:
            before = value in self._others
            self._others.add(value)
            return before
        byte, bit = number >> 3, 1 << (number & 7)
        if byte >= len(self._bits):
            self._bits.extend(bytes(max(byte + 1, 2 * len(self._bits)) - len(self._bits)))
        before = bool(self._bits[byte] & bit)
        self._bits[byte] |= bit
        return before
