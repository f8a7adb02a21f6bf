"""Claims and verdicts in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...judge.claims import CONTRADICTED, NOT_MEASURED, REPRODUCED, ClaimRow
from ...judge.metric_book import MetricBook
from ...judge.power import MAX_SEEDS, SeedRange
from ...judge.stats import FAILS, HOLDS, NO_DIFFERENCE, UNDECIDED
from ..numbers import between, listed, plural, show

if TYPE_CHECKING:
    from ...judge.beside_paper import BesidePaper

# The predicate of one claim and of several, by verdict, in the order in which they are counted.
PHRASES = {REPRODUCED: ("is reproduced", "are reproduced"), CONTRADICTED: ("is contradicted", "are contradicted"),
           HOLDS: ("holds", "hold"), FAILS: ("fails", "fail"),
           NO_DIFFERENCE: ("shows no difference", "show no difference"), UNDECIDED: ("is undecided", "are undecided"),
           NOT_MEASURED: ("is not measured", "are not measured")}
OF_PAPER, OWN = (REPRODUCED, CONTRADICTED, UNDECIDED), (HOLDS, FAILS, UNDECIDED)  # counted even where there are none
SKEWED = "the differences look skewed, and such verdicts are wrong more often than stated"


def tally(counts: Mapping[str, int], always: Sequence[str] = OF_PAPER) -> str:
    """
    >>> tally({"reproduced": 1, "undecided": 4})
    '1 is reproduced, none is contradicted and 4 are undecided'
    >>> tally({"holds": 2, "no difference": 1}, OWN)
    '2 hold, none fails, 1 shows no difference and none is undecided'
    """
    verdicts = [verdict for verdict in PHRASES if verdict in always or counts.get(verdict)]
    return listed([f"{counts.get(verdict) or 'none'} {PHRASES[verdict][counts.get(verdict, 0) > 1]}"
                   for verdict in verdicts])


def counted(verdicts: Sequence[str], papers: bool, noun: str = "claim", whose: str = "") -> str:
    """How many claims of one kind have which verdict.

    >>> counted(["holds"], False), counted(["fails"] * 2, False), counted(["undecided"] * 3, True)
    ('The one claim holds.', 'Both claims fail.', 'All 3 claims are undecided.')
    >>> counted(["holds", "fails"], False, "question", " of our own")
    'Of 2 questions of our own 1 holds, 1 fails and none is undecided.'
    """
    counts = Counter(verdicts)
    if len(verdicts) == 1:
        return f"The one {noun}{whose} {PHRASES[verdicts[0]][0]}."
    if len(counts) == 1:
        all_of_them = f"Both {noun}s" if len(verdicts) == 2 else f"All {plural(len(verdicts), noun)}"
        return f"{all_of_them}{whose} {PHRASES[verdicts[0]][1]}."
    return f"Of {plural(len(verdicts), noun)}{whose} {tally(counts, OF_PAPER if papers else OWN)}."


def overall(rows: Sequence[ClaimRow]) -> str:
    """How many claims have which verdict, those of the paper and others apart."""
    kinds = {papers: [row.verdict for row in rows if row.papers == papers] for papers in (True, False)}
    if not all(kinds.values()):
        return "".join(counted(verdicts, papers) for papers, verdicts in kinds.items() if verdicts)
    return (counted(kinds[True], True, "claim", " of the paper") + " "
            + counted(kinds[False], False, "question", " of our own"))


def sweep_tally(rows: Sequence[ClaimRow]) -> str:
    """How many values of a sweep beat the baseline, in a sentence."""
    baselines = list(dict.fromkeys(str(row.claim.beats) for row in rows))
    whose = f" with {baselines[0]}" if len(baselines) == 1 else ""
    return counted([row.verdict for row in rows], False, "comparison", whose) if rows else ""


def namer(book: MetricBook) -> Callable[[str], str]:
    """What a metric is called in a sentence."""
    return lambda path: book[path].words if book.is_named_alone(book[path]) else f"the {book[path].words}"


def diverged_words(runs: Sequence[tuple[str, int]]) -> str:
    """
    >>> diverged_words([("el", 3), ("el", 4), ("ce", 0)])
    'el seeds 3 and 4; ce seed 0'
    """
    seeds: dict[str, list[str]] = {}
    for arm, seed in runs:
        seeds.setdefault(arm, []).append(str(seed))
    return "; ".join(f"{arm} seed{'s' if len(numbers) > 1 else ''} {listed(numbers)}" for arm, numbers in seeds.items())


def beside_words(beside: BesidePaper, digits: int) -> str:
    """The size of a difference beside the paper's."""
    spread_note = "" if beside.with_spread else ", the paper's spread unknown"
    interval = between(beside.low, beside.high, digits)
    return f"{beside.words}: ours minus theirs {show(beside.mean, digits)}, 95% interval {interval}{spread_note}"


def needed_words(needed: SeedRange) -> str:
    """
    >>> needed_words(SeedRange(4, 31)), needed_words(SeedRange(5, None)), needed_words(SeedRange(3, 3))
    ('4 to 31', '5 to more than 10,000', '3')
    """
    fewest, most = (f"more than {MAX_SEEDS:,}" if end is None else f"{end:,}" for end in needed)
    return fewest if fewest == most else f"{fewest} to {most}"
