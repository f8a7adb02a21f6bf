"""The section of the claims: every one with its verdict, whichever way it went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...judge.claims import ClaimRow, claim_rows, finals_of, own_heading
from ...judge.looks import plan_of
from ...judge.metric_book import MetricBook
from ...judge.scale_free import NO_GAIN, Gain, gains_under_attack
from ...judge.stats import Comparison, mean_of
from ..drawing.panels import Panel, Picture
from ..drawing.style import BLACK, BLUE, MUTED
from ..numbers import alike, between, enough_digits, p_value, plural, show, signed
from .claim_words import SKEWED, beside_words, diverged_words, namer, needed_words, overall
from .splits import beside_splits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ...engine import Metric
    from ..arms import Group

__all__ = ["ClaimView", "Claims", "claim_key", "claims_of", "overall", "view_claims"]


@dataclass(frozen=True)
class ClaimView:
    """A claim as the page shows it. ``key`` is its anchor, which the scoreboard leads to."""

    key: str
    sentence: str
    verdict: str
    facts: Sequence[tuple[str, str]]
    picture: Picture | None
    papers: bool = True


@dataclass(frozen=True)
class Claims:
    """All claims of a recipe, and one picture of them for files."""

    views: Sequence[ClaimView]
    together: Picture | None
    rows: Sequence[ClaimRow] = ()
    looks: Sequence[int] = ()

    @property
    def papers(self) -> bool:
        """Whether any of them is the paper's."""
        return any(view.papers for view in self.views)

    @property
    def kinds(self) -> list[tuple[str, list[ClaimView]]]:
        """The paper's claims and other questions, each under its heading where there are both."""
        kinds = [("Claims of the paper", [view for view in self.views if view.papers]),
                 (own_heading(self.rows).capitalize(), [view for view in self.views if not view.papers])]
        present = [(title, views) for title, views in kinds if views]
        return present if len(present) > 1 else [("", views) for _, views in present]


def claims_of(group: Group) -> Claims | None:
    """None where the recipe is not known, or where it claims nothing."""
    if group.recipe is None or not group.recipe.claims:
        return None
    records = [*group.records, *group.diverged]
    plan = plan_of(group.recipe, records)
    finals = finals_of(group.name, records)
    rows = claim_rows(group.recipe, finals, group.metrics, plan, group.departures)
    return beside_splits(view_claims(rows, group.metrics, plan.looks, gains_under_attack(rows, finals)),
                         group.recipe.overlap)


def view_claims(rows: Sequence[ClaimRow], book: MetricBook, looks: Sequence[int] = (),
                gains: Sequence[Gain] = ()) -> Claims:
    """Judged claims as the page shows them; ``gains`` says what scale-free attacks leave of those under attack."""
    scale_free_facts = {id(gain.row): ("when scale-free", f"{signed(gain.difference, 1)}: {gain.answer}")
                        for gain in gains if gain.answer != NO_GAIN}
    ranges = {path: _common_range([row for row in rows if row.claim.metric == path])
              for path in {row.claim.metric for row in rows}}
    views = [_view(number, row, ranges[row.claim.metric], book, scale_free_facts.get(id(row)))
             for number, row in enumerate(rows, 1)]
    pictures = [view.picture for view in views if view.picture]
    together = Picture("claims", " ".join(picture.alt for picture in pictures), "",
                       [panel for picture in pictures for panel in picture.panels], columns=1) if pictures else None
    return Claims(views, together, rows, looks)


def claim_key(number: int) -> str:
    """The anchor of a claim within its recipe; the first one is number 1."""
    return f"claim-{number}"


def _view(number: int, row: ClaimRow, axis: tuple[float, float], book: MetricBook,
          scale_free: tuple[str, str] | None) -> ClaimView:
    claim, comparison, m = row.claim, row.comparison, row.metric
    sentence = claim.sentence(namer(book)) + (" (lower is better)" if claim.better == "lower" else "")
    diverged = [("diverged", diverged_words(row.diverged))] if row.diverged else []
    if not comparison.n:
        missing = f"no seed has been run with {'both arms' if claim.beats is not None else 'this arm'}"
        return ClaimView(claim_key(number), sentence, row.verdict, [("seeds", f"0: {missing}"), *diverged], None,
                         row.papers)
    alt = (f"{sentence}: {row.verdict}. Mean paired difference {signed(comparison.mean, m.digits)}, interval "
           f"{between(comparison.low, comparison.high, m.digits)}, {plural(comparison.n, 'seed')}.")
    panel = claim_panel(comparison, axis, sentence, claim.paper_difference)
    picture = Picture(claim_key(number), alt, "", [panel])
    facts = [*_facts(row, book), *([scale_free] if scale_free else []), *diverged]
    return ClaimView(claim_key(number), sentence, row.verdict, facts, picture, row.papers)


