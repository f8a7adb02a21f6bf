"""The report's claims: every one with its verdict, whichever way it went."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import courses
from .arms import Arm, Group, Metric, between, enough, listed, mean_of, metric, plural, show, signed
from .claims import ClaimRow, claim_rows, number
from .drawing import Picture

VERDICTS = ("reproduced", "contradicted", "undecided")
NOT_MEASURED = "not measured"


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
    """Nothing where no recipe tells what is claimed, or where it claims nothing."""
    if group.recipe is None or not group.recipe.claims:
        return None
    finals = {arm.name: {seed: dict(final) for seed, final in arm.finals.items()} for arm in group.arms}
    rows = claim_rows(group.recipe, finals)
    differences = [_differences(row, finals) for row in rows]
    reach = {path: courses.reach_of([(row.found, d) for row, d in zip(rows, differences, strict=True)
                                     if row.claim.metric == path]) for path in {row.claim.metric for row in rows}}
    named = {arm.name: arm for arm in group.arms}
    views = [_view(place, row, d, reach[row.claim.metric], _both(row, named))
             for place, (row, d) in enumerate(zip(rows, differences, strict=True), 1)]
    pictures = [view.picture for view in views if view.picture]
    together = Picture("claims", " ".join(picture.alt for picture in pictures), "",
                       [panel for picture in pictures for panel in picture.panels], columns=1) if pictures else None
    return Claims(views, _summary(rows), together)


def _differences(row: ClaimRow, finals: dict[str, dict[int, dict[str, object]]]) -> list[float]:
    """Seed by seed, the claimed side positive."""
    sign = 1.0 if row.claim.better == "higher" else -1.0
    ours, theirs = finals.get(row.claim.arm, {}), finals.get(row.claim.beats, {})
    pairs = [(number(ours[seed], row.claim.metric), number(theirs[seed], row.claim.metric))
             for seed in sorted(set(ours) & set(theirs))]
    return [sign * (a - b) for a, b in pairs if a is not None and b is not None]


def _both(row: ClaimRow, arms: Mapping[str, Arm]) -> tuple[float, float]:
    """The means of the two arms of a claim over the seeds that both have, the beaten one first."""
    both = set.intersection(*({seed for seed, final in arms[name].finals.items()
                               if number(final, row.claim.metric) is not None} if name in arms else set()
                              for name in (row.claim.beats, row.claim.arm)))
    means = [mean_of([number(arms[name].finals[seed], row.claim.metric) for seed in sorted(both)]).value if both
             else math.nan for name in (row.claim.beats, row.claim.arm)]
    return means[0], means[1]


def _view(place: int, row: ClaimRow, differences: Sequence[float], reach: tuple[float, float],
          means: tuple[float, float]) -> ClaimView:
    claim, found, (theirs, ours) = row.claim, row.found, means
    known = metric(claim.metric)
    sentence = f"{claim.arm} beats {claim.beats} on {_the(known)}" + (" (lower is better)" if claim.better == "lower"
                                                                      else "")
    level = "" if math.isnan(found.low) else f" at {100 * found.level:.4g}%"
    digits = enough([found.mean], known.digits)
    facts = [(f"{claim.beats} → {claim.arm}", f"{show(theirs, known.digits)} → {show(ours, known.digits)}"),
             ("mean difference", signed(found.mean, digits) + (known.unit and f" {_points(known)}")),
             (f"interval{level}", _interval(row, known)),
             ("permutation p", show(found.p_permutation, 3)), ("seeds", str(found.n))]
    if claim.beats in claim.paper and claim.arm in claim.paper:
        facts.append(("paper", f"{claim.paper[claim.beats]:g} → {claim.paper[claim.arm]:g}".replace("-", "−")))
    if not found.n:
        return ClaimView(sentence, NOT_MEASURED, [("seeds", "0: no seed has been run with both arms")], None)
    alt = (f"{sentence}: {found.verdict}. Mean paired difference {signed(found.mean, known.digits)}, interval "
           f"{between(found.low, found.high, known.digits)}, {plural(found.n, 'seed')}.")
    panel = courses.claim_panel(found, differences, reach, sentence)
    return ClaimView(sentence, found.verdict, facts, Picture(f"claim-{place}", alt, "", [panel]))


def _interval(row: ClaimRow, known: Metric) -> str:
    if row.found.n > 1 and math.isnan(row.found.low):
        return "none: all differences are equal" if math.isfinite(row.found.mean) else "none: a number is not finite"
    return between(row.found.low, row.found.high, known.digits)


def _the(known: Metric) -> str:
    return known.words if known.words in ("accuracy", "best accuracy") else f"the {known.words}"


def _points(known: Metric) -> str:
    return "points" if known.unit == "%" else known.unit


def _summary(rows: Sequence[ClaimRow]) -> str:
    """Verdicts in words, with the numbers of what was decided; then what is open, metric by metric."""
    counts = Counter(row.verdict for row in rows)
    if len(rows) == 1:
        text = f"The one claim is {rows[0].verdict}."
    elif len(counts) == 1:
        text = f"All {len(rows)} claims are {rows[0].verdict}."
    else:
        text = f"Of {len(rows)} claims {tally(counts)}."
    groups: dict[tuple[str, str, str], list[ClaimRow]] = {}
    for row in rows:
        if row.found.verdict != "undecided":
            groups.setdefault((row.found.verdict, row.claim.metric, row.claim.beats), []).append(row)
    text += "".join(_decided(group) for group in groups.values())
    for path in dict.fromkeys(row.claim.metric for row in rows):
        text += _open([row for row in rows if row.claim.metric == path and row.found.verdict == "undecided"])
    return text


def _decided(rows: Sequence[ClaimRow]) -> str:
    """Claims of one verdict on one metric against one arm."""
    claim, known = rows[0].claim, metric(rows[0].claim.metric)
    one, several = ("beats", "beat") if rows[0].found.verdict == "reproduced" else ("falls behind", "fall behind")
    sizes = [f"{show(abs(row.found.mean), enough([row.found.mean], known.digits))}, interval "
             f"{_apart(row.found.low, row.found.high, known.digits)}" for row in rows]
    return (f" {listed([row.claim.arm for row in rows])} {one if len(rows) == 1 else several} {claim.beats} on "
            f"{_the(known)}: {'a difference' if len(rows) == 1 else 'differences'} of {listed(sizes)}.")


def _apart(low: float, high: float, digits: int) -> str:
    """How far apart, whichever arm is ahead."""
    near, far = sorted((abs(low), abs(high)))
    return between(near, far, digits)


def tally(counts: Mapping[str, int]) -> str:
    """
    >>> tally({"reproduced": 1, "undecided": 4})
    '1 is reproduced, none is contradicted and 4 are undecided'
    """
    shown = [*VERDICTS, *([NOT_MEASURED] if counts.get(NOT_MEASURED) else [])]
    return listed([f"{counts.get(verdict) or 'none'} {'are' if counts.get(verdict, 0) > 1 else 'is'} {verdict}"
                   for verdict in shown])


def _open(rows: Sequence[ClaimRow]) -> str:
    """What stays undecided on one metric."""
    run = [row for row in rows if row.found.n]
    if not run:
        return ""
    known = metric(run[0].claim.metric)
    pairs = {beats: [row.claim.arm for row in run if row.claim.beats == beats] for beats in
             dict.fromkeys(row.claim.beats for row in run)}
    who = listed([f"{listed(arms, 'or')} {'beats' if len(arms) == 1 else 'beat'} {beats}"
                  for beats, arms in pairs.items()])
    means = sorted(row.found.mean for row in run)
    points = " points" if known.unit == "%" else ""
    if len(means) == 1:
        size = f"the mean difference is {_towards(means[0], known.digits, points)}"
    else:
        size = (f"the mean differences lie between {_towards(means[0], known.digits, points)} and "
                f"{_towards(means[-1], known.digits, points)}")
    return f" Whether {who} on {_the(known)} stays undecided: {size}."


def _towards(value: float, digits: int, points: str) -> str:
    """
    >>> _towards(-0.3, 2, " points"), _towards(0.0, 2, "")
    ('0.30 points against the claim', '0.00')
    """
    side = " for the claim" if value > 0 else " against the claim" if value < 0 else ""
    return show(abs(value), enough([value], digits)) + points + side
