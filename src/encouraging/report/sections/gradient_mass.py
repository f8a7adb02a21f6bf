"""The section of gradient mass: how much of each loss's gradient comes from examples that are learned already."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...judge.stats import mean_of
from ..arms import Arm, over_seeds, titles
from ..drawing.panels import Key, Panel, Picture, printable
from ..drawing.style import MUTED, STEPS
from ..numbers import brief, capitalised, listed, show
from .parts import Section, pictured

if TYPE_CHECKING:
    from matplotlib.axes import Axes


ROOM = 24  # characters


def section(arms: Sequence[Arm]) -> Section | None:
    return pictured(picture(arms), "gradient-mass", "Where each loss’s gradient comes from",
                    "Most examples are learned early. What they still contribute to the gradient depends on the loss: "
                    "with cross-entropy it fades as 1 − p, with a bonus it lasts longer, and with the focal loss it "
                    "is smaller than with cross-entropy.")


def picture(arms: Sequence[Arm]) -> Picture | None:
    """One panel per model and one bar per loss: shares of the gradient by the probability of the label."""
    drawn, words, examples_of = [], [], "test"
    for arm, title in zip(arms, titles(arms), strict=True):
        seeds = arm.diagnosed("teaching", "shares")
        if not seeds:
            continue
        examples_of = arm.diagnosed("teaching", "of")[0]
        names = [name for name in seeds[0] if all(name in seed for seed in seeds)]
        levels = list(seeds[0]["examples"]) if "examples" in names else ["0.5", "0.9", "0.99"]
        above = {name: [float(np.mean([seed[name][level] for seed in seeds])) for level in levels] for name in names}
        pulls = {name: mean_of([seed.get(name) for seed in arm.diagnosed("teaching", "pulls")]).value for name in names}
        drawn.append((title, above, pulls, arm.tag))
        shares = [f"{show(100 * above[name][1], 1)}% with {name}" for name in above if name != "examples"]
        words.append(f"on the model of {arm.name}, where {show(100 * above['examples'][1], 1)}% of the examples are "
                     f"above p = {levels[1]}, their share of the gradient is {listed(shares)}")
    if not drawn:
        return None
    rows = max(len(above) for _, above, _, _ in drawn)  # all panels have the height of the fullest, and stand level
    panels = [Panel(_stacked(above, pulls, rows), title, height=14 + 37 * rows, left=1, tag=tag)
              for title, above, pulls, tag in drawn]
    keys = [Key(label, colour, kind="patch") for label, colour in
            zip(("p up to 0.5", "0.5 to 0.9", "0.9 to 0.99", "above 0.99"), STEPS, strict=True)]
    alt = "; ".join(words)
    return Picture("gradient-mass", capitalised(alt) + ".",
                   "Where the gradient on the logits comes from, by the probability p of the label. A panel is a "
                   f"trained model on the {'training' if examples_of == 'train' else examples_of} examples as it sees "
                   "them; a bar is a loss with which training could continue, and the first bar is the examples "
                   "themselves. Bars show shares, not sizes: once everything is learned, nearly all of the gradient "
                   "comes from learned examples with every loss, but it is almost zero with cross-entropy and far "
                   f"larger with a bonus. The normal bonus (LE 1) ends at its clamp, p = 0.99999. {over_seeds(arms)}",
                   panels, keys)


def _label(name: str) -> str:
    """What stands above a bar, beside the numbers on its right: as many parameters of the loss as there is room for.

    >>> _label("examples"), _label("aggressive(start=0.5, eps=1e-05)"), _label("halted_focal(gamma=1.0, halt=0.5)")
    ('the examples themselves', 'aggressive, start 0.5', 'halted_focal, gamma 1')
    """
    if name == "examples":
        return "the examples themselves"
    label, _, parameters = name.partition("(")
    for word, number in re.findall(r"(\w+)=([^,()]+)", parameters):
        longer = f"{label}, {word} {number.removesuffix('.0')}"
        if len(longer) > ROOM:
            break
        label = longer
    return printable(label if len(label) <= ROOM else f"{label[:ROOM - 1]}…")


def _stacked(above: dict[str, list[float]], pulls: dict[str, float], rows: int) -> Any:
    def draw(axes: Axes) -> None:
        for row, (name, shares) in enumerate(above.items()):
            edges = [1.0, *shares, 0.0]
            left = 0.0
            for width, colour in zip(-np.diff(edges), STEPS, strict=False):
                axes.barh(-row, width, 0.42, left=left, color=colour, lw=0)
                left += width
            axes.annotate(_label(name), (0, -row), (0, 10), textcoords="offset points", va="bottom", fontsize=10.5)
            learned = 100 * shares[1]
            size = "" if math.isnan(pulls[name]) else f"mean pull {brief(pulls[name])} · "
            axes.annotate(f"{size}{show(learned, 0 if learned >= 10 else 1)}% above 0.9", (1, -row), (-1, 10),
                          textcoords="offset points", va="bottom", ha="right", color=MUTED, fontsize=10.5)
        axes.grid(False)
        axes.spines["bottom"].set_visible(False)
        axes.set(xlim=(0, 1), ylim=(-rows + 0.7, 0.68), yticks=[], xticks=[])
    return draw
