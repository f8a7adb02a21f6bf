"""Pictures of runs: how training went, what the arms reached, how claims stand, and what attacks leave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .arms import Arm, Metric, listed, mean_of, show
from .drawing import MUTED, Panel, Picture
from .figures import BLACK, BLUE
from .plots import gutter, name_rows, over_seeds
from .stats import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 160
_COURSES = (("accuracy", "Test accuracy", "%"), ("test_loss", "Test cross-entropy", "nats, logarithmic"),
            ("loss", "Training loss, each arm its own", ""), ("grad_norm", "Gradient norm", "logarithmic"))


def training(arms: Sequence[Arm]) -> Picture | None:
    """Mean and deviation over the seeds, epoch by epoch."""
    panels = []
    for key, title, unit in _COURSES:
        lines = [(arm, *course) for arm in arms if (course := _course(arm, key)) is not None]
        if lines:
            panels.append(Panel(_lines(lines, key), title, "epoch", unit, height=236, left=46))
    if not panels:
        return None
    words = []
    for arm in arms:
        if (course := _course(arm, "accuracy")) is not None:
            x, rows = course
            words.append(f"{arm.name} {show(float(rows[:, -1].mean()))}% after epoch {int(x[-1])}")
    alt = f"Training curves. Test accuracy: {listed(words)}." if words else "Training curves by epoch."
    return Picture("training", alt, "Mean over the seeds, on logarithmic axes the mean of the logarithms; the band is "
                   "one standard deviation to either side. Accuracies far below the others are cut off. Losses of "
                   "different arms are different functions: only their shapes can be compared, while accuracy and "
                   "cross-entropy on the test set can be compared as they stand.", panels, [arm.key for arm in arms],
                   columns=2)


def _course(arm: Arm, key: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Epochs, counted on over the stages, and one row of values a seed; as long as the shortest run."""
    rows = [[line.get(key) for line in lines] for lines in arm.epochs]
    length = min((len(row) for row in rows), default=0)
    if not length:
        return None
    table = np.asarray([[math.nan if v is None else float(v) for v in row[:length]] for row in rows])
    there = np.isfinite(table).all(0).nonzero()[0]
    if not len(there):
        return None
    if len(there) > _POINTS:
        there = there[np.unique(np.linspace(0, len(there) - 1, _POINTS).astype(int))]
    return there + 1.0, table[:, there]


def _lines(lines: Sequence[tuple[Arm, np.ndarray, np.ndarray]], key: str) -> Any:
    log = key in ("grad_norm", "test_loss") and all((rows > 0).all() for _, _, rows in lines)

    def draw(axes: Axes) -> None:
        lowest = []
        for arm, x, rows in lines:
            values = np.log(rows) if log else rows
            mean, std = values.mean(0), values.std(0, ddof=1) if len(rows) > 1 else np.zeros(len(x))
            low, middle, high = (np.exp(v) if log else v for v in (mean - std, mean, mean + std))
            if len(rows) > 1:
                axes.fill_between(x, low, high, color=arm.colour, alpha=0.13, lw=0)
            axes.plot(x, middle, color=arm.colour, ls=arm.dashes, lw=1.7, marker="o" if len(x) == 1 else "")
            lowest.append(float(np.quantile(middle, 0.15)))
        if log:
            axes.set_yscale("log")
            axes.minorticks_off()
            _plain(axes)
        if key == "accuracy":  # the first epochs are far below all that matters
            bands = [rows.mean(0) + (rows.std(0, ddof=1) if len(rows) > 1 else 0.0) for *_, rows in lines]
            top = min(max(float(np.quantile(band, 0.9)) for band in bands), 100.0)
            low = min(lowest)
            axes.set_ylim(low - 0.35 * max(top - low, 0.2), top + 0.15 * max(top - low, 0.2))
        axes.set_xlim(min(x[0] for _, x, _ in lines) - 0.4, max(x[-1] for _, x, _ in lines) + 0.4)
        axes.locator_params(axis="x", integer=True, nbins=6)
    return draw


