"""Several claims judged together, at one or several looks, so that the error rate of the whole family is controlled.

Holm's procedure goes over the claims, and keeps wrong directions at 5% of the families. Where looks were planned, a
claim's p is the smallest at any look so far, times the number of planned looks (Bonferroni), so it does not matter at
which look the training ends. ``benchmarks/verdicts.py`` measures how often verdicts are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .stats import (
    ALPHA,
    FAILS,
    HOLDS,
    MINIMUM,
    NO_DIFFERENCE,
    UNDECIDED,
    Comparison,
    is_within,
    measured,
    t_interval,
)


class Step(NamedTuple):
    """What Holm's procedure says about one claim: the level of error at which it is judged, and whether it is decided.
    """

    alpha: float
    decided: bool


@dataclass(frozen=True)
class Case:
    """What one claim is judged on.

    ``looks`` has the differences at every look that was taken, the last one last; without planned looks, all of them as
    the only one. ``planned`` is how many looks were planned, 0 where none were. ``so_far`` are differences that wait
    for the first look. ``sought`` is the difference that is looked for. ``withheld`` has the verdicts that cannot be
    given because a run diverged.
    """

    looks: Sequence[np.ndarray]
    planned: int = 0
    so_far: np.ndarray | None = None
    sought: float | None = None
    withheld: frozenset[str] = frozenset()

    @property
    def latest(self) -> np.ndarray:
        return self.looks[-1] if self.looks else self.so_far if self.so_far is not None else np.zeros(0)


def holm(p: Sequence[float]) -> list[Step]:
    """The claim with the smallest p is judged at ``alpha / m``, the next at ``alpha / (m - 1)``, and so on.

    After the first that is not decided no other is, and all that come later keep the level at which it stopped. A claim
    without a p (NaN) counts among the m and comes last.

    >>> [(round(step.alpha, 4), step.decided) for step in holm([0.04, 0.01, 0.03])]
    [(0.025, False), (0.0167, True), (0.025, False)]
    """
    steps: dict[int, Step] = {}
    alpha, rejecting = math.nan, True
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: (math.isnan(p[i]), p[i]))):
        if rejecting:
            alpha = ALPHA / (len(p) - rank)
            rejecting = p[i] < alpha
        steps[i] = Step(alpha, rejecting)
    return [steps[i] for i in range(len(p))]


def judge_cases(cases: Sequence[Case], *, overlap: float | None = None) -> list[Comparison]:
    """Every claim with its verdict. Claims with fewer than three seeds are undecided and do not count."""
    countable = [i for i, case in enumerate(cases) if case.looks and len(case.latest) >= MINIMUM]
    strongest = {i: _strongest_look(cases[i], overlap) for i in countable}
    steps = dict(zip(countable, holm([_adjusted_p(cases[i], strongest[i], overlap) for i in countable]), strict=True))
    strictest = ALPHA / max(len(countable), 1)
    return [_judged(case, steps.get(i), strongest.get(i, 0), strictest, overlap) for i, case in enumerate(cases)]


def _strongest_look(case: Case, overlap: float | None) -> int:
    """The look with the smallest p, counted from 0; the last one where several have it or none has one."""
    intervals = [t_interval(look, overlap) if len(look) >= MINIMUM else None for look in case.looks]
    numbers = [math.inf if interval is None else interval.p for interval in intervals]
    return max(range(len(numbers)), key=lambda look: (-numbers[look], look))


def _adjusted_p(case: Case, look: int, overlap: float | None) -> float:
    """The smallest p so far times the number of looks; NaN where a verdict cannot be given."""
    interval = t_interval(case.looks[look], overlap)
    if interval is None or (HOLDS if interval.mean > 0 else FAILS) in case.withheld:
        return math.nan
    return min(1.0, interval.p * max(case.planned, 1))


def _judged(case: Case, step: Step | None, strongest: int, strictest: float, overlap: float | None) -> Comparison:
    """A case with its verdict, at the look that gave it. ``strongest`` is the look with the smallest p, ``strictest``
    the level of Holm's first step; ``step`` is None for a case with too few seeds."""
    planned = max(case.planned, 1)
    last = max(len(case.looks) - 1, 0)

    def comparison_at(look_index: int, verdict: str, alpha: float) -> Comparison:
        differences = case.looks[look_index] if case.looks else case.latest
        return replace(measured(differences, 1 - alpha / planned, overlap), verdict=verdict, looks=case.planned,
                       look=look_index + 1 if case.planned and case.looks else 0)

    if step is None:
        return comparison_at(last, UNDECIDED, ALPHA)
    if step.decided:
        return comparison_at(strongest, HOLDS if case.looks[strongest].mean() > 0 else FAILS, step.alpha)
    if NO_DIFFERENCE not in case.withheld:
        # At the level of the first claim, however many Holm has decided: a claim whose direction is decided could still
        # have been called "no difference" wrongly, so it still counts here.
        for look_index in range(last, -1, -1):
            interval = t_interval(case.looks[look_index], overlap) if len(case.looks[look_index]) >= MINIMUM else None
            if interval is not None:
                half_width = interval.half_width(1 - strictest / planned)
                if is_within(interval.mean - half_width, interval.mean + half_width, case.sought):
                    return comparison_at(look_index, NO_DIFFERENCE, strictest)
    return comparison_at(last, UNDECIDED, step.alpha)
