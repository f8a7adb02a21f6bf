"""The section of a sweep: every metric over the values that a key was given, beside the arms it is compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...engine import Metric
from ...judge.claims import ClaimRow
from ...judge.metric_book import MetricBook
from ...recipes.sweep import references, value_word, values_words
from ..arms import Arm, Group
from ..drawing.panels import WIDTH, Key, Panel, Picture, printable, within
from ..drawing.style import BLUE, Dash
from ..numbers import capitalised, listed, plus_minus, show
from .claim_words import namer, sweep_tally
from .parts import Cell, Section, Table, present, with_unit
from .sweep_verdicts import difference_words, judged, labels_of, verdict_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAPS = 4  # at most so many metrics are drawn as maps
_FAR_APART = 20  # from this ratio of the largest to the smallest value on, the axis is logarithmic
_NOTE = ("All values are judged together, so their verdicts can be trusted however many there are. The best value "
         "was found on the same test data; whether it beats the other values is not tested.")


@dataclass(frozen=True)
class Sweep:
    """One or two keys, the arms that have other values of them, and the arms they are compared with."""

    keys: tuple[str, ...]
    arms: Sequence[Arm]
    references: Sequence[Arm]
    copied: Sequence[Arm] = ()  # the arms of which those of a sweep are copies, where they were trained too

    def line(self, base: str) -> Arm:
        """The arm whose look a line has: the one that it is named after, or else its first."""
        own = [arm for arm in self.arms if arm.swept and arm.swept.arm == base]
        return next((arm for arm in (*own, *self.copied) if arm.name == base), own[0])

    def strokes(self) -> dict[str, str | Dash]:
        """The dashes of all lines, by name of the arm: references are dashed and lines are not, unless the figure has
        more of them than there are colours."""
        lines = [*((arm, "-") for arm in map(self.line, self.bases)), *((arm, "--") for arm in self.references)]
        shared = len({arm.colour for arm, _ in lines}) < len(lines)
        return {arm.name: arm.dashes if shared else dashes for arm, dashes in lines}

    @property
    def bases(self) -> list[str]:
        return list(dict.fromkeys(arm.swept.arm for arm in self.arms if arm.swept))

    def points(self, base: str) -> list[tuple[tuple[Any, ...], Arm]]:
        """The values and the arm of every point, in the order of the values."""
        points = [(tuple(arm.swept.values[key] for key in self.keys), arm) for arm in self.arms
                  if arm.swept and arm.swept.arm == base]
        return sorted(points, key=lambda point: tuple(map(sort_key, point[0])))

    def values(self, number: int) -> list[Any]:
        """All values of one of the keys."""
        by_key = {sort_key(value): value for base in self.bases for values, _ in self.points(base)
                  for value in [values[number]]}
        return [by_key[key] for key in sorted(by_key)]


def sweeps_of(group: Group) -> list[Sweep]:
    """The sweeps among the runs of a recipe."""
    by_keys: dict[tuple[str, ...], list[Arm]] = {}
    for arm in group.arms:
        if arm.swept:
            by_keys.setdefault(tuple(arm.swept.values), []).append(arm)
    unswept = [arm for arm in group.arms if not arm.swept]
    return [Sweep(keys, arms, _references(group, arms), unswept) for keys, arms in by_keys.items()]


def _references(group: Group, swept: Sequence[Arm]) -> list[Arm]:
    """The arms with which these are compared."""
    names = references(group.recipe, [arm.swept.arm for arm in swept if arm.swept]) if group.recipe else []
    return [arm for arm in group.arms if arm.name in names]


def sections(group: Group) -> list[Section]:
    """One section per sweep."""
    return [sweep_section(f"sweep-{number}", "Sweep of {}", sweep, group.metrics, _NOTE, judged(group, sweep.arms))
            for number, sweep in enumerate(sweeps_of(group), 1)]


def sweep_section(name: str, title: str, sweep: Sweep, book: MetricBook, note: str,
                  rows: Sequence[ClaimRow] = ()) -> Section:
    """Answer, picture and tables; the braces of the title are for the keys, ``rows`` compare the values with the
    baseline."""
    metrics = book.shown(lambda path: any(arm.values(path) for arm in sweep.arms))
    pictures = present((_map if len(sweep.keys) > 1 else lines_over)(name, sweep, metrics))
    return Section(name, title.format(listed([_name(key) for key in sweep.keys])),
                   [_best(sweep, book.compared, rows), note],
                   pictures, [*verdict_table(rows, labels_of(sweep.arms), namer(book)(book.compared.path)),
                              _table(sweep, metrics)])


def _best(sweep: Sweep, primary: Metric, rows: Sequence[ClaimRow]) -> str:
    """The answer of the sweep: the verdicts, where the primary metric is best, and what the others have."""
    words, alone = [], []
    by_arm, labels = {row.claim.arm: row for row in rows}, labels_of(sweep.arms)
    for base in sweep.bases:
        points = [(values, arm) for values, arm in sweep.points(base) if arm.values(primary.path)]
        if len(points) == 1:
            alone.append(f"{base} {_reached(points[0][1], primary)}")
        elif points:
            sign = 1 if primary.better == "higher" else -1
            values, arm = max(points, key=lambda point: sign * point[1].mean(primary.path).value)
            pairs = zip(sweep.keys, values, strict=True)
            where = listed([f"{_name(key)} = {value_word(value)}" for key, value in pairs])
            beside = f"; {difference_words(by_arm[arm.name], labels)}" if arm.name in by_arm else ""
            words.append(f"{base} at {where} ({_reached(arm, primary)}{beside})")
    text = f"{sweep_tally(rows)} " if rows else ""
    text += f"The best mean {primary.words} over these values: {listed(words)}." if words else ""
    reference_words = [f"{arm.name} {_reached(arm, primary)}" for arm in sweep.references if arm.values(primary.path)]
    text += f" With one value alone: {listed(alone)}." if alone else ""
    return (text + (f" For comparison: {listed(reference_words)}." if reference_words else "")).strip()


def _reached(arm: Arm, metric: Metric) -> str:
    mean = arm.mean(metric.path)
    return f"{plus_minus(mean.value, mean.std, metric.digits)}{metric.unit}, n = {mean.n}"


def _table(sweep: Sweep, metrics: Sequence[Metric]) -> Table:
    def row(arm: Arm, name: str, small: str = "") -> list[Cell]:
        means = [arm.mean(m.path) for m in metrics]
        return [Cell(name, small), Cell(str(len(arm.finals))),
                *(Cell(plus_minus(mean.value, mean.std, m.digits)) for mean, m in zip(means, metrics, strict=True))]
    rows = [row(arm, values_words(dict(zip(sweep.keys, values, strict=True))), arm.name)
            for base in sweep.bases for values, arm in sweep.points(base)]
    return Table("Mean over the seeds ± standard deviation; the names of the arms are below their values.",
                 ["", "n", *map(with_unit, metrics)],
                 [*rows, *(row(arm, arm.name) for arm in sweep.references)])


def lines_over(name: str, sweep: Sweep, metrics: Sequence[Metric]) -> Picture | None:
    """One panel per metric: mean and deviation over the value; arms without other values are lines across."""
    key, values = _name(sweep.keys[0]), sweep.values(0)
    panels = [Panel(_over_values(sweep, m, values), capitalised(m.words), key, m.unit, height=236, left=46)
              for m in metrics]
    if not panels:
        return None
    first = metrics[0]
    words = []
    for base in sweep.bases:
        reached = [f"{value_word(point[0])}: {show(arm.mean(first.path).value, first.digits)}"
                   for point, arm in sweep.points(base) if arm.values(first.path)]
        words.append(f"{base} has {', '.join(reached)}")
    words += [f"{arm.name} has {show(arm.mean(first.path).value, first.digits)}" for arm in sweep.references
              if arm.values(first.path)]
    strokes = sweep.strokes()
    keys = [Key(base, arm.colour, strokes[arm.name]) for base in sweep.bases for arm in [sweep.line(base)]]
    return Picture(name, f"{capitalised(first.words)} over {key}: {'; '.join(words)}.",
                   "Mean over the seeds by the value; the band is one standard deviation to either side."
                   + (" Lines without points: arms without this key, with the same band." if sweep.references else ""),
                   panels, [*keys, *(Key(arm.name, arm.colour, strokes[arm.name]) for arm in sweep.references)])


def _over_values(sweep: Sweep, m: Metric, values: Sequence[Any]) -> Callable[[Axes], None]:
    x_of, log = positions(values)
    strokes = sweep.strokes()

    def draw(axes: Axes) -> None:
        for arm in sweep.references:
            mean = arm.mean(m.path)
            if mean.n:
                axes.axhline(mean.value, color=arm.colour, ls=strokes[arm.name], lw=1.4)
                if math.isfinite(mean.std):
                    axes.axhspan(mean.value - mean.std, mean.value + mean.std, color=arm.colour, alpha=0.1, lw=0)
        for base in sweep.bases:
            points = [(x_of[sort_key(point[0])], arm.mean(m.path), arm) for point, arm in sweep.points(base)
                      if arm.values(m.path)]
            if points:
                line = sweep.line(base)
                colour = line.colour
                x = [x_value for x_value, _, _ in points]
                low, high = ([mean.value + sign * (mean.std if math.isfinite(mean.std) else 0) for _, mean, _ in points]
                             for sign in (-1, 1))
                if len(x) > 1:
                    axes.fill_between(x, low, high, color=colour, alpha=0.16, lw=0)
                else:
                    axes.vlines(x, low, high, color=colour, alpha=0.5, lw=2)
                axes.plot(x, [mean.value for _, mean, _ in points], color=colour, ls=strokes[line.name], lw=1.8,
                          marker="o", ms=5)
        if log:
            axes.set_xscale("log")
            axes.minorticks_off()
        ticks = [x_of[sort_key(value)] for value in values]
        axes.set_xticks(*_readable(ticks, [value_word(value) for value in values], log))
        axes.set_ylim(within(axes.get_ylim(), m.low, m.high))
        axes.locator_params(axis="y", nbins=5)
    return draw


def positions(values: Sequence[Any]) -> tuple[dict[Any, float], bool]:
    """Where values are on the axis, and whether it is logarithmic; words are at equal distances.

    >>> positions([0.001, 0.1])[1], positions(["a", "b"])[0]
    (True, {(1, 'a'): 0.0, (1, 'b'): 1.0})
    """
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if not numeric:
        return {sort_key(value): float(number) for number, value in enumerate(values)}, False
    return ({sort_key(value): float(value) for value in values},
            min(values) > 0 and (max(values) / min(values) >= _FAR_APART or _doubles(values)))


def _doubles(values: Sequence[float]) -> bool:
    """Whether the ratios of neighbours are more alike than their differences, as those of learning rates are.

    >>> _doubles([0.0125, 0.025, 0.05, 0.1]), _doubles([0.5, 0.75, 1.0]), _doubles([1, 2])
    (True, False, False)
    """
    ordered = sorted(values)
    steps = [after - before for before, after in pairwise(ordered) if after > before]
    ratios = [math.log(after / before) for before, after in pairwise(ordered) if after > before]
    return len(steps) > 1 and max(ratios) / min(ratios) < max(steps) / min(steps)


def _readable(ticks: Sequence[float], words: Sequence[str], log: bool) -> tuple[list[float], list[str]]:
    """Ticks at the values, without those whose label would overlap the one before."""
    if log:
        drawn_at = [math.log(position) for position in ticks]
    else:
        drawn_at = list(ticks)
    span = (drawn_at[-1] - drawn_at[0]) or 1.0
    kept: list[int] = []
    for i, position in enumerate(drawn_at):
        room = 3.4 * (len(words[i]) + len(words[kept[-1]] if kept else "")) + 5
        if not kept or (WIDTH - 70) * (position - drawn_at[kept[-1]]) / span >= room:
            kept.append(i)
    return [ticks[i] for i in kept], [words[i] for i in kept]


def _map(name: str, sweep: Sweep, metrics: Sequence[Metric]) -> Picture | None:
    """One panel per metric and arm: its mean for every pair of values."""
    panels, words = [], []
    across, down = sweep.values(0), sweep.values(1)
    for m in metrics[:MAPS]:
        for base in sweep.bases:
            cells = {tuple(map(sort_key, point)): arm.mean(m.path).value for point, arm in sweep.points(base)
                     if arm.values(m.path)}
            if not cells:
                continue
            title = capitalised(m.words) + (f", {base}" if len(sweep.bases) > 1 else "")
            left = 12 + round(6.2 * max(len(value_word(value)) for value in down))
            panels.append(Panel(_cells(cells, across, down, m), title, _name(sweep.keys[0]), _name(sweep.keys[1]),
                                height=64 + 30 * len(down), left=left))
            if m is metrics[0]:
                words += [f"{base} at {listed([f'{_name(k)} = {value_word(v)}' for k, v in pairs])} "
                          f"{show(arm.mean(m.path).value, m.digits)}" for point, arm in sweep.points(base)
                          if arm.values(m.path) for pairs in [list(zip(sweep.keys, point, strict=True))]]
    if not panels:
        return None
    first = metrics[0]
    reference_words = [f"{arm.name} {show(arm.mean(first.path).value, first.digits)}" for arm in sweep.references
                       if arm.values(first.path)]
    return Picture(name, f"{capitalised(first.words)} by {_name(sweep.keys[0])} and {_name(sweep.keys[1])}: "
                   f"{'; '.join([*words, *reference_words])}.",
                   "Mean over the seeds for every pair of values; the stronger the colour, the better; the frame is "
                   "around the best." + (f" {capitalised(first.words)} without these keys: {listed(reference_words)}."
                                         if reference_words else ""), panels, columns=2)


def _cells(cells: dict[tuple[Any, ...], float], across: Sequence[Any], down: Sequence[Any],
           m: Metric) -> Callable[[Axes], None]:
    sign = 1 if m.better == "higher" else -1
    ordered = sorted(cells.values(), key=lambda value: sign * value)
    worst, best = ordered[0], ordered[-1]

    def draw(axes: Axes) -> None:
        from matplotlib.patches import Rectangle

        for column, x in enumerate(across):
            for row, y in enumerate(down):
                value = cells.get((sort_key(x), sort_key(y)))
                if value is None:
                    continue
                goodness = (value - worst) / (best - worst) if best != worst else 1.0
                axes.add_patch(Rectangle((column - 0.48, row - 0.45), 0.96, 0.9, color=BLUE, lw=0,
                                         alpha=0.06 + 0.42 * goodness))
                if value == best:
                    axes.add_patch(Rectangle((column - 0.48, row - 0.45), 0.96, 0.9, fill=False, ec=BLUE, lw=2))
                axes.annotate(show(value, m.digits), (column, row), ha="center", va="center", fontsize=10.5)
        axes.grid(False)
        axes.spines["bottom"].set_visible(False)
        axes.set(xlim=(-0.55, len(across) - 0.45), ylim=(-0.6, len(down) - 0.4))
        axes.set_xticks(range(len(across)), [printable(value_word(value)) for value in across])
        axes.set_yticks(range(len(down)), [printable(value_word(value)) for value in down])
    return draw


def _name(key: str) -> str:
    """A key as a reader knows it: ``train.lr`` is the learning rate's own key, ``lr``."""
    return key.rpartition(".")[2]


def sort_key(value: Any) -> tuple[int, Any]:
    """Numbers by size, then words; usable as a key where a list is not."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, float(value)) if numeric else (1, str(value))
