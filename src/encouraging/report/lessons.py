"""Pictures of who is taught: the part of the gradient that learned examples have, and rare beside frequent classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .arms import Arm, listed, mean_of, show, titles
from .drawing import MUTED, STEPS, Key, Panel, Picture, printable
from .plots import over_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def teaching(arms: Sequence[Arm]) -> Picture | None:
    """How much of each loss's gradient comes from what is learned already: a bar a loss, a panel a model."""
    panels, words, of = [], [], "test"
    for arm, title in zip(arms, titles(arms), strict=True):
        several = arm.of("teaching", "shares")
        if not several:
            continue
        of = arm.of("teaching", "of")[0]
        names = [name for name in several[0] if all(name in one for one in several)]
        levels = list(several[0]["examples"]) if "examples" in names else ["0.5", "0.9", "0.99"]
        above = {name: [float(np.mean([one[name][level] for one in several])) for level in levels] for name in names}
        pulls = {name: mean_of([one.get(name) for one in arm.of("teaching", "pulls")]).value for name in names}
        panels.append(Panel(_stacked(above, pulls), title, height=14 + 37 * len(above), left=1))
        two = [f"{show(100 * above[name][1], 1)}% with {name}" for name in above if name != "examples"]
        words.append(f"on the model of {arm.name}, where {show(100 * above['examples'][1], 1)}% of the examples are "
                     f"above p = {levels[1]}, their share of the gradient is {listed(two)}")
    if not panels:
        return None
    keys = [Key(label, colour, kind="patch") for label, colour in
            zip(("p up to 0.5", "0.5 to 0.9", "0.9 to 0.99", "above 0.99"), STEPS, strict=True)]
    capital = "; ".join(words)
    return Picture("teaching", capital[0].upper() + capital[1:] + ".",
                   "Where the gradient on the logits comes from, by the probability p of the label. A panel is a "
                   f"trained model with the {'training' if of == 'train' else of} examples as it sees them; a bar is a "
                   "loss that could go on teaching it, and the first bar the examples themselves. Shares say nothing "
                   "about size: once everything is learned, every bar is full, of a gradient that is nearly gone with "
                   "cross-entropy and far larger with a bonus. A normal bonus (LE 1) lets go of examples past its "
                   f"clamp, p = 0.99999. {over_seeds(arms)}", panels, keys)


def _stacked(above: dict[str, list[float]], pulls: dict[str, float]) -> Any:
    def draw(axes: Axes) -> None:
        for place, (name, shares_) in enumerate(above.items()):
            ends = [1.0, *shares_, 0.0]
            left = 0.0
            for part, colour in zip(-np.diff(ends), STEPS, strict=False):
                axes.barh(-place, part, 0.42, left=left, color=colour, lw=0)
                left += part
            label = "the examples themselves" if name == "examples" else printable(name)
            axes.annotate(label, (0, -place), (0, 10), textcoords="offset points", va="bottom", fontsize=10.5)
            sure = 100 * shares_[1]
            size = "" if math.isnan(pulls[name]) else f"mean pull {pulls[name]:.2g} · "
            axes.annotate(f"{size}{show(sure, 0 if sure >= 10 else 1)}% above 0.9", (1, -place), (-1, 10),
                          textcoords="offset points", va="bottom", ha="right", color=MUTED, fontsize=10.5)
        axes.grid(False)
        axes.spines["bottom"].set_visible(False)
        axes.set(xlim=(0, 1), ylim=(-len(above) + 0.7, 0.68), yticks=[], xticks=[])
    return draw


def shots(arms: Sequence[Arm]) -> Picture | None:
    """Accuracy on classes that were seen often, sometimes and rarely."""
    order = ("many", "medium", "few")
    found = [(arm, [mean_of([row[g] for row in arm.of("shots") if g in row]).value for g in order]) for arm in arms
             if arm.of("shots")]
    if not found:
        return None

    def draw(axes: Axes) -> None:
        for arm, values in found:
            axes.plot(range(3), values, color=arm.colour, ls=arm.dashes, marker="o", ms=6, lw=1.4)
        axes.grid(axis="x", visible=False)
        axes.margins(x=0.12, y=0.12)
        axes.set_xticks(range(3), ["many: over 100", "medium", "few: under 20"])
    words = [f"{arm.name} {', '.join(f'{show(v, 1)}% on {g}' for g, v in zip(order, values, strict=True))}"
             for arm, values in found]
    return Picture("shots", f"Accuracy by training examples a class: {listed(words)}.",
                   f"Accuracy by the number of training examples of a class. {over_seeds(arms)}",
                   [Panel(draw, "", "", "accuracy, %", height=250)],
                   [arm.key for arm, _ in found] if len(found) > 1 else [])
