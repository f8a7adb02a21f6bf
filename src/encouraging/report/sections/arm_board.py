"""The table of many arms: one line per arm, best first, which a reader sorts; as plain data for the template."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from ...engine import Metric
from ...judge.stats import Mean
from ..arms import Arm
from ..drawing.panels import Key
from ..numbers import show
from .parts import with_unit

WIDTH, HEIGHT = 120, 18  # of the picture of an interval
BETWEEN = 5  # half of the distance to the picture of the next row


class Head(NamedTuple):
    """The head of a column: in which direction a first click sorts it, and how it is sorted at first."""

    words: str
    first: str
    sorted: str = ""


class BoardCell(NamedTuple):
    """A number as it is shown and as it is sorted; one that is missing is sorted last. ``picture`` stands beside it."""

    main: str
    value: float | None
    picture: Markup = Markup()


class BoardRow(NamedTuple):
    """One arm: its mark in the figures, its name, what it is trained with, and its place in the recipe."""

    key: Key
    about: str
    place: int
    cells: Sequence[BoardCell]


@dataclass(frozen=True)
class ArmBoard:
    """A table whose first column has the arms."""

    caption: str
    heads: Sequence[Head]
    rows: Sequence[BoardRow]


def arm_board(arms: Sequence[Arm], losses: Mapping[str, str], metrics: Sequence[Metric], main: Metric) -> ArmBoard:
    """These arms by these metrics, the best by ``main`` first; its interval is drawn."""
    columns = [main, *(m for m in metrics if m.path != main.path)]
    scale = _Scale([arm.mean(main.path) for arm in arms], main)
    rows = []
    for index, arm in enumerate(arms):
        means = [arm.mean(m.path) for m in columns]
        cells = [BoardCell(show(mean.value, m.digits) if mean.n else "–", mean.value if mean.n else None)
                 for mean, m in zip(means, columns, strict=True)]
        cells[0] = cells[0]._replace(picture=scale.picture(means[0]))
        rows.append(BoardRow(arm.key, losses.get(arm.name, ""), index,
                             [BoardCell(str(len(arm.finals)), len(arm.finals)), *cells]))
    sign = 1 if main.better == "lower" else -1
    rows.sort(key=lambda row: math.inf if (value := row.cells[1].value) is None else sign * value)
    heads = [Head("arm", "ascending"), Head("n", "descending"),
             *(Head(with_unit(m), _best_first(m)) for m in columns)]
    heads[2] = heads[2]._replace(sorted=_best_first(main))
    caption = (f"Mean over the seeds, best {main.words} first. Dot and line: that mean and its 95% t interval; the "
               f"thin line is the mean of {arms[0].name}.")
    return ArmBoard(caption, heads, rows)


def _best_first(metric: Metric) -> str:
    return "ascending" if metric.better == "lower" else "descending"


class _Scale:
    """One axis for the intervals of all arms, with the mean of the first arm as a thin line."""

    def __init__(self, means: Sequence[Mean], metric: Metric) -> None:
        self.metric = metric
        values = [value for mean in means if mean.n for value in (*self._interval(mean), mean.value)
                  if math.isfinite(value)]
        self.low, self.high = min(values, default=0.0), max(values, default=1.0)
        self.first = means[0].value if means[0].n else None

    def _interval(self, mean: Mean) -> tuple[float, float]:
        return max(mean.low, self.metric.low), min(mean.high, self.metric.high)

    def _x(self, value: float) -> str:
        fraction = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return f"{5 + (WIDTH - 10) * fraction:.1f}".removesuffix(".0")

    def picture(self, mean: Mean) -> Markup:
        """An SVG of the mean and its interval; the number beside it says the same."""
        if not mean.n or not math.isfinite(mean.value):
            return Markup()
        low, high = self._interval(mean)
        full_height = f"{-BETWEEN}v{HEIGHT + 2 * BETWEEN}"  # from row to row
        shapes = [f'<path class="zero" d="M{self._x(self.first)} {full_height}"/>'] if self.first is not None else []
        if mean.n > 1 and math.isfinite(low) and math.isfinite(high):
            shapes.append(f'<path d="M{self._x(low)} {HEIGHT // 2}H{self._x(high)}"/>')
        shapes.append(f'<circle cx="{self._x(mean.value)}" cy="{HEIGHT // 2}" r="3.4"/>')
        return Markup(f'<svg class="mini" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{"".join(shapes)}</svg>')
