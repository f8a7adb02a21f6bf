"""The section of the energies: minus the logits, on the label and on its rivals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..arms import Arm, over_seeds, titles
from ..drawing.panels import WIDTH, Panel, Picture, printable
from ..drawing.rows import gutter, name_rows
from ..drawing.style import LINE, MUTED, PAPER
from ..numbers import listed, show
from .parts import Section, pictured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NAMED = 24  # classes whose names have room on the axis
_LONGEST, _LETTER = 14, 6.4  # letters of a name there, and the width of one in pixels
_Part = tuple[Panel, str, str]  # a panel, its finding in words, and its part of the caption


def section(arms: Sequence[Arm]) -> Section | None:
    return pictured(picture(arms), "energy", "Energies",
                    "The energy of a class is minus its logit. It should be low for the label of an example and high "
                    "for every other class.")


def picture(arms: Sequence[Arm]) -> Picture | None:
    """The profile of the class with the lowest accuracy, or of those that the recipe names, and the mean energies on
    the data and on the best rival."""
    chosen = next((labels for arm in arms for labels in arm.diagnosed("profiled")), None)
    profiles = [_profile(arms)] if chosen is None else [_profile(arms, str(label)) for label in chosen]
    parts = [part for part in profiles if part]
    parts += [part for part in [_means(arms, ("", "Second", "Last")[min(len(parts), 2)])] if part]
    if not parts:
        return None
    return Picture("energies", " ".join(alt for _, alt, _ in parts),
                   " ".join([*(caption for _, _, caption in parts), over_seeds(arms)]).strip(),
                   [panel for panel, _, _ in parts], [arm.key for arm in arms] if len(arms) > 1 else [], columns=2)


def _profile(arms: Sequence[Arm], chosen: str | None = None) -> _Part | None:
    arms = [arm for arm in arms if arm.diagnosed("energy", "profiles")]
    label = _hardest_class(arms) if chosen is None else chosen
    if label is None or not label.isdecimal():
        return None
    lines: list[tuple[Arm, np.ndarray]] = []
    for arm in arms:
        rows = [profiles[label]["energies"] for profiles in arm.diagnosed("energy", "profiles") if label in profiles]
        if rows and len({len(row) for row in rows}) == 1:
            lines.append((arm, np.mean(np.asarray(rows, float), 0)))
    if not lines or len({len(row) for _, row in lines}) != 1:
        return None
    is_hardest = chosen is None and label == _hardest_class(arms, of_all=True)
    hardest = ", the class with the lowest accuracy" if is_hardest else ""
    label_index, classes = int(label), len(lines[0][1])
    names = next((n for arm in arms for n in arm.diagnosed("class_names") if len(n) == classes), None)
    class_name = f"class {label}" + (f", {names[label_index]}" if names else "")
    named, below = _class_ticks(names or [], classes)
    words = [f"{arm.name} {show(row[label_index], 1)} on its own label and "
             f"{show(_lowest(np.delete(row, label_index)), 1)} on the closest rival" for arm, row in lines]

    many = classes > _MOST_NAMED

    def draw(axes: Axes) -> None:
        axes.grid(axis="x", visible=False)
        if many:
            _draw_sorted(axes, lines, label_index)
            return
        axes.axvspan(label_index - 0.45, label_index + 0.45, color=LINE, alpha=0.6, lw=0, zorder=0)
        for arm, row in lines:
            axes.plot(row, color=arm.colour, ls=arm.dashes, lw=1.6, marker="o", ms=4, gid=arm.tag)
        if named:
            axes.set_xticks(range(classes), named)
            if below:
                axes.tick_params(axis="x", labelrotation=90, labelsize=9)
        elif classes <= 16:
            axes.set_xticks(range(classes))
    order = "at the left the label’s, then the other classes’ from the lowest to the highest" if many else \
        "ideally there is a single dip, at the label (shaded)"
    return (Panel(draw, f"Examples of {class_name}", "other classes, lowest first" if many else "class", "energy",
                  height=_height(arms) + below, left=38, below=below),
            f"Mean energy of every class over the test examples of {class_name}: {listed(words)}.",
            f"{'First panel' if chosen is None else f'Panel of {class_name}'}: the mean energy of every class over the "
            f"examples of {class_name}{hardest}; {order}.")


def _draw_sorted(axes: Axes, lines: Sequence[tuple[Arm, np.ndarray]], label: int) -> None:
    """Lines over the numbers of many classes would cross at every class: each arm has its classes in order."""
    classes = len(lines[0][1])
    at_label = -0.05 * classes
    axes.axvspan(at_label - 0.02 * classes, at_label + 0.02 * classes, color=LINE, alpha=0.6, lw=0, zorder=0)
    for arm, row in lines:
        rivals = np.sort(np.delete(row, label))
        axes.plot(np.arange(1, classes), rivals, color=arm.colour, ls=arm.dashes, lw=1.6, gid=arm.tag)
        axes.plot([at_label], [row[label]], "o", color=arm.colour, ms=5, gid=arm.tag)
    ticks = [classes // 4, classes // 2, 3 * classes // 4, classes - 1]
    axes.set_xticks([at_label, *ticks], ["label", *map(str, ticks)])


def _class_ticks(names: Sequence[str], classes: int) -> tuple[list[str], int]:
    """The names of the classes for the ticks, and the further room that they take where they are turned; none where
    there are too many classes, or where the names are their numbers."""
    if not names or classes > _MOST_NAMED or list(names) == [str(label) for label in range(classes)]:
        return [], 0
    short = [printable(name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…") for name in names]
    longest = max(map(len, short))
    return short, 0 if _LETTER * longest < (WIDTH - 48) / classes else round(5.2 * longest)


def _height(arms: Sequence[Arm]) -> int:
    return max(230, 80 + 38 * len(arms))


def _hardest_class(arms: Sequence[Arm], *, of_all: bool = False) -> str | None:
    """The class of the lowest mean accuracy among those that have a profile, or among all that have examples: with many
    classes few have a profile."""
    rows = [row for arm in arms for row in arm.diagnosed("class_accuracy")]
    if of_all:
        candidates = [str(label) for label in range(max(map(len, rows), default=0))]
    else:
        candidates = list(next((profiles for arm in arms for profiles in arm.diagnosed("energy", "profiles")), {}))

    def accuracy(label: str) -> float:
        values = [row[int(label)] for row in rows if label.isdecimal() and int(label) < len(row)]
        numbers = [value for value in values if value is not None]
        return float(np.mean(numbers)) if numbers else math.inf
    if of_all and sum(math.isfinite(accuracy(label)) for label in candidates) < 2:
        return None
    return min(candidates, key=accuracy, default=None)


def _means(arms: Sequence[Arm], ordinal: str) -> _Part | None:
    """How far apart the energy on the data and that of the best rival are; ``ordinal`` says which panel it is."""
    energies = [(arm, arm.mean("energy.label").value, arm.mean("energy.rival").value) for arm in arms]
    energies = [row for row in energies if math.isfinite(row[1]) and math.isfinite(row[2])]
    if not energies:
        return None
    names = titles([arm for arm, _, _ in energies])
    left = gutter(names)

    def draw(axes: Axes) -> None:
        axes.axvline(0, color=MUTED, lw=0.8)
        for row, (arm, label, rival) in enumerate(energies):
            axes.plot([label, rival], [-row, -row], color=arm.colour, lw=2, zorder=2, gid=arm.tag)
            axes.plot(label, -row, "o", color=arm.colour, ms=8, clip_on=False, gid=arm.tag)
            axes.plot(rival, -row, "o", color=arm.colour, mfc=PAPER, ms=8, mew=1.8, clip_on=False, gid=arm.tag)
        name_rows(axes, names, left)
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.06)
        axes.locator_params(axis="x", nbins=5)
    words = [f"{arm.name} {show(label)} on the data, {show(rival)} on the best rival" for arm, label, rival in energies]
    return (Panel(draw, "Mean over all examples", "energy", height=_height(arms), left=left),
            f"Mean energies: {listed(words)}.",
            f"{f'{ordinal} panel: the' if ordinal else 'The'} energy on the data (filled) and the lowest among the "
            "other classes (open); the length of a line is the mean margin.")


def _lowest(values: np.ndarray) -> float:
    """The lowest finite value; NaN where every class was masked out."""
    finite = values[np.isfinite(values)]
    return float(finite.min()) if len(finite) else math.nan
