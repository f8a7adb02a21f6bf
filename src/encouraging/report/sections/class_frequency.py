"""The section of class frequency: accuracy on frequent and rare classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...judge.stats import mean_of
from ..arms import Arm, over_seeds
from ..drawing.panels import Panel, Picture
from ..numbers import listed, show
from .parts import Section, pictured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GROUPS = {"many": "many: over 100", "medium": "medium", "few": "few: under 20"}


def section(arms: Sequence[Arm]) -> Section | None:
    return pictured(picture(arms), "class-frequency", "Frequent and rare classes")


def picture(arms: Sequence[Arm]) -> Picture | None:
    """Accuracy on classes with many, medium and few training examples."""
    lines = [(arm, [mean_of([row[g] for row in arm.diagnosed("shots") if g in row]).value for g in _GROUPS])
             for arm in arms if arm.diagnosed("shots")]
    if not lines:
        return None

    def draw(axes: Axes) -> None:
        for arm, values in lines:
            axes.plot(range(len(_GROUPS)), values, color=arm.colour, ls=arm.dashes, marker="o", ms=6, lw=1.4)
        axes.grid(axis="x", visible=False)
        axes.margins(x=0.12, y=0.12)
        axes.set_xticks(range(len(_GROUPS)), list(_GROUPS.values()))
    words = [f"{arm.name} {', '.join(f'{show(v, 1)}% on {g}' for g, v in zip(_GROUPS, values, strict=True))}"
             for arm, values in lines]
    return Picture("class-frequency", f"Accuracy by the number of training examples per class: {listed(words)}.",
                   f"Accuracy by the number of training examples per class. {over_seeds(arms)}",
                   [Panel(draw, "", "", "accuracy, %", height=250)],
                   [arm.key for arm, _ in lines] if len(lines) > 1 else [])
