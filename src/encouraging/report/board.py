"""The rows of a scoreboard: one claim each, with the paper's numbers, ours, the difference and the verdict.

Nothing here needs torch: `encouraging compare` shows the same board for numbers of any script.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from markupsafe import Markup

from ..judge.scale_free import NO_GAIN, SURVIVES
from ..judge.stats import SAME, mean_of
from .numbers import PAGE, Style, alike, between, enough_digits, interval, plural, show, signed
from .sections.claim_words import counted as counted_claims
from .sections.claim_words import needed_words, overall
from .verdicts import NOT_MEASURED, OWN_NOT_MEASURED, Verdict, counted, verdict_of

if TYPE_CHECKING:
    from ..judge.claims import ClaimRow
    from ..judge.scale_free import Gain

WIDTH, HEIGHT = 132, 22  # of the small picture of a difference, in pixels


@dataclass(frozen=True)
class ScoreRow:
    """One claim of the scoreboard.

    Attributes:
        source: where the paper makes the claim.
        recipe, task: those of the runs.
        href: the link to more about the claim.
        is_primary: whether it is about the metric that the task is judged by.
        bonus: 1 where the claim is that a bonus helps, -1 where it is that a bonus costs something, else 0.
        departs: in which settings the runs differ from the recipe, so that they do not test the claim.
        axis_end: the difference at the end of the picture's axis; 0 for an axis that fits this row alone.
        missing: why a reader's own numbers have no difference; shown where recipes have the command that runs them.
        gain: what scale-free attacks leave of a claim under an attack by cross-entropy, where they were measured.
        run: the command that trains the recipe, in the settings of its runs; shown for what is not measured.
    """

    row: ClaimRow
    sentence: str
    recipe: str = ""
    source: str = ""
    task: str = ""
    href: str = ""
    is_primary: bool = False
    bonus: int = 0
    departs: str = ""
    axis_end: float = 0.0
    missing: str = ""
    gain: Gain | None = None
    run: str = ""

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
    def command(self) -> str:
        """What runs it; accuracies under attack are measured after training."""
        attacked = any(path.startswith("attacks.") for path in self.row.claim.metrics)
        return self.run + (f" && encouraging attack runs/{self.recipe}" if attacked else "")

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
        sides = [numbers.ours] if self.row.claim.constant is not None else [numbers.theirs, numbers.ours]
        return _arrow(alike(sides), style)

    def our_words(self, style: Style = PAGE) -> str:
        if not self.n:
            return ""
        digits, pairs = self.row.metric.digits, self.row.pairs
        sides = [pairs.ours] if self.row.claim.constant is not None else [pairs.theirs, pairs.ours]
        return _arrow([show(mean_of(side).value, digits) for side in sides], style)

    def difference_words(self, style: Style = PAGE) -> str:
        mean = self.row.comparison.mean
        if abs(mean) < SAME * max(map(abs, self.row.pairs.ours), default=0.0):  # equal but for rounding
            mean = 0.0
        return signed(mean, enough_digits([mean], self.row.metric.digits), style) if self.n else ""

    def interval_words(self, style: Style = PAGE) -> str:
        comparison = self.row.comparison
        if math.isnan(comparison.low):
            return ""
        write = between if style == PAGE else interval
        return write(comparison.low, comparison.high, self.row.metric.digits)

    @property
    def is_masked(self) -> bool:
        """Whether this is a gain under attack that scale-free attacks do not confirm."""
        return self.gain is not None and self.gain.answer not in (SURVIVES, NO_GAIN)

    def left_words(self, style: Style = PAGE) -> str:
        """What is left of a gain under attack when the attack is scale-free, where that does not confirm it."""
        if self.gain is None or not self.is_masked:
            return ""
        return f"{signed(self.gain.difference, 1, style)} when scale-free: {self.gain.answer}"

    @property
    def beside(self) -> str:
        """What else a reader wants to know: what scale-free attacks leave of it, the size beside the paper's, or how
        many seeds would decide."""
        if self.is_masked:
            return self.left_words()
        if self.row.beside is not None and self.verdict.tone == "good":
            return self.row.beside.words.replace("'", "’")
        if self.row.needed is not None:
            return f"{needed_words(self.row.needed)} seeds would decide"
        return ""

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
        counts = counted([row.verdict.word for row in self.rows])
        return [(verdict._replace(means=OWN_NOT_MEASURED), n) if self.is_own and verdict.word == NOT_MEASURED
                else (verdict, n) for verdict, n in counts]

    @property
    def is_own(self) -> bool:
        """Whether these are a reader's own numbers: no recipe has them."""
        return not any(row.recipe for row in self.rows)

    @property
    def tasks(self) -> list[str]:
        return sorted({row.task for row in self.rows})

    @property
    def has_paper(self) -> bool:
        """Whether any of it is about the paper."""
        return any(row.source or row.row.claim.paper_numbers for row in self.rows)

    @property
    def answer(self) -> str:
        """All verdicts in one sentence."""
        return tally_words(self.rows)