def _facts(row: ClaimRow, book: MetricBook) -> list[tuple[str, str]]:
    claim, comparison, m = row.claim, row.comparison, row.metric
    level = "" if math.isnan(comparison.low) else f" at {100 * comparison.level:.4g}%"
    digits = enough_digits([comparison.mean], m.digits)
    facts = [_both_sides(row, book),
             ("mean difference", signed(comparison.mean, digits) + (m.unit and f" {_points(m)}")),
             (f"interval{level}", _interval(row, m)),
             ("permutation p", p_value(comparison.p_permutation)), ("seeds", str(comparison.n))]
    if (numbers := claim.paper_numbers) is not None:
        sides = [numbers.ours] if claim.constant is not None else [numbers.theirs, numbers.ours]
        facts.append(("paper", " → ".join(alike(sides)).replace("-", "−")))
    if comparison.skewed:
        facts.append(("warning", SKEWED))
    if row.beside is not None:
        facts.append(("beside the paper", beside_words(row.beside, m.digits)))
    if row.needed is not None:
        facts.append(("seeds that would decide", f"{needed_words(row.needed)}, at 80% power"))
    if comparison.looks:
        facts.append(("look", f"{comparison.look} of {comparison.looks}" if comparison.look
                      else f"none yet of {comparison.looks}"))
    return facts


def _both_sides(row: ClaimRow, book: MetricBook) -> tuple[str, str]:
    claim = row.claim
    theirs, ours = (show(mean_of(values).value, row.metric.digits) for values in (row.pairs.theirs, row.pairs.ours))
    if claim.constant is not None:
        return claim.arm, ours
    if claim.beats_metric is not None:
        return f"{book[claim.beats_metric].words} → {row.metric.words}", f"{theirs} → {ours}"
    return f"{claim.beats} → {claim.arm}", f"{theirs} → {ours}"


def _interval(row: ClaimRow, m: Metric) -> str:
    comparison = row.comparison
    if comparison.n > 1 and math.isnan(comparison.low):
        return "none: all differences are equal" if math.isfinite(comparison.mean) else "none: a number is not finite"
    return between(comparison.low, comparison.high, m.digits)


def _points(m: Metric) -> str:
    return "points" if m.unit == "%" else m.unit


def claim_panel(comparison: Comparison, axis: tuple[float, float], title: str, paper: float | None = None) -> Panel:
    """The paired differences of a claim, their mean and interval against 0, on an axis that its metric's claims share;
    the paper's difference is a dotted line."""
    def draw(axes: Axes) -> None:
        axes.axvline(0, color=BLACK, lw=1)
        if paper is not None:
            axes.axvline(paper, color=MUTED, lw=1.4, ls=":")
        axes.plot(comparison.differences, [0] * comparison.n, "|", color=BLACK, ms=13, mew=1.1)
        if math.isfinite(comparison.low):
            axes.plot([comparison.low, comparison.high], [0, 0], color=BLUE, lw=2.4)
        if math.isfinite(comparison.mean):
            axes.plot(comparison.mean, 0, "D", color=BLUE, ms=7)
        axes.grid(axis="y", visible=False)
        axes.set(xlim=axis, ylim=(-1, 1), yticks=[])
        axes.locator_params(axis="x", nbins=5)
        for x, side, words in ((0, "left", "← against the claim"), (1, "right", "for the claim →")):
            axes.annotate(words, (x, 0), (0, -31), xycoords="axes fraction", textcoords="offset points", ha=side,
                          color=MUTED, fontsize=10.5)
    return Panel(draw, title, " ", height=84, left=10)


def _common_range(rows: Sequence[ClaimRow]) -> tuple[float, float]:
    """An axis that shows 0, every interval, every seed and the paper's differences."""
    values = [0.0]
    for row in rows:
        comparison, paper = row.comparison, row.claim.paper_difference
        values += [v for v in (comparison.low, comparison.high, *comparison.differences) if math.isfinite(v)]
        values += [] if paper is None else [paper]
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room
