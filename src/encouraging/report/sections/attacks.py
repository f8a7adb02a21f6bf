"""The section of the attacks: the accuracy that is left as the perturbation grows, and whether it can be believed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...attack_names import LOSSES, METHODS, SCALE_FREE
from ...engine.records import Record
from ...judge.attack_names import attack_label, size_words
from ...judge.stats import mean_of
from ...metrics import LEVELS
from ..arms import Arm, over_seeds, titles
from ..drawing.histograms import bin_edges, heights, mean_quantiles
from ..drawing.panels import Key, Panel, Picture
from ..drawing.style import BLACK, BLUE, MUTED
from ..numbers import capitalised, listed, plural, plus_minus, range_words, show
from .attack_rows import AttackRow, attack_rows, in_order, measured_words, of_most_images
from .parts import Cell, Section, Table, present

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MEDIAN = LEVELS.index(0.5)


def section(arms: Sequence[Arm]) -> Section | None:
    pictures = present(picture(arms), margin_picture(arms))
    if not pictures:
        return None
    records = [record for arm in arms for record in arm.records]
    return Section("attacks", "Under attack", list(_lead(records)), pictures,
                   [*_flattering_table(records), *_tables(arms)])


def _lead(records: Sequence[Record]) -> Iterable[str]:
    """Whether the numbers below can be believed, before they are shown."""
    if not any(record.numbers.get("attacks") for record in records):
        return
    verdicts = [verdict for record in records for verdict in _verdicts(record)]
    if not verdicts:
        yield ("Attacks that follow the gradient of cross-entropy can overestimate the robustness of models with large "
               "margins, and there is no other attack here to compare them with: `encouraging attack` runs them all.")
    elif flatteries := flattering(records):
        yield flatteries[0].words + (" The table of overestimates has the others." if len(flatteries) > 1 else "")
    else:
        yield ("No sign of masked gradients: attacks that do not depend on the scale of the logits find at most one "
               "point more than those that follow the gradient of cross-entropy.")


@dataclass(frozen=True)
class Flattery:
    """An attack by cross-entropy that makes an arm look more robust than it is, at the epsilon where it does so most.

    ``accuracy`` is what it leaves and ``robust`` what ``others`` leave together, as means over ``runs``; ``seen`` is
    the number of them in which the two differ.
    """

    arm: str
    attack: str
    eps: float
    accuracy: float
    robust: float
    others: tuple[str, ...]
    seen: int
    runs: int

    @property
    def words(self) -> str:
        return (f"Warning: {attack_label(self.attack)} makes {self.arm} look more robust than it is. At epsilon "
                f"{size_words(self.eps)} it leaves {show(self.accuracy, 1)}% of the test images classified correctly, "
                f"but {listed([attack_label(name) for name in self.others])} together leave "
                f"{show(self.robust, 1)}%: report that number. Seen in {self.seen} of {plural(self.runs, 'run')}; the "
                "numbers are means over all of them.")


def flattering(records: Sequence[Record]) -> list[Flattery]:
    """Every arm and attack by cross-entropy that attacks by other losses, or AutoAttack, contradict; worst first."""
    by_attack: dict[tuple[str, str], dict[float, list[Mapping[str, Any]]]] = {}
    for record in records:
        for verdict in _verdicts(record):
            by_attack.setdefault((record.arm, verdict["attack"]), {}).setdefault(verdict["eps"], []).append(verdict)
    flatteries = []
    for (arm, attack), by_eps in by_attack.items():
        excess = {eps: sum(verdict["accuracy"] - verdict["robust"] for verdict in verdicts if verdict["flattered"])
                  for eps, verdicts in by_eps.items()}
        eps = max(excess, key=excess.__getitem__)
        if excess[eps] > 0:
            verdicts = by_eps[eps]
            before, after = (statistics.fmean(verdict[key] for verdict in verdicts) for key in ("accuracy", "robust"))
            names = dict.fromkeys(name for verdict in verdicts for name in verdict["compared_with"])
            flatteries.append(Flattery(arm, attack, eps, before, after, tuple(names),
                                       sum(bool(verdict["flattered"]) for verdict in verdicts), len(verdicts)))
    return sorted(flatteries, key=lambda flattery: flattery.robust - flattery.accuracy)


def _flattering_table(records: Sequence[Record]) -> list[Table]:
    flatteries = flattering(records)
    rows = [[Cell(attack_label(flattery.attack)), Cell(flattery.arm, words=True), Cell(size_words(flattery.eps)),
             Cell(show(flattery.accuracy, 1)), Cell(show(flattery.robust, 1)),
             Cell(f"{flattery.seen} of {flattery.runs}")]
            for flattery in flatteries]
    return [Table("Overestimates: attacks by cross-entropy that leave an accuracy at least one point higher than "
                  "attacks that do not depend on the scale of the logits. In percent, at the epsilon where the "
                  "difference is largest.",
                  ["attack", "arm", "epsilon", "it leaves", "others leave", "runs"], rows)] if rows else []


def _verdicts(record: Record) -> list[Mapping[str, Any]]:
    verdicts = (record.attacks or {}).get("verdicts", [])
    return [verdict for verdict in verdicts if isinstance(verdict, Mapping)]


def rows_of(arm: Arm) -> list[AttackRow]:
    """What was measured of an arm under attack."""
    attacks = {record.seed: record.attacks for record in arm.records}
    return attack_rows(arm.name, ((numbers, attacks.get(seed)) for seed, numbers in arm.finals.items()))


def picture(arms: Sequence[Arm], attacks: Sequence[str] = ()) -> Picture | None:
    """One panel per attack, in the order of ``attacks``; without them all are drawn, but of the scale-free losses of a
    method only the one that counts them together. Lines of one panel are on the same images."""
    rows, left_out = of_most_images(in_order(row for arm in arms for row in rows_of(arm)))
    names = list(dict.fromkeys(row.attack for row in rows))
    hidden = {method.by(name) for method in METHODS.values() for name, loss in LOSSES.items()
              if loss.scale_free and method.scale_free in names}
    if attacks:
        rows, left_out = [row for name in attacks for row in rows if row.attack == name], []
    else:
        rows, left_out = ([row for row in some if row.attack not in hidden] for some in (rows, left_out))
    if not rows:
        return None
    by_name = {arm.name: arm for arm in arms}
    panels, words = [], []
    for name in dict.fromkeys(row.attack for row in rows):
        lines = [(by_name[row.arm], {size: float(np.mean(values)) for size, values in row.points.items()})
                 for row in rows if row.attack == name]
        label = attack_label(name)
        panels.append(Panel(_lines(lines), label, "size of the perturbation", "accuracy, %", height=236))
        words += [f"under {label} of size {size_words(max(line))}, {arm.name} keeps {show(line[max(line)])}%"
                  for arm, line in lines]
    drawn = {row.arm for row in rows}
    scale_free = ("" if not any(row.attack.endswith(SCALE_FREE) for row in rows) else
                  " Scale-free counts the images that survive both the attack by margin and the one by DLR, whose "
                  "steps do not depend on the scale of the logits.")
    measured = measured_words(rows)
    return Picture("attacks", f"Accuracy under attack: {listed(words)}.",
                   "Accuracy on inputs that were changed to fool the model, by the size of the change. Sizes are drawn "
                   f"at equal distances, not to scale.{scale_free} {capitalised(measured)}."
                   + _left_out(left_out), panels, [arm.key for arm in arms if arm.name in drawn])


def _left_out(rows: Sequence[AttackRow]) -> str:
    """What a figure does not show, because it was measured on fewer images."""
    sizes_of: dict[tuple[str, int | None], dict[float, None]] = {}
    for row in rows:
        sizes_of.setdefault((row.attack, row.images), {}).update(dict.fromkeys(row.points))
    words = [f"{attack_label(name)} at {listed([size_words(size) for size in sorted(sizes)])}"
             + (f" ({images} images)" if images else "") for (name, images), sizes in sizes_of.items()]
    return f" Not drawn, because measured on fewer images: {listed(words)}." if words else ""


def _lines(lines: Sequence[tuple[Arm, dict[float, float]]]) -> Any:
    sizes = sorted({size for _, line in lines for size in line})

    def draw(axes: Axes) -> None:
        # Sizes are drawn at equal distances: grids are even, or grow by a factor.
        for arm, line in lines:
            axes.plot([sizes.index(size) for size in line], list(line.values()), color=arm.colour, ls=arm.dashes,
                      lw=1.8, marker="o", ms=4, gid=arm.tag)
        step = math.ceil(len(sizes) / 8)
        axes.set(ylim=(0, 102), xlim=(-0.3, len(sizes) - 0.7), xticks=range(0, len(sizes), step),
                 xticklabels=[size_words(size) for size in sizes[::step]])
    return draw


def _tables(arms: Sequence[Arm]) -> list[Table]:
    """All numbers, one table per grid of epsilons and number of images; seeds have a column where they differ."""
    rows = in_order(row for arm in arms for row in rows_of(arm))
    tables = []
    for grid, images in dict.fromkeys((tuple(row.points), row.images) for row in rows):
        members = [row for row in rows if (tuple(row.points), row.images) == (grid, images)]
        differ = len({count for row in members for count in row.counts}) > 1
        body = [[Cell(attack_label(row.attack)), Cell(row.arm, words=True), *([Cell(range_words(row.counts))] * differ),
                 *(Cell(_mean(row.points[size])) for size in grid)] for row in members]
        spread = " ± standard deviation" if any(count > 1 for row in members for count in row.counts) else ""
        tables.append(Table(f"Accuracy in percent by the size of the perturbation, {measured_words(members)}{spread}.",
                            ["attack", "arm", *(["seeds"] * differ), *map(size_words, grid)], body))
    return tables


def _mean(values: Sequence[float]) -> str:
    mean = mean_of(values)
    return plus_minus(mean.value, mean.std, 1)


def margin_picture(arms: Sequence[Arm]) -> Picture | None:
    """Margins of adversarially trained models on clean test images and under attack, one panel per arm."""
    panels, words, drawn = [], [], []
    for arm, title in zip(arms, titles(arms), strict=True):
        rows = [row for path in (("margin",), ("attacked", "margin"))
                if (row := mean_quantiles(arm.diagnosed(*path))) is not None]
        if len(rows) < 2:
            continue
        edges = bin_edges(rows, include=0.0)
        panels.append(Panel(_two_histograms(edges, *(heights(row, edges) for row in rows)), title, "margin, in logits",
                            height=176, left=2, tag=arm.tag))
        drawn.append(arm)
        words.append(f"{arm.name} {show(rows[0][_MEDIAN])} on clean images and {show(rows[1][_MEDIAN])} under attack")
    if not panels:
        return None
    return Picture("attacked-margins", f"Histograms of the margin. Medians: {listed(words)}.",
                   "Margins of adversarially trained models on the test images as they are, and after the attack that "
                   f"they were trained with. Left of 0 an image is misclassified. {over_seeds(drawn)}", panels,
                   [Key("clean images", BLUE, kind="patch"), Key("under attack", MUTED, kind="patch")])


def _two_histograms(edges: np.ndarray, clean: np.ndarray, attacked: np.ndarray) -> Any:
    def draw(axes: Axes) -> None:
        axes.stairs(attacked / attacked.max(), edges, fill=True, color=MUTED, alpha=0.55, lw=0)
        axes.stairs(clean / clean.max(), edges, fill=True, color=BLUE, alpha=0.6, lw=0)
        axes.axvline(0, color=BLACK, lw=0.9)
        axes.grid(False)
        axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.05), yticks=[])
    return draw
