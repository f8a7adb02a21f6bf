"""The section of calibration: reliability diagrams, and what a fitted temperature changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine import Metric
from ...judge.stats import mean_of
from ..arms import Arm, over_seeds, row_kind, titles
from ..drawing.panels import Panel, Picture
from ..drawing.rows import PERCENT, QUARTERS
from ..drawing.style import MUTED
from ..numbers import show
from .parts import Cell, Section, Table, mean_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ECE = Metric("ece", "calibration error", digits=4, low=0, high=1)
_NLL = Metric("nll", "negative log-likelihood", digits=3, low=0)
_READ = {"ece_before": _ECE, "ece_after": _ECE, "nll_before": _NLL, "nll_after": _NLL}
_FITTED = {"value": Metric("value", "temperature", low=0), **_READ}
_GROUPS = [("calibration error", 2), ("negative log-likelihood", 2)]


def section(arms: Sequence[Arm]) -> Section | None:
    drawn = picture(arms)
    if drawn is None:
        return None
    fitted = Table("A temperature fitted on one half of the test examples and evaluated on the other. It divides the "
                   "logits and never changes a decision.",
                   [row_kind(arms), "", "before", "after", "before", "after"], _rows(arms, "temperature", _FITTED),
                   [("", 1), ("temperature", 1), *_GROUPS])
    read = Table("Probabilities read through the loss that each model was trained with, on that other half. This needs "
                 "no labels and nothing to fit. It does not correct overconfidence from memorised training examples.",
                 [row_kind(arms), "as they are", "read", "as they are", "read"], _rows(arms, "posterior", _READ),
                 [("", 1), *_GROUPS])
    return Section("calibration", "Calibration", [
        "Of the examples with a confidence of 90%, nine in ten should be classified correctly. Larger margins make a "
        "model more confident, and often overconfident. One number, the temperature, can correct much of that; the "
        "table shows whether it did."], [drawn], [table for table in (fitted, read) if table.rows])


def _rows(arms: Sequence[Arm], key: str, metrics: Mapping[str, Metric]) -> list[list[Cell]]:
    """The arms whose diagnoses have this part, with the means over seeds."""
    rows = []
    for arm in arms:
        if parts := arm.diagnosed("calibration", key):
            rows.append([Cell(arm.name), *(mean_cell(mean_of([part[name] for part in parts]), metric)
                                           for name, metric in metrics.items())])
    return rows


def picture(arms: Sequence[Arm]) -> Picture | None:
    """Accuracy over confidence, bins summed over the seeds."""
    panels, words = [], []
    for arm, title in zip(arms, titles(arms), strict=True):
        bins = summed_bins(arm.diagnosed("calibration", "bins"))
        if not bins:
            continue
        error = mean_of(arm.diagnosed("calibration", "ece")).value
        total = sum(count for count, _, _ in bins)
        confidence = sum(count * one for count, one, _ in bins) / total
        accuracy = sum(count * one for count, _, one in bins) / total
        panels.append(Panel(_reliability(arm, bins, error), title, "confidence", "accuracy", height=262, left=40,
                            tag=arm.tag))
        words.append(f"{arm.name} is {show(100 * confidence, 1)}% confident on average and "
                     f"{show(100 * accuracy, 1)}% accurate, calibration error {show(error, 4)}")
    if not panels:
        return None
    return Picture("reliability", f"Reliability diagrams: {'; '.join(words)}.",
                   "Accuracy over confidence in bins of equal width. On the diagonal the confidence equals the "
                   "accuracy; below it the model is overconfident, above it underconfident. The area of a dot is the "
                   f"share of the examples in its bin. {over_seeds(arms, 'Bins summed over')}", panels)


def summed_bins(several: Sequence[Sequence[dict[str, Any]]]) -> list[tuple[int, float, float]]:
    """Count, mean confidence and accuracy of every bin that has examples, over all seeds."""
    sums: dict[float, list[float]] = {}
    for rows in several:
        for row in rows:
            if row["count"]:
                total = sums.setdefault(row["low"], [0, 0.0, 0.0])
                for i, value in enumerate((1, row["confidence"], row["accuracy"])):
                    total[i] += row["count"] * value
    return [(int(n), confidence / n, accuracy / n) for _, (n, confidence, accuracy) in sorted(sums.items())]


def _reliability(arm: Arm, bins: list[tuple[int, float, float]], error: float) -> Any:
    count, confidence, accuracy = (np.asarray(column, float) for column in zip(*bins, strict=True))

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, lw=1)
        axes.vlines(confidence, confidence, accuracy, color=arm.colour, lw=1.4, alpha=0.8)
        axes.scatter(confidence, accuracy, s=14 + 260 * count / count.sum(), color=arm.colour, alpha=0.85, lw=0,
                     zorder=3, clip_on=False)
        axes.annotate(f"error {show(error, 4)}", (1, 1), (0, 8), xycoords="axes fraction", textcoords="offset points",
                      ha="right")
        axes.set(xlim=(0, 1.02), ylim=(0, 1.04), xticks=QUARTERS, yticks=QUARTERS, xticklabels=PERCENT,
                 yticklabels=PERCENT)
    return draw
