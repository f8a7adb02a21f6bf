"""Pictures of examples from elsewhere: do a model's scores tell them from its own?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..metrics import LEVELS
from .arms import Arm, listed, mean_of, show, titles
from .drawing import MUTED, Key, Panel, Picture
from .figures import BLACK, BLUE
from .plots import bin_edges, finite, heights, over_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCORE = "min_energy"
SCORES = {"min_energy": "lowest energy", "free_energy": "free energy", "max_probability": "highest probability"}


def sets(arms: Sequence[Arm]) -> list[str]:
    """The outside sets of any arm."""
    return list(dict.fromkeys(name for arm in arms for found in arm.of("ood") for name in found))


def scores(arms: Sequence[Arm], name: str, place: int = 0) -> Picture | None:
    """Histograms of the score inside and outside, a panel an arm."""
    rows = {arm.name: [_mean(arm.of("ood", name, "scores", SCORE, side)) for side in ("inside", "outside")]
            for arm in arms if arm.of("ood", name, "scores", SCORE, "inside")}
    panels = []
    for arm, title in zip(arms, titles(arms), strict=True):
        if arm.name in rows and all(len(row) for row in rows[arm.name]):
            edges = bin_edges(rows[arm.name])  # energies of different losses differ in scale: an axis an arm
            panels.append(Panel(_two(edges, *(heights(row, edges) for row in rows[arm.name])), title,
                                "minus the lowest energy", height=170, left=10))
    if not panels:
        return None
    words = [f"{arm.name} {show(_number(arm, name, 'auroc'))}%" for arm in arms if arm.name in rows]
    return Picture(f"ood-scores-{place + 1}", f"Histograms of minus the lowest energy, test examples against {name}. "
                   f"AUROC: {listed(words)}.",
                   f"Test examples beside examples of {name}, which the models never saw: minus their lowest energy. "
                   f"The less the two overlap, the better. Every panel has its own axis. {over_seeds(arms)}", panels,
                   [Key("test examples", BLUE, kind="patch"), Key(name, MUTED, kind="patch")])


def _two(edges: np.ndarray, inside: np.ndarray, outside: np.ndarray) -> Any:
    def draw(axes: Axes) -> None:
        top = max(inside.max(), outside.max())
        axes.stairs(outside / top, edges, fill=True, color=MUTED, alpha=0.55, lw=0)
        axes.stairs(inside / top, edges, fill=True, color=BLUE, alpha=0.6, lw=0)
        axes.grid(False)
        axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.05), yticks=[])
    return draw


def roc(arms: Sequence[Arm], name: str, place: int = 0) -> Picture | None:
    """True over false positives, whole and magnified where few are false."""
    lines = []
    for arm in arms:
        curves = arm.of("ood", name, "scores", SCORE, "roc")
        if curves and len({len(curve["fpr"]) for curve in curves}) == 1:
            lines.append((arm, np.asarray(curves[0]["fpr"], float),
                          np.mean([curve["tpr"] for curve in curves], 0)))
    if not lines:
        return None
    positive = next((side for arm in arms for side in arm.of("ood", name, "positive")), "inside")
    what = "test examples found" if positive == "inside" else "outside examples found"
    false = "outside examples let in" if positive == "inside" else "test examples turned away"

    def whole(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, lw=0.9)
        _lines(axes)
        axes.set(xlim=(-0.01, 1), xticks=[0, 0.25, 0.5, 0.75, 1], xticklabels=["0", "25%", "50%", "75%", "100%"])

    def small(axes: Axes) -> None:
        _lines(axes)
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set(xlim=(1e-4, 1))
        axes.set_xticks([1e-4, 1e-3, 1e-2, 1e-1, 1], ["0.01%", "0.1%", "1%", "10%", "100%"])

    def _lines(axes: Axes) -> None:
        axes.axhline(0.95, color=BLACK, lw=0.7)
        for arm, fpr, tpr in lines:
            axes.plot(fpr, tpr, color=arm.colour, ls=arm.dashes, lw=1.8)
        axes.set(ylim=(0, 1.02), yticks=[0, 0.25, 0.5, 0.75, 0.95], yticklabels=["", "25%", "50%", "75%", "95%"])

    words = [f"{arm.name} {show(_number(arm, name, 'fpr95'))}%" for arm, _, _ in lines]
    return Picture(f"ood-roc-{place + 1}", f"Curves of true over false positives against {name}. False positives where "
                   f"95% are found: {listed(words)}.",
                   f"The trade-off against {name} by lowest energy; the thin line is 95%, where FPR95 is read. To the "
                   f"right the same with small rates magnified. {over_seeds(arms)}",
                   [Panel(whole, "All rates", false, what, height=262, left=40),
                    Panel(small, "Small rates magnified", false, what, height=262, left=40)],
                   [arm.key for arm, _, _ in lines] if len(arms) > 1 else [], columns=2)


def _number(arm: Arm, name: str, key: str) -> float:
    return mean_of(arm.of("ood", name, "scores", SCORE, key)).value


def _mean(rows: Sequence[Sequence[float]]) -> np.ndarray:
    whole = [row for row in rows if len(row) == len(LEVELS)]
    return np.mean([finite(row) for row in whole], 0) if whole else np.empty(0)
