"""Rows with names, at 0, -1, -2 and so on of the y axis; and the ticks of axes from 0 to 100%."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .panels import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUARTERS, PERCENT = [0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"]
LONGEST_BESIDE = 14
ABOVE = 4  # the gutter of rows whose names stand above them


def gutter(names: Sequence[str]) -> int:
    """Room for the names at the left of their rows; long ones stand above the row instead."""
    longest = max(map(len, names), default=0)
    return 14 + round(6.4 * longest) if longest <= LONGEST_BESIDE else ABOVE


def name_rows(axes: Axes, names: Sequence[str], left: int) -> None:
    """Write the names of the rows beside or above them."""
    beside = left > ABOVE
    for row, name in enumerate(map(printable, names)):
        axes.annotate(name if len(name) <= 48 else name[:47] + "…", (0, -row), (2 - left, 0) if beside else (0, 8),
                      xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=10.5,
                      va="center" if beside else "bottom")
    axes.set(ylim=(-len(names) + 0.4, 0.6 if beside else 0.85), yticks=[])
