"""The section of the arms: what each of them reached, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...engine import Metric
from ...judge.metric_book import MetricBook
from ...judge.stats import mean_of
from ..arms import Arm
from ..drawing.panels import Panel, Picture, within
from ..drawing.rows import ABOVE, gutter, name_rows
from ..numbers import capitalised, listed, show
from .arm_board import arm_board
from .parts import Cell, Section, Table, mean_cell, present, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def section(arms: Sequence[Arm], losses: Mapping[str, str], book: MetricBook) -> Section | None:
    """Every arm's loss, and its numbers with the interval of their mean. Where the reader picks arms there are too many
    for that: then a table with one line per arm comes first, and the rest is folded."""
    metrics = book.shown(lambda path: any(arm.values(path) for arm in arms))
    if not metrics:
        return None
    rows = [[Cell(arm.name, losses.get(arm.name, "")), Cell(str(len(arm.finals))),
             *(mean_cell(arm.mean(m.path), m) for m in metrics)] for arm in arms]
    head = ["arm", "n", *map(with_unit, metrics)]
    about = " ".join(m.about for m in metrics if m.about)
    full = Section(
        "arms", "What the arms reached", [about] if about else [],
        present(picture(arms, metrics) if len(arms) > 1 else None),
        [Table("Mean over the seeds and, below it, the 95% t interval of the mean.", head, rows)])
    if not any(arm.tag for arm in arms):
        return full
    main = next((m for m in metrics if m.path == book.compared.path), metrics[0])
    return replace(full, board=arm_board(arms, losses, metrics, main),
                   fold=f"Figures, intervals and losses of all {len(arms)} arms")


def picture(arms: Sequence[Arm], metrics: Sequence[Metric]) -> Picture | None:
    """One panel per metric: mean, interval and every seed of every arm."""
    panels, words = [], []
    for m in metrics:
        values = [(arm, arm.values(m.path)) for arm in arms]
        if not any(numbers for _, numbers in values):
            continue
        title = capitalised(with_unit(m))
        left = gutter([arm.name for arm in arms])
        height = 30 + (26 if left > ABOVE else 36) * len(arms)
        panels.append(Panel(_dots(values, left, m), title, height=height, left=left))
        words.append(f"{m.words}: " + listed([f"{arm.name} {show(mean_of(numbers).value, m.digits, m.unit)}"
                                              for arm, numbers in values if numbers]))
    if not panels:
        return None
    return Picture("arms", f"Means of the arms. {'; '.join(words)}.",
                   "Dot: mean over the seeds. Line: its 95% interval, cut off where the metric ends. Ticks: the seeds.",
                   panels)


def _dots(values: Sequence[tuple[Arm, list[float]]], left: int, m: Metric) -> Any:
    def draw(axes: Axes) -> None:
        for row, (arm, numbers) in enumerate(values):
            if not numbers:
                continue
            mean = mean_of(numbers)
            axes.plot(numbers, [-row] * len(numbers), "|", color=arm.colour, ms=9, mew=1.1, alpha=0.75)
            if math.isfinite(mean.low):
                axes.plot([max(mean.low, m.low), min(mean.high, m.high)], [-row, -row], color=arm.colour, lw=1.6)
            axes.plot(mean.value, -row, "o", color=arm.colour, ms=7.5)
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.08)
        axes.set_xlim(within(axes.get_xlim(), m.low, m.high))
        name_rows(axes, [arm.name for arm, _ in values], left)
        axes.locator_params(axis="x", nbins=5)
    return draw
