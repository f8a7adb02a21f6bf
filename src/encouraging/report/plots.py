"""Pictures of what models know, drawn from diagnoses: margins, energies and calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..metrics import LEVELS, mean_spread, shares
from .arms import Arm, listed, mean_of, plural, show, titles
from .drawing import LINE, MUTED, PAPER, Panel, Picture, printable
from .figures import BLACK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 48
_WIDE = 0.005  # share of the examples at either end that would only stretch the axis


def margins(arms: Sequence[Arm]) -> Picture | None:
    """One histogram an arm on a common axis, from the mean quantiles of its seeds; then all their quantiles."""
    found = {arm.name: _mean_quantiles(arm.of("margin")) for arm in arms if _spreads(arm.of("margin"))}
    arms = [arm for arm in arms if arm.name in found]
    if not arms:
        return None
    whole = bin_edges(list(found.values()), include=0.0)
    bins = {}
    for name, row in found.items():
        edges = bin_edges([row])  # bins of its own: those that suit large margins would be too wide for small ones
        bins[name] = edges, heights(row, edges)
    panels = []
    for arm, title in zip(arms, titles(arms), strict=True):
        median = found[arm.name][LEVELS.index(0.5)]
        panels.append(Panel(_histogram(bins[arm.name], arm.colour, median, (whole[0], whole[-1]),
                                       None if arm is arms[0] else bins[arms[0].name]), title,
                            "margin, in logits", height=176, left=2))
    if len(arms) > 1:
        panels.append(Panel(_quantiles([(arm, found[arm.name]) for arm in arms]), "All arms",
                            "share of the examples with a smaller margin", height=176, left=34))
    medians = [f"{arm.name} {show(found[arm.name][LEVELS.index(0.5)])}" for arm in arms]
    wrong = [f"{arm.name} {show(100 * mean_of(arm.of('margin', 'wrong')).value)}%" for arm in arms]
    caption = ("Distribution of the margin, the label’s logit minus its best rival; every panel is scaled to its own "
               f"highest bin. Left of 0 an example is classified wrongly. {over_seeds(arms)}")
    if len(arms) > 1:
        caption += f" The grey outline repeats {arms[0].name}."
    return Picture("margins", f"Histograms of the margin. Medians: {listed(medians)}. Share of the examples without a "
                   f"margin: {listed(wrong)}.", caption, panels)


_Bins = tuple[np.ndarray, np.ndarray]


def _histogram(bins: _Bins, colour: str, median: float, reach: tuple[float, float], other: _Bins | None) -> Any:
    def draw(axes: Axes) -> None:
        edges, height = bins
        axes.stairs(height / height.max(), edges, fill=True, color=colour, alpha=0.7, lw=0)
        if other is not None:
            axes.stairs(other[1] / other[1].max(), other[0], color=MUTED, lw=1)
        axes.axvline(0, color=BLACK, lw=0.9)
        axes.plot([median, median], [0, 1.05], color=colour, lw=1.8)
        right = median > (reach[0] + 2 * reach[1]) / 3
        axes.annotate(f"median {show(median, 1)}", (median, 1.05), (0, 3), textcoords="offset points",
                      ha="right" if right else "left", color=BLACK)
        axes.grid(False)
        axes.set(xlim=reach, ylim=(0, 1.22), yticks=[])
    return draw


def _quantiles(lines: Sequence[tuple[Arm, np.ndarray]]) -> Any:
    def draw(axes: Axes) -> None:
        axes.axhline(0, color=BLACK, lw=0.9)
        inner = [i for i, level in enumerate(LEVELS) if _WIDE <= level <= 1 - _WIDE][::2]
        for arm, row in lines:
            axes.plot([LEVELS[i] for i in inner], row[inner], color=arm.colour, ls=arm.dashes, lw=1.7)
        axes.set(xlim=(0, 1), xticks=[0, 0.25, 0.5, 0.75, 1], xticklabels=_PERCENT)
        axes.locator_params(axis="y", nbins=5)
    return draw


def energies(arms: Sequence[Arm]) -> Picture | None:
    """The profile of the class that is recognised worst, and the mean energies on the data and on the best rival."""
    parts = [part for part in (_profile(arms), _ends(arms)) if part]
    if not parts:
        return None
    return Picture("energies", " ".join(alt for _, alt, _ in parts),
                   " ".join([*(caption for _, _, caption in parts), over_seeds(arms)]).strip(),
                   [panel for panel, _, _ in parts], [arm.key for arm in arms] if len(arms) > 1 else [], columns=2)


_Part = tuple[Panel, str, str]


def _profile(arms: Sequence[Arm]) -> _Part | None:
    arms = [arm for arm in arms if arm.of("energy", "profiles")]
    label = _hardest(arms)
    if label is None or not label.isdecimal():
        return None
    lines: list[tuple[Arm, np.ndarray]] = []
    for arm in arms:
        rows = [p[label]["energies"] for p in arm.of("energy", "profiles") if label in p]
        if rows and len({len(row) for row in rows}) == 1:
            lines.append((arm, np.mean(np.asarray(rows, float), 0)))
    if not lines or len({len(row) for _, row in lines}) != 1:
        return None
    several = any(len(profiles) > 1 for arm in arms for profiles in arm.of("energy", "profiles"))
    worst = ", the one that is recognised worst" if several else ""
    own, classes = int(label), len(lines[0][1])
    names = next((n for arm in arms for n in arm.of("class_names") if len(n) == classes), None)
    called = f"class {label}" + (f", {names[own]}" if names else "")
    words = [f"{arm.name} {show(row[own], 1)} on its own label and {show(_least(np.delete(row, own)), 1)} on the "
             "closest rival" for arm, row in lines]

    def draw(axes: Axes) -> None:
        many = classes > 40
        axes.axvspan(own - 0.45, own + 0.45, color=LINE, alpha=0.6, lw=0, zorder=0)
        for arm, row in lines:
            axes.plot(row, color=arm.colour, ls=arm.dashes, lw=1 if many else 1.6, marker="" if many else "o", ms=4)
        axes.grid(axis="x", visible=False)
        if classes <= 16:
            axes.set_xticks(range(classes))
    return (Panel(draw, f"Examples of {called}", "class", "energy", height=_energy_height(arms), left=38),
            f"Mean energy of every class over the test examples of {called}: {listed(words)}.",
            f"First the mean energy of every class over the examples of {called}{worst}; a lone dip at the label "
            "(shaded) is what learning should leave.")


def _energy_height(arms: Sequence[Arm]) -> int:
    return max(230, 80 + 38 * len(arms))


def _hardest(arms: Sequence[Arm]) -> str | None:
    """The class of the lowest mean accuracy among those that have a profile."""
    known = list(next((p for arm in arms for p in arm.of("energy", "profiles")), {}))
    rows = [row for arm in arms for row in arm.of("class_accuracy")]

    def accuracy(label: str) -> float:
        values = [row[int(label)] for row in rows if label.isdecimal() and int(label) < len(row)]
        there = [value for value in values if value is not None]
        return float(np.mean(there)) if there else math.inf
    return min(known, key=accuracy, default=None)


def _ends(arms: Sequence[Arm]) -> _Part | None:
    """How far apart the energy on the data and that of the best rival lie."""
    ends = [(arm, arm.mean("energy.label").value, arm.mean("energy.rival").value) for arm in arms]
    ends = [end for end in ends if math.isfinite(end[1]) and math.isfinite(end[2])]
    if not ends:
        return None
    names = titles([arm for arm, _, _ in ends])
    left = gutter(names)

    def draw(axes: Axes) -> None:
        axes.axvline(0, color=MUTED, lw=0.8)
        for place, (arm, label, rival) in enumerate(ends):
            axes.plot([label, rival], [-place, -place], color=arm.colour, lw=2, zorder=2)
            axes.plot(label, -place, "o", color=arm.colour, ms=8, clip_on=False)
            axes.plot(rival, -place, "o", color=arm.colour, mfc=PAPER, ms=8, mew=1.8, clip_on=False)
        name_rows(axes, names, left)
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.06)
        axes.locator_params(axis="x", nbins=5)
    words = [f"{arm.name} {show(label)} on the data, {show(rival)} on the best rival" for arm, label, rival in ends]
    return (Panel(draw, "Mean over all examples", "energy", height=_energy_height(arms), left=left),
            f"Mean energies: {listed(words)}.",
            "Then the energy on the data (filled) and the lowest among the other classes (open); the length of a line "
            "is the mean margin.")


def gutter(names: Sequence[str]) -> int:
    """Room for the names at the left of their rows; long ones stand above the row instead."""
    longest = max(map(len, names), default=0)
    return 14 + round(6.4 * longest) if longest <= _LONGEST else 4


def name_rows(axes: Axes, names: Sequence[str], left: int) -> None:
    """The names of rows at 0, -1, -2 and so on."""
    beside = left > 4
    for place, name in enumerate(map(printable, names)):
        axes.annotate(name if len(name) <= 48 else name[:47] + "…", (0, -place), (2 - left, 0) if beside else (0, 8),
                      xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=10.5,
                      va="center" if beside else "bottom")
    axes.set(ylim=(-len(names) + 0.4, 0.6 if beside else 0.85), yticks=[])


_LONGEST = 14


def reliability(arms: Sequence[Arm]) -> Picture | None:
    """Accuracy over confidence, bins summed over the seeds."""
    panels, words = [], []
    for arm, title in zip(arms, titles(arms), strict=True):
        bins = summed_bins(arm.of("calibration", "bins"))
        if not bins:
            continue
        error = mean_of(arm.of("calibration", "ece")).value
        total = sum(count for count, _, _ in bins)
        sure = sum(count * confidence for count, confidence, _ in bins) / total
        right = sum(count * accuracy for count, _, accuracy in bins) / total
        panels.append(Panel(_reliability(arm, bins, error), title, "confidence", "accuracy", height=262, left=40))
        words.append(f"{arm.name} is {show(100 * sure, 1)}% sure on average and {show(100 * right, 1)}% right, "
                     f"calibration error {show(error, 4)}")
    if not panels:
        return None
    return Picture("reliability", f"Reliability diagrams: {'; '.join(words)}.",
                   "Accuracy over confidence in bins of equal width. On the diagonal a model is as often right as it "
                   "says; below it, it is too sure. The area of a dot is the share of the examples in its bin. "
                   f"{over_seeds(arms, 'Bins summed over')}", panels)


def summed_bins(several: Sequence[Sequence[dict[str, Any]]]) -> list[tuple[int, float, float]]:
    """Count, mean confidence and accuracy of every bin that has examples, over all seeds."""
    sums: dict[float, list[float]] = {}
    for rows in several:
        for row in rows:
            if row["count"]:
                total = sums.setdefault(row["low"], [0, 0.0, 0.0])
                for i, value in enumerate((1, row["confidence"], row["accuracy"])):
                    total[i] += row["count"] * value
    return [(int(n), sure / n, right / n) for _, (n, sure, right) in sorted(sums.items())]


def _reliability(arm: Arm, bins: list[tuple[int, float, float]], error: float) -> Any:
    count, sure, right = (np.asarray(column, float) for column in zip(*bins, strict=True))

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, lw=1)
        axes.vlines(sure, sure, right, color=arm.colour, lw=1.4, alpha=0.8)
        axes.scatter(sure, right, s=14 + 260 * count / count.sum(), color=arm.colour, alpha=0.85, lw=0, zorder=3,
                     clip_on=False)
        axes.annotate(f"error {show(error, 4)}", (1, 1), (0, 8), xycoords="axes fraction", textcoords="offset points",
                      ha="right")
        axes.set(xlim=(0, 1.02), ylim=(0, 1.04), xticks=[0, 0.25, 0.5, 0.75, 1], yticks=[0, 0.25, 0.5, 0.75, 1],
                 xticklabels=_PERCENT, yticklabels=_PERCENT)
    return draw


_PERCENT = ["0", "25%", "50%", "75%", "100%"]


def _spreads(several: Sequence[dict[str, Any]]) -> bool:
    return any(len(found.get("quantiles", ())) == len(LEVELS) for found in several)


def _mean_quantiles(several: Sequence[dict[str, Any]]) -> np.ndarray:
    return finite(mean_spread([one for one in several if len(one["quantiles"]) == len(LEVELS)]))


def finite(quantiles: Sequence[float]) -> np.ndarray:
    """A masked class may leave an infinite end, which no axis can show."""
    row = np.asarray(quantiles, float)
    there = row[np.isfinite(row)]
    low, high = (float(there.min()), float(there.max())) if len(there) else (0.0, 0.0)
    return np.asarray(np.nan_to_num(row, nan=low, posinf=high, neginf=low))


def heights(row: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The share of the examples in every bin; never all 0, so that it can be scaled."""
    found = shares(row.tolist(), edges)
    return found if found.max() > 0 else np.ones_like(found)


def bin_edges(rows: Sequence[np.ndarray], include: float | None = None) -> np.ndarray:
    """Bins that hold all but the outermost examples of every row."""
    levels = np.asarray(LEVELS)
    low = min(float(np.interp(_WIDE, levels, row)) for row in rows)
    high = max(float(np.interp(1 - _WIDE, levels, row)) for row in rows)
    if include is not None:
        low, high = min(low, include), max(high, include)
    room = max(0.03 * (high - low), 0.5 if high <= low else 0.0)
    return np.linspace(low - room, high + room, _BINS + 1)


def over_seeds(arms: Sequence[Arm], words: str = "Mean over") -> str:
    """How many seeds stand behind a picture; nothing where there is one model."""
    counts = sorted({len(arm.finals) for arm in arms})
    if counts[-1] == 1:
        return ""
    return f"{words} {plural(counts[0], 'seed') if len(counts) == 1 else f'{counts[0]} to {counts[-1]} seeds'}."


def _least(values: np.ndarray) -> float:
    """The least of what there is; nothing, where every class was masked out."""
    there = values[np.isfinite(values)]
    return float(there.min()) if len(there) else math.nan
