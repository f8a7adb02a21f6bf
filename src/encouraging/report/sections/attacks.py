"""The section of the attacks: the accuracy that is left as the perturbation grows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arms import Arm, over_seeds
from ..drawing.panels import Panel, Picture
from ..numbers import listed, show
from .parts import Section, pictured

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def section(arms: Sequence[Arm]) -> Section | None:
    return pictured(picture(arms), "attacks", "Under attack")


def picture(arms: Sequence[Arm]) -> Picture | None:
    """One panel per attack."""
    names = list(dict.fromkeys(name for arm in arms for final in arm.finals.values()
                               for name, sizes in (final.get("attacks") or {}).items() if isinstance(sizes, Mapping)))
    panels, words = [], []
    for name in names:
        lines = [(arm, line) for arm in arms if (line := _accuracy_by_size(arm, name))]
        if lines:
            panels.append(Panel(_lines(lines), name, "size of the perturbation", "accuracy, %", height=236))
            words += [f"under {name} of size {max(line):g}, {arm.name} keeps {show(line[max(line)])}%"
                      for arm, line in lines]
    if not panels:
        return None
    return Picture("attacks", f"Accuracy under attack: {listed(words)}.",
                   "Accuracy on inputs that were changed to fool the model, by the size of the change. Attacks that "
                   f"follow the gradient can overrate models with large margins. {over_seeds(arms)}", panels,
                   [arm.key for arm in arms])


def _accuracy_by_size(arm: Arm, name: str) -> dict[float, float]:
    """Mean accuracy over the seeds, by the size of the perturbation."""
    points: dict[float, list[float]] = {}
    for final in arm.finals.values():
        sizes = (final.get("attacks") or {}).get(name)
        for size, accuracy in (sizes if isinstance(sizes, Mapping) else {}).items():
            try:
                points.setdefault(float(size), []).append(float(accuracy))
            except (TypeError, ValueError):
                continue
    return {size: float(np.mean(points[size])) for size in sorted(points)}


def _lines(lines: Sequence[tuple[Arm, dict[float, float]]]) -> Any:
    sizes = sorted({size for _, line in lines for size in line})

    def draw(axes: Axes) -> None:
        # Sizes are drawn at equal distances: grids are even, or grow by a factor.
        for arm, line in lines:
            axes.plot([sizes.index(size) for size in line], list(line.values()), color=arm.colour, ls=arm.dashes,
                      lw=1.8, marker="o", ms=4)
        every = math.ceil(len(sizes) / 8)
        axes.set(ylim=(0, 102), xlim=(-0.3, len(sizes) - 0.7), xticks=range(0, len(sizes), every),
                 xticklabels=[f"{size:g}" for size in sizes[::every]])
    return draw
