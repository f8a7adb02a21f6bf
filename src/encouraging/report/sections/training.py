"""The section of the training curves: mean and deviation over the seeds, by epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine import Metric
from ...judge.metric_book import MetricBook
from ..arms import Arm
from ..drawing.panels import Panel, Picture, within
from ..numbers import capitalised, listed, power_of_ten, show
from .parts import Section, pictured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 160
_ENGINE = (Metric("loss", "training loss, each arm its own"), Metric("grad_norm", "gradient norm", log=True))


def section(arms: Sequence[Arm], book: MetricBook) -> Section | None:
    return pictured(picture(arms, book), "training", "Training curves")


def picture(arms: Sequence[Arm], book: MetricBook) -> Picture | None:
    """One panel per curve: the task's metrics that are measured every epoch, the training loss and gradient norm."""
    panels, primary, before = [], book.primary, _epochs_before(arms)
    for m in (*book.metrics.values(), *_ENGINE):
        lines = [(arm, curve[0] + before.get(arm.name, 0), curve[1]) for arm in arms
                 if (curve := training_curve(arm, m.path)) is not None]
        if lines:
            title = capitalised(m.words)
            unit = ", ".join(filter(None, [m.unit, "logarithmic" if m.log else ""]))
            panels.append(Panel(_lines(lines, m), title, "epoch", unit, height=236, left=46))
    if not panels:
        return None
    words = []
    for arm in arms:
        if (curve := training_curve(arm, primary.path)) is not None:
            x, rows = curve
            words.append(f"{arm.name} {show(float(rows[:, -1].mean()), primary.digits, primary.unit)} after epoch "
                         f"{int(x[-1]) + before.get(arm.name, 0)}")
    alt = f"Training curves. {capitalised(primary.words)}: {listed(words)}." if words else "Training curves by epoch."
    caption = ("Mean over the seeds, on logarithmic axes the mean of the logarithms; the band is one standard "
               "deviation to either side. First epochs far from the others are cut off. Losses of different arms are "
               "different functions: only their shapes can be compared, while what is measured on test data can be "
               "compared directly.")
    return Picture("training", alt, " ".join([caption, *_start_words(arms, before)]), panels, [arm.key for arm in arms],
                   columns=2)


def _epochs_before(arms: Sequence[Arm]) -> dict[str, int]:
    """Of every arm that starts from the weights of another one here: how many epochs those had been trained for."""
    trained = {arm.name: min(int(_epochs_done(lines).max(initial=0)) for lines in arm.epochs) for arm in arms
               if arm.epochs}
    starts = {arm.name: start for arm in arms if (start := arm.starts_from) is not None}
    before = {}
    for name in starts:
        chain = [name]
        while (start := starts.get(chain[-1])) is not None and start not in chain:
            chain.append(start)
        if all(start in trained for start in chain[1:]):
            before[name] = sum(trained[start] for start in chain[1:])
    return before


def _start_words(arms: Sequence[Arm], before: Mapping[str, int]) -> list[str]:
    """What the epochs of arms mean that start from the weights of another arm."""
    starts = [(arm, f"{arm.name} (from {arm.starts_from})") for arm in arms if arm.starts_from is not None]
    after = [words for arm, words in starts if arm.name in before]
    alone = [words for arm, words in starts if arm.name not in before]
    return [*([f"Drawn after the epochs of the arm whose weights they start from: {listed(after)}."] if after else []),
            *(["Counted from the first epoch of their own, though they start from weights of an arm that is not here: "
               f"{listed(alone)}."] if alone else [])]


def _epochs_done(lines: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """The number of trained epochs at every line, through all stages. A line of epoch 0 is an evaluation of the weights
    that are there.

    >>> _epochs_done([{"epoch": 1}, {"epoch": 2}, {"epoch": 0}, {"epoch": 1}])
    array([1, 2, 2, 3])
    """
    return np.cumsum([line.get("epoch", 1) > 0 for line in lines], dtype=int)


def training_curve(arm: Arm, key: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Epochs, numbered through all stages, and one row of values per seed; as long as the shortest run."""
    rows = [[line.get(key) for line in lines] for lines in arm.epochs]
    length = min((len(row) for row in rows), default=0)
    if not length:
        return None
    table = np.asarray([[math.nan if v is None else float(v) for v in row[:length]] for row in rows])
    complete = np.isfinite(table).all(0).nonzero()[0]
    if not len(complete):
        return None
    if len(complete) > _POINTS:
        complete = complete[np.unique(np.linspace(0, len(complete) - 1, _POINTS).astype(int))]
    return _epochs_done(arm.epochs[0])[complete].astype(float), table[:, complete]


def _lines(lines: Sequence[tuple[Arm, np.ndarray, np.ndarray]], m: Metric) -> Any:
    log = m.log and all((rows > 0).all() for _, _, rows in lines)

    def draw(axes: Axes) -> None:
        lowest = []
        for arm, x, rows in lines:
            values = np.log(rows) if log else rows
            mean, std = values.mean(0), values.std(0, ddof=1) if len(rows) > 1 else np.zeros(len(x))
            low, middle, high = (np.exp(v) if log else v for v in (mean - std, mean, mean + std))
            if len(rows) > 1:
                axes.fill_between(x, low, high, color=arm.colour, alpha=0.13, lw=0, gid=arm.tag)
            axes.plot(x, middle, color=arm.colour, ls=arm.dashes, lw=1.7, marker="o" if len(x) == 1 else "",
                      gid=arm.tag)
            lowest.append(float(np.quantile(middle, 0.15)))
        if log:
            axes.set_yscale("log")
            axes.minorticks_off()
            _plain_ticks(axes)
        if m.unit == "%" and m.better == "higher":  # the first epochs are far below all that matters
            bands = [rows.mean(0) + (rows.std(0, ddof=1) if len(rows) > 1 else 0.0) for *_, rows in lines]
            highest = min(max(float(np.quantile(band, 0.9)) for band in bands), m.high)
            low = min(lowest)
            axes.set_ylim(low - 0.35 * max(highest - low, 0.2), highest + 0.15 * max(highest - low, 0.2))
        if not log:
            axes.set_ylim(within(axes.get_ylim(), m.low, m.high))
        axes.set_xlim(min(x[0] for _, x, _ in lines) - 0.4, max(x[-1] for _, x, _ in lines) + 0.4)
        axes.locator_params(axis="x", integer=True, nbins=6)
    return draw


def _plain_ticks(axes: Axes) -> None:
    """Powers of ten as digits, such as 0.001. matplotlib's exponents are formulas, which are switched off because names
    of arms may contain dollar signs."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    low, high = axes.get_ylim()
    decades = math.log10(high / low) if low > 0 else 9
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0,) if decades > 2.2 else (1.0, 2.0, 5.0), numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))


def _power(value: float) -> str:
    """
    >>> _power(0.05), _power(1e-8)
    ('0.05', '10⁻⁸')
    """
    if 1e-4 < value < 1e5:
        return f"{value:g}"
    return power_of_ten(round(math.log10(value)))
