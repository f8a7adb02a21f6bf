"""The section of class frequency: accuracy and margins on frequent and rare classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...judge.stats import mean_of
from ..arms import Arm, over_seeds, titles
from ..drawing.panels import Panel, Picture
from ..drawing.style import MUTED
from ..numbers import listed, show
from .parts import Section, present

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GROUPS = ("many", "medium", "few")
_DEFAULT_BOUNDS = {"many": 100, "few": 20}
_POINTS = 12  # of a line over the classes: each is the mean over as many of them


def section(arms: Sequence[Arm]) -> Section | None:
    pictures = present(picture(arms), by_class(arms), class_margins(arms))
    return Section("class-frequency", "Frequent and rare classes", (), pictures) if pictures else None


def picture(arms: Sequence[Arm]) -> Picture | None:
    """Accuracy on classes with many, medium and few training examples; groups that no arm has are left out."""
    rows = [(arm, arm.diagnosed("shots")) for arm in arms if arm.diagnosed("shots")]
    groups = [group for group in _GROUPS if any(group in row for _, shots in rows for row in shots)]
    lines = [(arm, [mean_of([row[g] for row in shots if g in row]).value for g in groups]) for arm, shots in rows]
    if not groups:
        return None
    named = _names(arms)

    def draw(axes: Axes) -> None:
        for arm, values in lines:
            axes.plot(range(len(groups)), values, color=arm.colour, ls=arm.dashes, marker="o", ms=6, lw=1.4,
                      gid=arm.tag)
        axes.grid(axis="x", visible=False)
        axes.margins(x=0.12, y=0.12)
        axes.set_xticks(range(len(groups)), [named[group] for group in groups])
    words = [f"{arm.name} {', '.join(f'{show(v, 1)}% on {g}' for g, v in zip(groups, values, strict=True))}"
             for arm, values in lines]
    return Picture("class-frequency", f"Accuracy by the number of training examples per class: {listed(words)}.",
                   f"Accuracy by the number of training examples per class. {over_seeds(arms)}",
                   [Panel(draw, "", "", "accuracy, %", height=250)],
                   [arm.key for arm, _ in lines] if len(lines) > 1 else [])


def by_class(arms: Sequence[Arm]) -> Picture | None:
    """Accuracy of every class over its number of training examples, one panel per arm."""
    rows = _per_class(arms, "class_accuracy")
    if not rows:
        return None
    first = rows[0]
    panels = [Panel(_points(row, None if row is first else first), title, "training examples of the class, logarithmic",
                    "accuracy, %", height=210, tag=row[0].tag)
              for row, title in zip(rows, titles([arm for arm, _, _ in rows]), strict=True)]
    words = [f"{arm.name} {_rare_to_frequent(counts, values, 1)}" for arm, counts, values in rows]
    caption = ("Accuracy of every class over its number of training examples. The line is a mean over neighbouring "
               f"classes. {over_seeds(arms)}").strip()
    if len(rows) > 1:
        caption += f" The grey line repeats {first[0].name}."
    return Picture("class-accuracy", "Accuracy per class, from the rarest tenth of the classes to the most frequent: "
                   f"{listed(words)}.", caption, panels)


def class_margins(arms: Sequence[Arm]) -> Picture | None:
    """The mean margin over the number of training examples, all arms in one panel."""
    rows = _per_class(arms, "class_margin")
    if not rows:
        return None

    def draw(axes: Axes) -> None:
        axes.axhline(0, color=MUTED, lw=0.8)
        for arm, counts, values in rows:
            axes.plot(*_line(counts, values), color=arm.colour, ls=arm.dashes, lw=1.7, gid=arm.tag)
        _count_axis(axes)
    words = [f"{arm.name} {_rare_to_frequent(counts, values, 1)}" for arm, counts, values in rows]
    return Picture("class-margins", "Mean margin, from the rarest tenth of the classes to the most frequent: "
                   f"{listed(words)}.", "Mean margin over the number of training examples of the class; a mean over "
                   f"neighbouring classes. {over_seeds(arms)}".strip(),
                   [Panel(draw, "", "training examples of the class, logarithmic", "margin, in logits", height=250)],
                   [arm.key for arm, _, _ in rows] if len(rows) > 1 else [])


_Row = tuple[Arm, np.ndarray, np.ndarray]


def _names(arms: Sequence[Arm]) -> dict[str, str]:
    """The groups with the bounds that the runs were measured with."""
    recorded = (bounds for arm in arms for bounds in arm.diagnosed("shot_bounds"))
    bounds: Mapping[str, Any] = next(recorded, _DEFAULT_BOUNDS)
    return {"many": f"many: over {bounds['many']}", "medium": "medium", "few": f"few: under {bounds['few']}"}


def _per_class(arms: Sequence[Arm], key: str) -> list[_Row]:
    """Training examples and the mean over the seeds per class, from the rarest class to the most frequent."""
    rows = []
    for arm in arms:
        counts, seeds = arm.diagnosed("class_counts"), arm.diagnosed(key)
        if not counts or not seeds or len({len(row) for row in (*counts, *seeds)}) != 1:
            continue
        table = np.asarray(seeds, float)  # None becomes NaN
        measured = np.isfinite(table).any(0)
        if measured.any():
            number = np.asarray(counts[0], float)[measured]
            order = np.argsort(number, kind="stable")
            rows.append((arm, number[order], np.nanmean(table[:, measured], 0)[order]))
    return rows


def _line(counts: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A mean over neighbouring classes; every class where there are few."""
    neighbours = [group for group in np.array_split(np.arange(len(counts)), min(_POINTS, len(counts))) if len(group)]
    return (np.asarray([np.exp(np.log(np.maximum(counts[group], 0.5)).mean()) for group in neighbours]),
            np.asarray([values[group].mean() for group in neighbours]))


def _points(row: _Row, reference: _Row | None) -> Any:
    arm, counts, values = row

    def draw(axes: Axes) -> None:
        axes.plot(counts, values, "o", color=arm.colour, ms=3, alpha=0.45, mew=0)
        if reference is not None:
            axes.plot(*_line(reference[1], reference[2]), color=MUTED, lw=1)
        axes.plot(*_line(counts, values), color=arm.colour, lw=1.8)
        axes.set_ylim(-2, 102)
        _count_axis(axes)
    return draw


def _count_axis(axes: Axes) -> None:
    """A logarithmic axis with plain numbers: matplotlib's powers of ten are formulas, which are switched off."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0), numticks=9))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _rare_to_frequent(counts: np.ndarray, values: np.ndarray, digits: int) -> str:
    tenth = max(1, len(counts) // 10)
    return f"{show(float(values[:tenth].mean()), digits)} to {show(float(values[-tenth:].mean()), digits)}"
