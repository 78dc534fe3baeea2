"""HOST. Lines over k and stacked bars, as the coordinates that the page's SVG is written with."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

WIDTH, HEIGHT = 400, 260  # of a chart, in its own units: those of a telephone's pixels
LEFT, RIGHT, TOP, BOTTOM = 42, 14, 12, 38
COLOURS = 8  # that the style sheet names
LOGARITHMIC = 8  # from this ratio of largest to smallest x on
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25)  # between two lines of the y axis
TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
MANY = 7  # more measured x than this get no tick each
NARROW = 22  # two ticks of the x axis closer than this would run into each other


@dataclasses.dataclass(frozen=True)
class Line:
    """One series: (x, y) in the order of x; y from 0 to 1."""

    label: str
    points: tuple[tuple[int, float], ...]


@dataclasses.dataclass(frozen=True)
class Tick:
    """A place on an axis and what stands there."""

    at: float
    label: str


@dataclasses.dataclass(frozen=True)
class Mark:
    """A point as drawn, and what it says."""

    x: float
    y: float
    label: str


@dataclasses.dataclass(frozen=True)
class Chart:
    """Shares over a number of passages, at least one line with at least one point.

    Attributes:
      title: above it.
      x_label, y_label: of the axes.
      lines: the series.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]

    width, height = WIDTH, HEIGHT
    left, right, top, bottom = LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM

    @property
    def xs(self) -> list[int]:
        """Every x of any line, in order."""
        return sorted({x for line in self.lines for x, _ in line.points})

    @property
    def x_ticks(self) -> list[Tick]:
        """At the measured x, or at round numbers among them where there are too many."""
        place = _x_axis(self.xs)
        few = self.xs if len(self.xs) <= MANY else [x for x in self.xs if x in TICKS] or [self.xs[0], self.xs[-1]]
        chosen: list[int] = []
        for x in few:
            if not chosen or place(x) - place(chosen[-1]) >= NARROW:
                chosen.append(x)
        return [Tick(place(x), str(x)) for x in chosen]

    @property
    def y_ticks(self) -> list[Tick]:
        """Three to seven, from below the smallest y to above the largest."""
        low, step, count = self._y_axis
        place = self._place_y
        digits = 2 if step in (0.01, 0.02, 0.05, 0.25) else 1
        return [Tick(place(low + step * n), f"{low + step * n:.{digits}f}") for n in range(count + 1)]

    @property
    def marks(self) -> list[tuple[int, list[Mark]]]:
        """For each line the number of its colour and its points."""
        place = _x_axis(self.xs)
        return [
            (
                number % COLOURS,
                [
                    Mark(place(x), self._place_y(y), f"{line.label}, {self.x_label} {x}: {y:.3f}")
                    for x, y in line.points
                ],
            )
            for number, line in enumerate(self.lines)
        ]

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """The same as a table: for each x a cell for each line."""
        found = [dict(line.points) for line in self.lines]
        return [(str(x), [f"{at[x]:.3f}" if x in at else "–" for at in found]) for x in self.xs]

    @functools.cached_property
    def _y_axis(self) -> tuple[float, float, int]:
        """Where the axis starts, the step between its lines, and how many steps there are."""
        ys = [y for line in self.lines for _, y in line.points]
        for step in STEPS:
            low, high = math.floor(min(ys) / step + 1e-9), math.ceil(max(ys) / step - 1e-9)
            high = max(high, low + 2)
            if high * step > 1 + 1e-9:  # a share ends at 1
                low, high = low - (high - round(1 / step)), round(1 / step)
            if high - low <= 6:
                break
        return low * step, step, high - low

    def _place_y(self, y: float) -> float:
        low, step, count = self._y_axis
        return round(self.bottom - (y - low) / (step * count) * (self.bottom - self.top), 1)


@dataclasses.dataclass(frozen=True)
class Bars:
    """One stacked bar a row: how a whole is shared out.

    Attributes:
      title: above it.
      parts: what the pieces of every bar are.
      rows: (label, a share from 0 to 1 for each part; together 1).
    """

    title: str
    parts: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float, ...]], ...]


def _x_axis(xs: Sequence[int]) -> Callable[[int], float]:
    """Gives the place of an x: by its logarithm where the xs span much, else evenly."""
    scale = math.log if max(xs) >= LOGARITHMIC * min(xs) else float
    low, high = scale(min(xs)), scale(max(xs))

    def place(x: int) -> float:
        inside = 0.5 if high == low else (scale(x) - low) / (high - low)
        return round(LEFT + 8 + inside * (WIDTH - RIGHT - LEFT - 16), 1)

    return place
