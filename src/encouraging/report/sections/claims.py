"""The section of the claims: every one with its verdict, whichever way it went."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...engine import Metric
from ...judge.claims import ClaimRow, claim_rows
from ...judge.metric_book import MetricBook
from ...judge.stats import Comparison, mean_of
from ..arms import Group
from ..drawing.panels import Panel, Picture
from ..drawing.style import BLACK, BLUE, MUTED
from ..numbers import between, enough_digits, listed, plural, show, signed
from .splits import beside_splits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VERDICTS = ("reproduced", "contradicted", "undecided")
NOT_MEASURED = "not measured"
SKEWED = "the differences look skewed, and such verdicts are wrong more often than stated"


@dataclass(frozen=True)
class ClaimView:
    """A claim as the page shows it."""

    sentence: str
    verdict: str
    facts: Sequence[tuple[str, str]]
    picture: Picture | None


@dataclass(frozen=True)
class Claims:
    """All claims of a recipe, and one picture of them for files."""

    views: Sequence[ClaimView]
    summary: str
    together: Picture | None

    def count(self, verdict: str) -> int:
        return sum(view.verdict == verdict for view in self.views)


def claims_of(group: Group) -> Claims | None:
    """None where the recipe is not known, or where it claims nothing."""
    if group.recipe is None or not group.recipe.claims:
        return None
    rows = claim_rows(group.recipe, group.finals, group.metrics)
    ranges = {path: _common_range([row.comparison for row in rows if row.claim.metric == path])
              for path in {row.claim.metric for row in rows}}
    views = [_view(number, row, ranges[row.claim.metric], group.metrics) for number, row in enumerate(rows, 1)]
    pictures = [view.picture for view in views if view.picture]
    together = Picture("claims", " ".join(picture.alt for picture in pictures), "",
                       [panel for picture in pictures for panel in picture.panels], columns=1) if pictures else None
    return beside_splits(Claims(views, _summary(rows, group.metrics), together), rows, group.recipe.overlap)


def _view(number: int, row: ClaimRow, axis: tuple[float, float], book: MetricBook) -> ClaimView:
    claim, comparison = row.claim, row.comparison
    m = row.metric
    sentence = f"{claim.arm} beats {claim.beats} on {_the(m, book)}" + (" (lower is better)" if claim.better == "lower"
                                                                  else "")
    level = "" if math.isnan(comparison.low) else f" at {100 * comparison.level:.4g}%"
    digits = enough_digits([comparison.mean], m.digits)
    theirs, ours = (show(mean_of(values).value, m.digits) for values in (row.pairs.theirs, row.pairs.ours))
    facts = [(f"{claim.beats} → {claim.arm}", f"{theirs} → {ours}"),
             ("mean difference", signed(comparison.mean, digits) + (m.unit and f" {_points(m)}")),
             (f"interval{level}", _interval(row, m)),
             ("permutation p", show(comparison.p_permutation, 3)), ("seeds", str(comparison.n))]
    if claim.beats in claim.paper and claim.arm in claim.paper:
        facts.append(("paper", f"{claim.paper[claim.beats]:g} → {claim.paper[claim.arm]:g}".replace("-", "−")))
    if comparison.skewed:
        facts.append(("warning", SKEWED))
    if not comparison.n:
        return ClaimView(sentence, NOT_MEASURED, [("seeds", "0: no seed has been run with both arms")], None)
    alt = (f"{sentence}: {comparison.verdict}. Mean paired difference {signed(comparison.mean, m.digits)}, interval "
           f"{between(comparison.low, comparison.high, m.digits)}, {plural(comparison.n, 'seed')}.")
    panel = claim_panel(comparison, axis, sentence)
    return ClaimView(sentence, comparison.verdict, facts, Picture(f"claim-{number}", alt, "", [panel]))


def _interval(row: ClaimRow, m: Metric) -> str:
    comparison = row.comparison
    if comparison.n > 1 and math.isnan(comparison.low):
        return "none: all differences are equal" if math.isfinite(comparison.mean) else "none: a number is not finite"
    return between(comparison.low, comparison.high, m.digits)


def _the(m: Metric, book: MetricBook) -> str:
    return m.words if book.is_named_alone(m) else f"the {m.words}"


def _points(m: Metric) -> str:
    return "points" if m.unit == "%" else m.unit


def claim_panel(comparison: Comparison, axis: tuple[float, float], title: str) -> Panel:
    """The paired differences of a claim, their mean and interval against 0, on an axis that its metric's claims share.
    """
    def draw(axes: Axes) -> None:
        axes.axvline(0, color=BLACK, lw=1)
        axes.plot(comparison.differences, [0] * comparison.n, "|", color=BLACK, ms=13, mew=1.1)
        if math.isfinite(comparison.low):
            axes.plot([comparison.low, comparison.high], [0, 0], color=BLUE, lw=2.4)
        if math.isfinite(comparison.mean):
            axes.plot(comparison.mean, 0, "D", color=BLUE, ms=7)
        axes.grid(axis="y", visible=False)
        axes.set(xlim=axis, ylim=(-1, 1), yticks=[])
        axes.locator_params(axis="x", nbins=5)
        for end, side, words in ((0, "left", "← against the claim"), (1, "right", "for the claim →")):
            axes.annotate(words, (end, 0), (0, -31), xycoords="axes fraction", textcoords="offset points", ha=side,
                          color=MUTED, fontsize=10.5)
    return Panel(draw, title, " ", height=84, left=10)


def _common_range(comparisons: Sequence[Comparison]) -> tuple[float, float]:
    """An axis that shows 0, every interval and every seed."""
    ends = [0.0]
    for comparison in comparisons:
        ends += [v for v in (comparison.low, comparison.high, *comparison.differences) if math.isfinite(v)]
    low, high = min(ends), max(ends)
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room


def _summary(rows: Sequence[ClaimRow], book: MetricBook) -> str:
    """Verdicts in words, with the numbers of what was decided; then what is undecided, metric by metric."""
    counts = Counter(row.verdict for row in rows)
    if len(rows) == 1:
        text = f"The one claim is {rows[0].verdict}."
    elif len(counts) == 1:
        text = f"All {len(rows)} claims are {rows[0].verdict}."
    else:
        text = f"Of {len(rows)} claims {tally(counts)}."
    groups: dict[tuple[str, str, str], list[ClaimRow]] = {}
    for row in rows:
        if row.comparison.verdict != "undecided":
            groups.setdefault((row.comparison.verdict, row.claim.metric, row.claim.beats), []).append(row)
    text += "".join(_decided(group, book) for group in groups.values())
    for path in dict.fromkeys(row.claim.metric for row in rows):
        text += _undecided([row for row in rows if row.claim.metric == path and row.comparison.verdict == "undecided"],
                           book)
    return text


def tally(counts: Mapping[str, int]) -> str:
    """
    >>> tally({"reproduced": 1, "undecided": 4})
    '1 is reproduced, none is contradicted and 4 are undecided'
    """
    shown = [*VERDICTS, *([NOT_MEASURED] if counts.get(NOT_MEASURED) else [])]
    return listed([f"{counts.get(verdict) or 'none'} {'are' if counts.get(verdict, 0) > 1 else 'is'} {verdict}"
                   for verdict in shown])


def _decided(rows: Sequence[ClaimRow], book: MetricBook) -> str:
    """Claims of one verdict on one metric against one arm."""
    claim, m = rows[0].claim, rows[0].metric
    one, several = ("beats", "beat") if rows[0].comparison.verdict == "reproduced" else ("falls behind", "fall behind")
    sizes = [f"{show(abs(row.comparison.mean), enough_digits([row.comparison.mean], m.digits))}, interval "
             f"{_distance(row.comparison, m.digits)}" for row in rows]
    return (f" {listed([row.claim.arm for row in rows])} {one if len(rows) == 1 else several} {claim.beats} on "
            f"{_the(m, book)}: {'a difference' if len(rows) == 1 else 'differences'} of {listed(sizes)}.")


def _distance(comparison: Comparison, digits: int) -> str:
    """The interval of how far apart the arms are, whichever is ahead."""
    near, far = sorted((abs(comparison.low), abs(comparison.high)))
    return between(near, far, digits)


def _undecided(rows: Sequence[ClaimRow], book: MetricBook) -> str:
    """The undecided claims on one metric."""
    measured = [row for row in rows if row.comparison.n]
    if not measured:
        return ""
    m = measured[0].metric
    pairs = {beats: [row.claim.arm for row in measured if row.claim.beats == beats] for beats in
             dict.fromkeys(row.claim.beats for row in measured)}
    who = listed([f"{listed(arms, 'or')} {'beats' if len(arms) == 1 else 'beat'} {beats}"
                  for beats, arms in pairs.items()])
    means = sorted(row.comparison.mean for row in measured)
    points = " points" if m.unit == "%" else ""
    if len(means) == 1:
        size = f"the mean difference is {_towards(means[0], m.digits, points)}"
    else:
        size = (f"the mean differences lie between {_towards(means[0], m.digits, points)} and "
                f"{_towards(means[-1], m.digits, points)}")
    return f" Whether {who} on {_the(m, book)} is undecided: {size}."


def _towards(value: float, digits: int, points: str) -> str:
    """
    >>> _towards(-0.3, 2, " points"), _towards(0.0, 2, "")
    ('0.30 points against the claim', '0.00')
    """
    side = " for the claim" if value > 0 else " against the claim" if value < 0 else ""
    return show(abs(value), enough_digits([value], digits)) + points + side
