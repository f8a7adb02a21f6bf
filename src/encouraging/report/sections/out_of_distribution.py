"""The sections of out-of-distribution detection: do a model's scores separate other data from its own?

In diagnoses and records the test examples are called ``inside`` and the out-of-distribution examples ``outside``, and a
set without a name of its own is called ``outside`` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine import Metric
from ...judge.stats import mean_of
from ...metrics import LEVELS
from ..arms import Arm, over_seeds, row_kind, titles
from ..drawing.histograms import bin_edges, finite, heights
from ..drawing.panels import Key, Panel, Picture
from ..drawing.rows import PERCENT, QUARTERS
from ..drawing.style import BLACK, BLUE, MUTED
from ..numbers import listed, show
from .parts import Cell, Section, Table, mean_cell, present

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCORE = "min_energy"
# The same names in the terminal, in tables and in sentences. Log-odds are no probability: they do not saturate.
SCORES = {"min_energy": "MaxLogit (minus the lowest energy)", "free_energy": "Energy (minus the free energy)",
          "max_probability": "log-odds of the top class", "msp": "MSP (highest probability in float32)"}
USUAL = {"msp": "MSP", "min_energy": "MaxLogit", "free_energy": "Energy",
         "max_probability": "log-odds of the top class"}
COLUMNS = ("FPR@95", "AUROC", "AUPR_IN", "AUPR_OUT")  # OpenOOD's
NUMBERS = {3: "three", 4: "four"}
UNNAMED = "outside"
_RATE = Metric("rate", "rate", "%", low=0, high=100)


def set_label(name: str) -> str:
    """The name of a set as a reader sees it."""
    return "out-of-distribution data" if name == UNNAMED else name


def sections(arms: Sequence[Arm]) -> list[Section]:
    """One section per out-of-distribution set that any arm was evaluated on."""
    names = dict.fromkeys(name for arm in arms for sets in arm.diagnosed("ood") for name in sets)
    per_set = [section for number, name in enumerate(names, 1) if (section := _section(arms, name, number))]
    return [*per_set, *([together] if (together := _near_and_far(arms)) else [])]


def _section(arms: Sequence[Arm], name: str, number: int) -> Section | None:
    pictures = present(score_picture(arms, name, number), roc_picture(arms, name, number))
    rows = []
    for arm in arms:
        for score, words in SCORES.items():
            results = arm.diagnosed("ood", name, "scores", score)
            if results:
                means = [mean_of([rates[key] for rates in results]) for key in ("auroc", "aupr", "fpr95")]
                rows.append([Cell(arm.name), Cell(words, words=True), *(mean_cell(mean, _RATE) for mean in means)])
    if not pictures and not rows:
        return None
    kinds = len({row[1].main for row in rows})
    side = "Test examples are" if _test_is_positive(arms, name) else "Out-of-distribution examples are"
    title = "Out-of-distribution detection" + ("" if name == UNNAMED else f": {name}")
    return Section(
        f"out-of-distribution-{number}", title,
        ["A model should notice data that it was not trained on. Every example gets a score; the question is how well "
         "the score separates the two kinds. Higher AUROC and AUPR are better, lower FPR95 is better."], pictures,
        [Table(f"Detection by {NUMBERS.get(kinds, kinds)} scores, in percent. {side} the positive class.",
               [row_kind(arms), "score", "AUROC", "AUPR", "FPR95"], rows), *_openood(arms, name)])


def _openood(arms: Sequence[Arm], name: str) -> list[Table]:
    """The same under the names and by the definitions of OpenOOD, so that numbers can be placed."""
    rows = []
    for arm in arms:
        for score, words in USUAL.items():
            results = arm.diagnosed("ood", name, "scores", score, "openood")
            if results:
                means = [mean_of([rates[column] for rates in results]) for column in COLUMNS]
                rows.append([Cell(arm.name), Cell(words, words=True), *(mean_cell(mean, _RATE) for mean in means)])
    return [_usual_table([row_kind(arms), "score", *COLUMNS], rows)] if rows else []


def _usual_table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    return Table("The columns of OpenOOD, in percent: there out-of-distribution examples are the positive class of "
                 "FPR@95. MaxLogit is minus the lowest energy; MSP is the highest probability in float32, where it "
                 "rounds to 1 for all very confident examples, and log-odds are the same probability without that "
                 "limit.", head, rows)


def _near_and_far(arms: Sequence[Arm]) -> Section | None:
    """The means over near and over far sets, where the recipe divides them."""
    groups: dict[str, dict[str, None]] = {}
    for arm in arms:
        for sets in arm.diagnosed("ood"):
            for name, detection in sets.items():
                if "group" in detection:
                    groups.setdefault(str(detection["group"]), {})[name] = None
    rows = []
    for group in groups:
        for arm in arms:
            for score, words in USUAL.items():
                means = [arm.mean(f"ood.{group}ood.{score}.openood.{column}") for column in COLUMNS]
                if means[0].n:
                    rows.append([Cell(f"{group}ood"), Cell(arm.name), Cell(words, words=True),
                                 *(mean_cell(mean, _RATE) for mean in means)])
    if not rows:
        return None
    members = listed([f"{group} means {listed(list(names))}" for group, names in groups.items()])
    return Section("out-of-distribution-groups", "Out-of-distribution detection: near and far",
                   [f"Means over the sets of a group, as OpenOOD reports them; {members}."], (),
                   [_usual_table(["sets", row_kind(arms), "score", *COLUMNS], rows)])


def _test_is_positive(arms: Sequence[Arm], name: str) -> bool:
    return next((side for arm in arms for side in arm.diagnosed("ood", name, "positive")), "inside") == "inside"


def score_picture(arms: Sequence[Arm], name: str, number: int = 1) -> Picture | None:
    """Histograms of the score of test and out-of-distribution examples, one panel per arm."""
    rows = {arm.name: [_mean_quantiles(arm, name, side) for side in ("inside", "outside")]
            for arm in arms if arm.diagnosed("ood", name, "scores", SCORE, "inside")}
    panels = []
    for arm, title in zip(arms, titles(arms), strict=True):
        if arm.name in rows and all(len(row) for row in rows[arm.name]):
            edges = bin_edges(rows[arm.name])  # energies of different losses differ in scale: one axis per arm
            panels.append(Panel(_two_histograms(edges, *(heights(row, edges) for row in rows[arm.name])), title,
                                "minus the lowest energy", height=170, left=10, tag=arm.tag))
    if not panels:
        return None
    words = [f"{arm.name} {show(_rate(arm, name, 'auroc'))}%" for arm in arms if arm.name in rows]
    other_data = set_label(name)
    models = "models were" if row_kind(arms) == "arm" else "model was"
    own_axes = "Every panel has its own axis. " if len(panels) > 1 else ""
    return Picture(f"ood-scores-{number}",
                   f"Histograms of minus the lowest energy, test examples against {other_data}. "
                   f"AUROC: {listed(words)}.",
                   f"Test examples and {other_data}, which the {models} not trained on: minus their lowest energy. "
                   f"The less the two overlap, the better. {own_axes}{over_seeds(arms)}", panels,
                   [Key("test examples", BLUE, kind="patch"), Key(other_data, MUTED, kind="patch")])


def _two_histograms(edges: np.ndarray, test: np.ndarray, other: np.ndarray) -> Any:
    def draw(axes: Axes) -> None:
        highest = max(test.max(), other.max())
        axes.stairs(other / highest, edges, fill=True, color=MUTED, alpha=0.55, lw=0)
        axes.stairs(test / highest, edges, fill=True, color=BLUE, alpha=0.6, lw=0)
        axes.grid(False)
        axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.05), yticks=[])
    return draw


def roc_picture(arms: Sequence[Arm], name: str, number: int = 1) -> Picture | None:
    """True over false positive rates, over the whole range and magnified where few are false."""
    lines = []
    for arm in arms:
        curves = arm.diagnosed("ood", name, "scores", SCORE, "roc")
        if curves and len({len(curve["fpr"]) for curve in curves}) == 1:
            lines.append((arm, np.asarray(curves[0]["fpr"], float), np.mean([curve["tpr"] for curve in curves], 0)))
    if not lines:
        return None
    test_is_positive = _test_is_positive(arms, name)
    true = "test examples accepted" if test_is_positive else "out-of-distribution examples detected"
    false = "out-of-distribution examples accepted" if test_is_positive else "test examples rejected"

    def full_range(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, lw=0.9)
        draw_lines(axes)
        axes.set(xlim=(-0.01, 1), xticks=QUARTERS, xticklabels=PERCENT)

    def small_rates(axes: Axes) -> None:
        draw_lines(axes)
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set(xlim=(1e-4, 1))
        axes.set_xticks([1e-4, 1e-3, 1e-2, 1e-1, 1], ["0.01%", "0.1%", "1%", "10%", "100%"])

    def draw_lines(axes: Axes) -> None:
        axes.axhline(0.95, color=BLACK, lw=0.7)
        for arm, fpr, tpr in lines:
            axes.plot(fpr, tpr, color=arm.colour, ls=arm.dashes, lw=1.8, gid=arm.tag)
        axes.set(ylim=(0, 1.02), yticks=[0, 0.25, 0.5, 0.75, 0.95], yticklabels=["", "25%", "50%", "75%", "95%"])

    words = [f"{arm.name} {show(_rate(arm, name, 'fpr95'))}%" for arm, _, _ in lines]
    return Picture(f"ood-roc-{number}", f"ROC curves against {set_label(name)}. False positive rates at 95% true "
                   f"positives: {listed(words)}.",
                   f"True over false positive rates against {set_label(name)}, by lowest energy; the thin line is 95%, "
                   f"where FPR95 is read. The second panel magnifies small rates. {over_seeds(arms)}",
                   [Panel(full_range, "All rates", false, true, height=262, left=40),
                    Panel(small_rates, "Small rates magnified", false, true, height=262, left=40)],
                   [arm.key for arm, _, _ in lines] if len(arms) > 1 else [], columns=2)


def _rate(arm: Arm, name: str, key: str) -> float:
    return mean_of(arm.diagnosed("ood", name, "scores", SCORE, key)).value


def _mean_quantiles(arm: Arm, name: str, side: str) -> np.ndarray:
    rows = [row for row in arm.diagnosed("ood", name, "scores", SCORE, side) if len(row) == len(LEVELS)]
    return np.mean([finite(row) for row in rows], 0) if rows else np.empty(0)