def scoreboard_of(rows: Iterable[ScoreRow], *, departures_said: bool = False) -> Scoreboard | None:
    """The board of these rows; None without rows. With ``departures_said`` the board does not repeat in which settings
    the runs differ from the recipe, because the page has said it before."""
    rows = _with_common_axes(sorted(rows, key=lambda row: (natural(row.source), row.recipe)))
    if not any(row.recipe for row in rows):
        papers_title, own_title = "", "Compared"
        missing_title = "Not measured: no seed has been run with both arms"
    else:
        papers_title, own_title = "Claims of the paper", "Other settings, and questions of our own"
        missing_title = "Not measured yet"
    tested = [row for row in rows if row.measured and not row.departs]
    departed = [row for row in rows if row.measured and row.departs]
    kinds = [(papers_title, [row for row in tested if row.papers]),
             (own_title, [row for row in tested if not row.papers]),
             *((f"Other settings than those of {recipe}" + ("" if departures_said else f": {words}"),
                [row for row in departed if (row.recipe, row.departs) == (recipe, words)])
               for recipe, words in dict.fromkeys((row.recipe, row.departs) for row in departed)),
             (missing_title, [row for row in rows if not row.measured])]
    present = [(title, members) for title, members in kinds if members]
    return Scoreboard(present) if present else None


def tally_words(rows: Sequence[ScoreRow]) -> str:
    """How many claims have which verdict: those of the paper and others apart, which gains scale-free attacks do not
    confirm, and what is not measured."""
    measured = [row.row for row in rows if row.measured and not row.departs]
    departed = [row.row.verdict for row in rows if row.measured and row.departs]
    waiting = len(rows) - len(measured) - len(departed)
    words = [overall(measured)] if measured else []
    if departed:
        words.append(counted_claims(departed, False, whose=" in runs that differ from their recipe"))
    if masked := sum(row.is_masked for row in rows if row.measured):
        are, them = ("is", "it") if masked == 1 else ("are", "them")
        words.append(f"{masked} of the gains {are} under attacks that follow cross-entropy, and scale-free attacks do "
                     f"not confirm {them}.")
    if waiting:
        words.append(f"{plural(waiting, 'claim')} {'is' if waiting == 1 else 'are'} not measured yet.")
    return " ".join(words)


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts Table 4 before Table 13, and claims that are not in the paper last.

    >>> sorted(["Table 13", "", "Appendix", "Table 4"], key=natural)
    ['Table 4', 'Table 13', 'Appendix', '']
    """
    if not text:
        return [(2, 0, "")]
    kind = (0 if text.startswith("Table") else 1, 0, "")
    return [kind, *((0, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", text))]


def _with_common_axes(rows: Sequence[ScoreRow]) -> list[ScoreRow]:
    """Pictures of one recipe and metric have one axis, so that they can be compared."""
    axis_ends: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (row.recipe, row.row.claim.metric)
        axis_ends[key] = max(axis_ends.get(key, 0.0), _largest_difference(row))
    return [replace(row, axis_end=axis_ends[row.recipe, row.row.claim.metric]) for row in rows]


def _largest_difference(row: ScoreRow) -> float:
    """The largest difference that a picture has to show."""
    comparison = row.row.comparison
    values = (comparison.low, comparison.high, comparison.mean, row.paper_difference)
    return max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)


def picture(score: ScoreRow) -> Markup:
    """The difference with its interval; 0 is in the middle, the claimed side is on the right, and a dotted line is the
    paper's difference. Words beside it say the same."""
    comparison, paper = score.row.comparison, score.paper_difference
    if not score.n:
        return Markup()
    scale = (WIDTH / 2 - 5) / (score.axis_end or _largest_difference(score) or 1.0)

    def x(value: float) -> str:
        return f"{WIDTH / 2 + scale * value:.1f}".removesuffix(".0")
    shapes = [f'<path class="zero" d="M{WIDTH // 2} 1v{HEIGHT - 2}"/>']
    if paper is not None:
        shapes.append(f'<path class="paper" d="M{x(paper)} 3v{HEIGHT - 6}"/>')
    if math.isfinite(comparison.low):
        shapes.append(f'<path d="M{x(comparison.low)} {HEIGHT // 2}H{x(comparison.high)}"/>')
    if math.isfinite(comparison.mean):
        shapes.append(f'<circle cx="{x(comparison.mean)}" cy="{HEIGHT // 2}" r="3.8"/>')
    return Markup(f'<svg class="mini" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{"".join(shapes)}</svg>')


def _arrow(numbers: Sequence[str], style: Style) -> str:
    arrow = " → " if style == PAGE else " -> "
    return arrow.join(numbers).replace("-", style.minus) if style == PAGE else arrow.join(numbers).replace("−", "-")
