"""Claims and verdicts in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...judge.claims import CONTRADICTED, NOT_MEASURED, REPRODUCED, ClaimRow
from ...judge.metric_book import MetricBook
from ...judge.power import MOST, SeedRange
from ...judge.stats import FAILS, HOLDS, NO_DIFFERENCE, UNDECIDED, Comparison
from ..numbers import between, enough_digits, listed, plural, show

if TYPE_CHECKING:
    from ...engine import Metric
    from ...judge.beside_paper import BesidePaper

# What one claim and what several do, by verdict, in the order in which they are counted.
PHRASES = {REPRODUCED: ("is reproduced", "are reproduced"), CONTRADICTED: ("is contradicted", "are contradicted"),
           HOLDS: ("holds", "hold"), FAILS: ("fails", "fail"),
           NO_DIFFERENCE: ("shows no difference", "show no difference"), UNDECIDED: ("is undecided", "are undecided"),
           NOT_MEASURED: ("is not measured", "are not measured")}
OF_PAPER, OWN = (REPRODUCED, CONTRADICTED, UNDECIDED), (HOLDS, FAILS, UNDECIDED)  # counted also where there are none
SKEWED = "the differences look skewed, and such verdicts are wrong more often than stated"


def tally(counts: Mapping[str, int], always: Sequence[str] = OF_PAPER) -> str:
    """
    >>> tally({"reproduced": 1, "undecided": 4})
    '1 is reproduced, none is contradicted and 4 are undecided'
    >>> tally({"holds": 2, "no difference": 1}, OWN)
    '2 hold, none fails, 1 shows no difference and none is undecided'
    """
    shown = [verdict for verdict in PHRASES if verdict in always or counts.get(verdict)]
    return listed([f"{counts.get(verdict) or 'none'} {PHRASES[verdict][counts.get(verdict, 0) > 1]}"
                   for verdict in shown])


def counted(verdicts: Sequence[str], papers: bool, noun: str = "claim", whose: str = "") -> str:
    """How many claims of one kind have which verdict.

    >>> counted(["holds"], False), counted(["undecided"] * 3, True)
    ('The one claim holds.', 'All 3 claims are undecided.')
    >>> counted(["holds", "fails"], False, "question", " of our own")
    'Of 2 questions of our own 1 holds, 1 fails and none is undecided.'
    """
    counts = Counter(verdicts)
    if len(verdicts) == 1:
        return f"The one {noun}{whose} {PHRASES[verdicts[0]][0]}."
    if len(counts) == 1:
        return f"All {plural(len(verdicts), noun)}{whose} {PHRASES[verdicts[0]][1]}."
    return f"Of {plural(len(verdicts), noun)}{whose} {tally(counts, OF_PAPER if papers else OWN)}."


def overall(rows: Sequence[ClaimRow]) -> str:
    """How many claims have which verdict, those of the paper and others apart."""
    kinds = {papers: [row.verdict for row in rows if row.papers == papers] for papers in (True, False)}
    if not all(kinds.values()):
        return "".join(counted(verdicts, papers) for papers, verdicts in kinds.items() if verdicts)
    return (counted(kinds[True], True, "claim", " of the paper") + " "
            + counted(kinds[False], False, "question", " of our own"))


def namer(book: MetricBook) -> Callable[[str], str]:
    """What a metric is called in a sentence."""
    return lambda path: book[path].words if book.is_named_alone(book[path]) else f"the {book[path].words}"


def summary(rows: Sequence[ClaimRow], book: MetricBook) -> str:
    """Verdicts in words, with the numbers of what was decided; then what is undecided, metric by metric."""
    text = overall(rows)
    groups: dict[tuple[str, ...], list[ClaimRow]] = {}
    for row in rows:
        if row.comparison.verdict != UNDECIDED:
            same = (row.claim.beats,) if row.claim.beats is not None else (row.claim.sentence(),)
            groups.setdefault((row.verdict, row.claim.metric, *same), []).append(row)
    text += "".join(_decided(group, book) for group in groups.values())
    for path in dict.fromkeys(row.claim.metric for row in rows):
        text += _undecided([row for row in rows if row.claim.metric == path and row.comparison.verdict == UNDECIDED],
                           book)
    return text + _diverged(rows)


def _decided(rows: Sequence[ClaimRow], book: MetricBook) -> str:
    """Claims of one verdict on one metric against one arm."""
    claim, m, name = rows[0].claim, rows[0].metric, namer(book)
    verdict = rows[0].comparison.verdict
    sizes = [f"{show(abs(row.comparison.mean), enough_digits([row.comparison.mean], m.digits))}, interval "
             f"{_distance(row.comparison, m.digits) if verdict != NO_DIFFERENCE else _interval(row.comparison, m)}"
             for row in rows]
    size = f"{'a difference' if len(rows) == 1 else 'differences'} of {listed(sizes)}"
    if claim.beats is not None:
        one, several = {HOLDS: ("beats", "beat"), FAILS: ("falls behind", "fall behind"),
                        NO_DIFFERENCE: ("shows no difference to", "show no difference to")}[verdict]
        return (f" {listed([row.claim.arm for row in rows])} {one if len(rows) == 1 else several} {claim.beats} on "
                f"{name(claim.metric)}: {size}.")
    words = claim.sentence(name)
    if verdict == NO_DIFFERENCE:
        words = f"no difference where it was claimed that {words}"
    elif verdict == FAILS:
        words = f"it is not so that {words}"
    return f" {words[0].upper()}{words[1:]}: {size}."


def _distance(comparison: Comparison, digits: int) -> str:
    """The interval of how far apart the arms are, whichever is ahead."""
    near, far = sorted((abs(comparison.low), abs(comparison.high)))
    return between(near, far, digits)


def _interval(comparison: Comparison, m: Metric) -> str:
    return between(comparison.low, comparison.high, m.digits)


def _undecided(rows: Sequence[ClaimRow], book: MetricBook) -> str:
    """The undecided claims on one metric."""
    measured = [row for row in rows if row.comparison.n]
    between_arms = [row for row in measured if row.claim.beats is not None]
    text = _undecided_between_arms(between_arms, book) if between_arms else ""
    for row in measured:
        if row.claim.beats is None:
            size = _towards(row.comparison.mean, row.metric.digits, " points" if row.metric.unit == "%" else "")
            text += f" Whether {row.claim.sentence(namer(book))} is undecided: the mean difference is {size}."
    return text


def _undecided_between_arms(rows: Sequence[ClaimRow], book: MetricBook) -> str:
    m = rows[0].metric
    pairs = {beats: [row.claim.arm for row in rows if row.claim.beats == beats] for beats in
             dict.fromkeys(row.claim.beats for row in rows)}
    who = listed([f"{listed(arms, 'or')} {'beats' if len(arms) == 1 else 'beat'} {beats}"
                  for beats, arms in pairs.items()])
    means = sorted(row.comparison.mean for row in rows)
    points = " points" if m.unit == "%" else ""
    if len(means) == 1:
        size = f"the mean difference is {_towards(means[0], m.digits, points)}"
    else:
        size = (f"the mean differences lie between {_towards(means[0], m.digits, points)} and "
                f"{_towards(means[-1], m.digits, points)}")
    return f" Whether {who} on {namer(book)(m.path)} is undecided: {size}."


def _towards(value: float, digits: int, points: str) -> str:
    """
    >>> _towards(-0.3, 2, " points"), _towards(0.0, 2, "")
    ('0.30 points against the claim', '0.00')
    """
    side = " for the claim" if value > 0 else " against the claim" if value < 0 else ""
    return show(abs(value), enough_digits([value], digits)) + points + side


def _diverged(rows: Sequence[ClaimRow]) -> str:
    runs = dict.fromkeys(run for row in rows for run in row.diverged)
    return f" {plural(len(runs), 'run')} diverged: {diverged_words(list(runs))}." if runs else ""


def diverged_words(runs: Sequence[tuple[str, int]]) -> str:
    """
    >>> diverged_words([("el", 3), ("el", 4), ("ce", 0)])
    'el seeds 3 and 4; ce seed 0'
    """
    seeds: dict[str, list[str]] = {}
    for arm, seed in runs:
        seeds.setdefault(arm, []).append(str(seed))
    return "; ".join(f"{arm} seed{'s' if len(which) > 1 else ''} {listed(which)}" for arm, which in seeds.items())


def beside_words(beside: BesidePaper, digits: int) -> str:
    """The size of a difference beside the paper's."""
    alone = "" if beside.with_spread else ", the paper's spread unknown"
    ends = between(beside.low, beside.high, digits)
    return f"{beside.words}: ours minus theirs {show(beside.mean, digits)}, 95% interval {ends}{alone}"


def needed_words(needed: SeedRange) -> str:
    """
    >>> needed_words(SeedRange(4, 31)), needed_words(SeedRange(5, None)), needed_words(SeedRange(3, 3))
    ('4 to 31', '5 to more than 10000', '3')
    """
    fewest, most = (f"more than {MOST}" if end is None else str(end) for end in needed)
    return fewest if fewest == most else f"{fewest} to {most}"
