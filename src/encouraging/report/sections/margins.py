"""The section of the margins: by how much the label wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...judge.stats import mean_of
from ...metrics import LEVELS
from ..arms import Arm, over_seeds, titles
from ..drawing.histograms import ENDS, bin_edges, heights, mean_quantiles
from ..drawing.panels import Panel, Picture
from ..drawing.rows import PERCENT, QUARTERS
from ..drawing.style import BLACK, MUTED
from ..numbers import listed, show
from .parts import Section, pictured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FAR_WIDER = 2.5  # times the margins of a typical arm
_MEDIAN = LEVELS.index(0.5)
_Bins = tuple[np.ndarray, np.ndarray]


def section(arms: Sequence[Arm]) -> Section | None:
    lead = "The margin says by how much the label wins; it is positive where an example is classified correctly."
    if len(arms) > 1:
        lead += (" Cross-entropy loses interest in a training example once it is classified correctly, and a bonus "
                 "continues to pull. The figure shows whether that widens the margins of the examples here.")
    return pictured(picture(arms), "margins", "Margins", lead)


def picture(arms: Sequence[Arm]) -> Picture | None:
    """One histogram per arm on a common axis, from the mean quantiles of its seeds; then all their quantiles."""
    quantiles = {arm.name: row for arm in arms if (row := mean_quantiles(arm.diagnosed("margin"))) is not None}
    arms = [arm for arm in arms if arm.name in quantiles]
    if not arms:
        return None
    wide = _far_wider(quantiles)
    limits = {name: _limits([row for other, row in quantiles.items() if (other in wide) == (name in wide)])
              for name in quantiles}
    bins = {}
    for name, row in quantiles.items():
        edges = bin_edges([row])  # its own bins: those that suit large margins would be too wide for small ones
        bins[name] = edges, heights(row, edges)
    panels = []
    for arm, title in zip(arms, titles(arms), strict=True):
        draw = _histogram(bins[arm.name], arm.colour, quantiles[arm.name][_MEDIAN], limits[arm.name],
                          None if arm is arms[0] else bins[arms[0].name])
        panels.append(Panel(draw, title, "margin, in logits", height=176, left=2, tag=arm.tag))
    if len(arms) > 1:
        panels.append(Panel(_quantile_lines([(arm, quantiles[arm.name]) for arm in arms]), "All arms",
                            "share of the examples with a smaller margin", height=176, left=34))
    medians = [f"{arm.name} {show(quantiles[arm.name][_MEDIAN])}" for arm in arms]
    wrong = [f"{arm.name} {show(100 * mean_of(arm.diagnosed('margin', 'wrong')).value)}%" for arm in arms]
    scaled = "; every panel is scaled to its own highest bin" if len(arms) > 1 else ""
    caption = (f"Distribution of the margin, the label’s logit minus its best rival{scaled}. Left of 0 an example is "
               f"misclassified. {over_seeds(arms)}")
    if len(arms) > 1:
        caption += f" The grey outline repeats {arms[0].name}."
    if wide:
        caption += (f" The margins of {listed([arm.name for arm in arms if arm.name in wide])} are far wider than "
                    "those of the others, and have an axis of their own.")
    return Picture("margins", f"Histograms of the margin. Medians: {listed(medians)}. Share of misclassified "
                   f"examples: {listed(wrong)}.", caption, panels)


def _far_wider(quantiles: Mapping[str, np.ndarray]) -> set[str]:
    """The arms whose margins would compress those of all others on a common axis."""
    extents = {name: max(map(abs, _limits([row]))) for name, row in quantiles.items()}
    typical = float(np.median(list(extents.values())))
    return {name for name, extent in extents.items() if extent > _FAR_WIDER * typical}


def _limits(rows: Sequence[np.ndarray]) -> tuple[float, float]:
    edges = bin_edges(rows, include=0.0)
    return float(edges[0]), float(edges[-1])


def _histogram(bins: _Bins, colour: str, median: float, limits: tuple[float, float], reference: _Bins | None) -> Any:
    def draw(axes: Axes) -> None:
        edges, height = bins
        axes.stairs(height / height.max(), edges, fill=True, color=colour, alpha=0.7, lw=0)
        if reference is not None:
            axes.stairs(reference[1] / reference[1].max(), reference[0], color=MUTED, lw=1)
        axes.axvline(0, color=BLACK, lw=0.9)
        axes.plot([median, median], [0, 1.05], color=colour, lw=1.8)
        third = (limits[1] - limits[0]) / 3  # more than the words are wide; they point away from the line at 0
        right = median > limits[0] + third if median < 0 else median > limits[1] - third
        axes.annotate(f"median {show(median, 1)}", (median, 1.05), (0, 3), textcoords="offset points",
                      ha="right" if right else "left", color=BLACK)
        axes.grid(False)
        axes.set(xlim=limits, ylim=(0, 1.22), yticks=[])
    return draw


def _quantile_lines(lines: Sequence[tuple[Arm, np.ndarray]]) -> Any:
    def draw(axes: Axes) -> None:
        axes.axhline(0, color=BLACK, lw=0.9)
        inner = [i for i, level in enumerate(LEVELS) if ENDS <= level <= 1 - ENDS][::2]
        for arm, row in lines:
            axes.plot([LEVELS[i] for i in inner], row[inner], color=arm.colour, ls=arm.dashes, lw=1.7, gid=arm.tag)
        axes.set(xlim=(0, 1), xticks=QUARTERS, xticklabels=PERCENT)
        axes.locator_params(axis="y", nbins=5)
    return draw
