"""The scoreboard: every claim in one row, with the paper's numbers, ours, the difference and the verdict.

The page, ``docs/results.md`` and the README show the same rows. A claim of a recipe that has not been run is a row too,
with the command that runs it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ..curves import catalogue
from ..engine.records import Record
from ..judge.claims import ClaimRow, claim_rows, finals_of
from ..judge.looks import plan_of
from ..judge.metric_book import MetricBook, book_of
from ..judge.stats import mean_of
from ..recipes import Recipe
from ..tasks import ObjectiveConfig
from .numbers import PAGE, Style, between, enough_digits, interval, listed, show, signed
from .verdicts import NOT_MEASURED, Verdict, counted, verdict_of

WIDTH, HEIGHT = 132, 22  # of the small picture of a difference, in pixels


@dataclass(frozen=True)
class ScoreRow:
    """One claim of one recipe. ``is_primary`` tells whether it is about the metric that the task is judged by; ``href``
    leads to the recipe's section where the page has one."""

    recipe: Recipe
    row: ClaimRow
    sentence: str
    is_primary: bool = False
    href: str = ""

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.row.verdict)

    @property
    def measured(self) -> bool:
        return self.row.verdict != NOT_MEASURED

    @property
    def n(self) -> int:
        return self.row.comparison.n

    @property
    def papers(self) -> bool:
        """Whether the paper claims this, in this setting."""
        return self.row.papers

    @property
    def source(self) -> str:
        """Where in the paper this is: the claim's own table, or the recipe's."""
        return self.row.claim.source or self.recipe.paper

    @property
    def task(self) -> str:
        return " · ".join(filter(None, [self.recipe.task, self.recipe.data]))

    @property
    def command(self) -> str:
        return f"encouraging run {self.recipe.name}"

    @property
    def lower_is_better(self) -> bool:
        return self.row.claim.direction == "lower"

    @property
    def paper_difference(self) -> float | None:
        """The paper's difference, positive where it supports the claim."""
        return self.row.claim.paper_difference

    @property
    def clearness(self) -> float:
        """How far the difference is from 0, in half widths of its interval: what rows are sorted by, since metrics have
        different units."""
        comparison = self.row.comparison
        if math.isnan(comparison.low):
            return 0.0
        return comparison.mean / ((comparison.high - comparison.low) / 2)

    def paper_words(self, style: Style = PAGE) -> str:
        numbers = self.row.claim.paper_numbers
        if numbers is None:
            return ""
        one = self.row.claim.constant is not None
        return _arrow([f"{number:g}" for number in ([numbers.ours] if one else [numbers.theirs, numbers.ours])], style)

    def our_words(self, style: Style = PAGE) -> str:
        if not self.n:
            return ""
        digits, pairs = self.row.metric.digits, self.row.pairs
        sides = [pairs.ours] if self.row.claim.constant is not None else [pairs.theirs, pairs.ours]
        return _arrow([show(mean_of(side).value, digits) for side in sides], style)

    def difference_words(self, style: Style = PAGE) -> str:
        mean = self.row.comparison.mean
        return signed(mean, enough_digits([mean], self.row.metric.digits), style) if self.n else ""

    def interval_words(self, style: Style = PAGE) -> str:
        comparison = self.row.comparison
        if math.isnan(comparison.low):
            return ""
        write = between if style == PAGE else interval
        return write(comparison.low, comparison.high, self.row.metric.digits)

    @property
    def picture(self) -> Markup:
        return picture(self)


@dataclass(frozen=True)
class Scoreboard:
    """All rows by kind, in the order of the paper."""

    kinds: Sequence[tuple[str, Sequence[ScoreRow]]]

    @property
    def rows(self) -> list[ScoreRow]:
        return [row for _, rows in self.kinds for row in rows]

    @property
    def verdicts(self) -> list[tuple[Verdict, int]]:
        return counted([row.verdict.word for row in self.rows])

    @property
    def tasks(self) -> list[str]:
        return sorted({row.task for row in self.rows})

    @property
    def answer(self) -> str:
        """All verdicts in one sentence."""
        return tally_words(self.rows)


