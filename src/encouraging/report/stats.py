"""Verdicts: does an arm beat another over seeds, and how sure may one be?

The 95% t interval of the paired differences decides, Holm-adjusted over the claims of a recipe; the exact permutation p
stands beside it. Seeds share data order and initial weights between arms, so differences are taken seed by seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

ALPHA = 0.05
MINIMUM = 3
EXACT_UP_TO = 20
SAME = 1e-9


@dataclass(frozen=True)
class Comparison:
    """Paired differences, claimed side positive: their mean, deviation, interval and how likely chance is."""

    n: int
    mean: float
    std: float
    low: float
    high: float
    level: float
    p_t: float
    p_permutation: float
    verdict: str = "undecided"


def compare(ours: Sequence[float], theirs: Sequence[float], *, better: str = "higher", overlap: float | None = None,
            level: float = 1 - ALPHA) -> Comparison:
    """One claim by itself: positive differences speak for it.

    ``overlap`` is the number of test examples over that of training examples where the runs are random splits of one
    dataset: such runs are not independent, and Nadeau and Bengio's correction widens the interval by
    ``sqrt(1/n + overlap)`` instead of ``sqrt(1/n)``.

    Differences that are all the same have no spread from which an interval could be made: undecided.

    >>> compare([1.0, 2.0, 3.0], [0.9, 1.8, 2.7]).verdict
    'undecided'
    """
    sign = 1.0 if better == "higher" else -1.0
    differences = sign * (np.asarray(ours, float) - np.asarray(theirs, float))
    n = len(differences)
    mean = float(differences.mean()) if n else math.nan
    std = float(differences.std(ddof=1)) if n > 1 else math.nan
    if n < 2 or not np.isfinite(differences).all():
        return Comparison(n, mean, std, math.nan, math.nan, level, math.nan, math.nan)
    if std <= SAME * max(1.0, abs(mean)):  # as few seeds of a counted metric may have it: no spread, so no interval
        return Comparison(n, mean, 0.0, math.nan, math.nan, level, math.nan, permutation_p(differences))
    error = std * math.sqrt(1 / n + (overlap or 0.0))
    reach = float(stats.t.ppf((1 + level) / 2, n - 1)) * error
    p_t = float(2 * stats.t.sf(abs(mean) / error, n - 1))
    found = Comparison(n, mean, std, mean - reach, mean + reach, level, p_t, permutation_p(differences))
    return replace(found, verdict=_verdict(found))


def judge(pairs: Sequence[tuple[Sequence[float], Sequence[float], str]], *,
          overlap: float | None = None) -> list[Comparison]:
    """The claims of a recipe together: ``(ours, theirs, better)`` each, judged by Holm's rule.

    The claim with the smallest p is judged at ``alpha / m``, the next at ``alpha / (m - 1)``, and so on; after the
    first that stays undecided no other is decided. Claims with fewer than three seeds are undecided and do not count.
    """
    alone = [compare(ours, theirs, better=better, overlap=overlap) for ours, theirs, better in pairs]
    countable = [i for i, found in enumerate(alone) if found.n >= MINIMUM]
    judged = list(alone)
    open_ = True
    # A claim without an interval (no spread, or a number that is not finite) counts among the many, and comes last.
    for rank, i in enumerate(sorted(countable, key=lambda i: (math.isnan(alone[i].p_t), alone[i].p_t))):
        ours, theirs, better = pairs[i]
        level = 1 - ALPHA / (len(countable) - rank)
        found = compare(ours, theirs, better=better, overlap=overlap, level=level)
        open_ = open_ and found.verdict != "undecided"
        judged[i] = found if open_ else replace(found, verdict="undecided")
    return judged


def permutation_p(differences: Sequence[float] | np.ndarray) -> float:
    """Two-sided p under swapping the arms within any seed: exact up to 20 pairs, 100000 fixed draws beyond.

    >>> permutation_p([1.0, 2.0, 3.0])
    0.25
    """
    values = np.asarray(differences, float)
    n = len(values)
    seen = abs(values.sum()) * (1 - 1e-12) - 1e-300  # equal sums must count in spite of rounding
    if n > EXACT_UP_TO:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(100_000, n))
        return float((1 + (abs(signs @ values) >= seen).sum()) / (1 + len(signs)))
    sums = np.zeros(1)
    for value in values:  # all 2^n sums by doubling
        sums = np.concatenate([sums - value, sums + value])
    return float((abs(sums) >= seen).mean())


def _verdict(found: Comparison) -> str:
    if found.n < MINIMUM or not (found.low > 0 or found.high < 0):
        return "undecided"
    return "reproduced" if found.low > 0 else "contradicted"


def describe(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation; the latter is NaN for a single value."""
    array = np.asarray(values, float)
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else math.nan