def _plain(axes: Axes) -> None:
    """Powers of ten in figures, as 0.001: exponents would be set as formulas, which stay off for the names' sake."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    low, high = axes.get_ylim()
    wide = math.log10(high / low) if low > 0 else 9
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0,) if wide > 2.2 else (1.0, 2.0, 5.0), numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))


def _power(value: float) -> str:
    """
    >>> _power(0.05), _power(1e-8)
    ('0.05', '10⁻⁸')
    """
    if 1e-4 < value < 1e5:
        return f"{value:g}"
    return "10" + str(round(math.log10(value))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def at_a_glance(arms: Sequence[Arm], metrics: Sequence[Metric]) -> Picture | None:
    """A panel a metric: mean, interval and every seed of every arm."""
    panels, words = [], []
    for known in metrics:
        found = [(arm, arm.values(known.path)) for arm in arms]
        if not any(values for _, values in found):
            continue
        unit = f"{known.unit}" if known.unit else ""
        title = known.words[0].upper() + known.words[1:] + (f", {unit}" if unit else "")
        left = gutter([arm.name for arm in arms])
        height = 30 + (26 if left > 4 else 36) * len(arms)
        panels.append(Panel(_dots(found, left, known), title, height=height, left=left))
        words.append(f"{known.words}: " + listed([f"{arm.name} {show(mean_of(v).value, known.digits, unit)}"
                                                  for arm, v in found if v]))
    if not panels:
        return None
    return Picture("arms", f"Means of the arms. {'; '.join(words)}.",
                   "Dot: mean over the seeds. Line: its 95% interval, up to where the metric ends. Ticks: the seeds.",
                   panels)


def _dots(found: Sequence[tuple[Arm, list[float]]], left: int, known: Metric) -> Any:
    def draw(axes: Axes) -> None:
        for place, (arm, values) in enumerate(found):
            y = -place
            if not values:
                continue
            mean = mean_of(values)
            axes.plot(values, [y] * len(values), "|", color=arm.colour, ms=9, mew=1.1, alpha=0.75)
            if math.isfinite(mean.low):
                axes.plot([max(mean.low, known.low), min(mean.high, known.high)], [y, y], color=arm.colour, lw=1.6)
            axes.plot(mean.value, y, "o", color=arm.colour, ms=7.5)
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.08)
        name_rows(axes, [arm.name for arm, _ in found], left)
        axes.locator_params(axis="x", nbins=5)
    return draw


def claim_panel(found: Comparison, differences: Sequence[float], reach: tuple[float, float], title: str) -> Panel:
    """One claim: its paired differences, their mean and interval against 0, on an axis shared by its metric."""
    def draw(axes: Axes) -> None:
        axes.axvline(0, color=BLACK, lw=1)
        axes.plot(differences, [0] * len(differences), "|", color=BLACK, ms=13, mew=1.1)
        if math.isfinite(found.low):
            axes.plot([found.low, found.high], [0, 0], color=BLUE, lw=2.4)
        if math.isfinite(found.mean):
            axes.plot(found.mean, 0, "D", color=BLUE, ms=7)
        axes.grid(axis="y", visible=False)
        axes.set(xlim=reach, ylim=(-1, 1), yticks=[])
        axes.locator_params(axis="x", nbins=5)
        for end, side, words in ((0, "left", "← against the claim"), (1, "right", "for the claim →")):
            axes.annotate(words, (end, 0), (0, -31), xycoords="axes fraction", textcoords="offset points", ha=side,
                          color=MUTED, fontsize=10.5)
    return Panel(draw, title, " ", height=84, left=10)


def reach_of(comparisons: Sequence[tuple[Comparison, Sequence[float]]]) -> tuple[float, float]:
    """An axis that shows 0, every interval and every seed."""
    ends = [0.0]
    for found, differences in comparisons:
        ends += [v for v in (found.low, found.high, *differences) if math.isfinite(v)]
    low, high = min(ends), max(ends)
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room


def attacks(arms: Sequence[Arm]) -> Picture | None:
    """Accuracy that is left as the perturbation grows: a panel an attack."""
    names = list(dict.fromkeys(name for arm in arms for final in arm.finals.values()
                               for name, found in (final.get("attacks") or {}).items() if isinstance(found, Mapping)))
    panels, words = [], []
    for name in names:
        lines = [(arm, line) for arm in arms if (line := _attacked(arm, name))]
        if lines:
            panels.append(Panel(_robust(lines), name, "size of the perturbation", "accuracy, %", height=236))
            words += [f"under {name} of size {max(line):g}, {arm.name} keeps {show(line[max(line)])}%"
                      for arm, line in lines]
    if not panels:
        return None
    return Picture("attacks", f"Accuracy under attack: {listed(words)}.",
                   "Accuracy on inputs that were changed to fool the model, by the size of the change. Attacks that "
                   f"follow the gradient can overrate models with large margins. {over_seeds(arms)}", panels,
                   [arm.key for arm in arms])


def _attacked(arm: Arm, name: str) -> dict[float, float]:
    """Mean accuracy by size."""
    points: dict[float, list[float]] = {}
    for final in arm.finals.values():
        found = (final.get("attacks") or {}).get(name)
        for size, accuracy in (found if isinstance(found, Mapping) else {}).items():
            try:
                points.setdefault(float(size), []).append(float(accuracy))
            except (TypeError, ValueError):
                continue
    return {size: float(np.mean(points[size])) for size in sorted(points)}


def _robust(lines: Sequence[tuple[Arm, dict[float, float]]]) -> Any:
    sizes = sorted({size for _, line in lines for size in line})

    def draw(axes: Axes) -> None:
        # Sizes stand at equal distances: grids are even, or grow by a factor.
        for arm, line in lines:
            axes.plot([sizes.index(size) for size in line], list(line.values()), color=arm.colour, ls=arm.dashes,
                      lw=1.8, marker="o", ms=4)
        every = math.ceil(len(sizes) / 8)
        axes.set(ylim=(0, 102), xlim=(-0.3, len(sizes) - 0.7), xticks=range(0, len(sizes), every),
                 xticklabels=[f"{size:g}" for size in sizes[::every]])
    return draw