def scoreboard_of(rows: Iterable[ScoreRow]) -> Scoreboard | None:
    """The board of these rows; none without rows."""
    rows = sorted(rows, key=lambda row: (natural(row.source), row.recipe.name))
    kinds = [("Claims of the paper", [row for row in rows if row.measured and row.papers]),
             ("Other settings, and questions of our own", [row for row in rows if row.measured and not row.papers]),
             ("Not measured yet", [row for row in rows if not row.measured])]
    present = [(title, members) for title, members in kinds if members]
    return Scoreboard(present) if present else None


def score_rows(recipe: Recipe, records: Sequence[Record] = (), href: str = "") -> list[ScoreRow]:
    """The claims of a recipe, judged on these records of its runs."""
    book = book_of(records) if records else MetricBook(recipe.needs().metrics)
    return [ScoreRow(recipe, row, claim_sentence(row, book), book.is_named_alone(row.metric), href)
            for row in claim_rows(recipe, finals_of(recipe.name, records), book, plan_of(recipe, records))]


def claim_sentence(row: ClaimRow, book: MetricBook) -> str:
    """What is claimed, in words."""
    def name(path: str) -> str:
        metric = book[path]
        return metric.words if book.is_named_alone(metric) else f"the {metric.words}"
    return row.claim.sentence(name)


def compares_bonus(row: ScoreRow) -> bool:
    """Whether the claim is that a bonus helps: the one side has it and the other has not."""
    arms, beats = row.recipe.arms, row.row.claim.beats
    return beats in arms and has_bonus(arms[row.row.claim.arm]) and not has_bonus(arms[beats])


def has_bonus(arm: ObjectiveConfig) -> bool:
    """Whether an arm's loss has a bonus for examples that are classified well."""
    if arm.loss == "mse":
        return arm.bonus
    entry = catalogue().get(arm.curve or "")
    return entry is not None and entry.group == "bonus"


def tally_words(rows: Sequence[ScoreRow]) -> str:
    """How many claims have which verdict."""
    counts = counted([row.verdict.word for row in rows])
    if len(rows) == 1:
        return f"One claim: {counts[0][0].word}."
    return f"{len(rows)} claims: {listed([f'{n} {verdict.word}' for verdict, n in counts])}."


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts Table 4 before Table 13, and what has no place in the paper last.

    >>> sorted(["Table 13", "", "Appendix", "Table 4"], key=natural)
    ['Table 4', 'Table 13', 'Appendix', '']
    """
    if not text:
        return [(2, 0, "")]
    first = (0 if text.startswith("Table") else 1, 0, "")
    return [first, *((0, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", text))]


def picture(score: ScoreRow) -> Markup:
    """The difference with its interval; 0 is in the middle, the claimed side is on the right, and a dotted line is the
    paper's difference. Words beside it say the same."""
    comparison, paper = score.row.comparison, score.paper_difference
    ends = [abs(end) for end in (comparison.low, comparison.high, comparison.mean, paper)
            if end is not None and math.isfinite(end)]
    if not score.n or not ends:
        return Markup()
    scale = (WIDTH / 2 - 5) / (max(ends) or 1.0)

    def x(value: float) -> str:
        return f"{WIDTH / 2 + scale * value:.1f}".removesuffix(".0")
    parts = [f'<path class="zero" d="M{WIDTH // 2} 1v{HEIGHT - 2}"/>']
    if paper is not None:
        parts.append(f'<path class="paper" d="M{x(paper)} 3v{HEIGHT - 6}"/>')
    if math.isfinite(comparison.low):
        parts.append(f'<path d="M{x(comparison.low)} {HEIGHT // 2}H{x(comparison.high)}"/>')
    if math.isfinite(comparison.mean):
        parts.append(f'<circle cx="{x(comparison.mean)}" cy="{HEIGHT // 2}" r="3.8"/>')
    return Markup(f'<svg class="mini" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{"".join(parts)}</svg>')


def unmeasured_rows(recipes: Mapping[str, Recipe], measured: Iterable[str]) -> list[ScoreRow]:
    """What the paper claims, of the recipes without runs."""
    names = set(measured)
    return [row for name, recipe in recipes.items() if name not in names and recipe.paper and recipe.claims
            for row in score_rows(recipe) if row.papers]


def _arrow(numbers: Sequence[str], style: Style) -> str:
    arrow = " → " if style == PAGE else " -> "
    return arrow.join(numbers).replace("-", style.minus) if style == PAGE else arrow.join(numbers).replace("−", "-")
