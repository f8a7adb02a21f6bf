"""Verdicts: does one arm beat another over seeds, and how certain is that?

The 95% t interval of the paired differences decides, Holm-adjusted over the claims of a recipe; the exact permutation p
is reported beside it. Arms share data order and initial weights for each seed, so differences are taken per seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import stats

ALPHA = 0.05
MINIMUM = 3
EXACT_UP_TO = 20
SAME = 1e-9  # differences closer than this, relative to their size, are equal but for rounding


@dataclass(frozen=True)
class Comparison:
    """Paired differences, with the claimed direction as positive: mean, deviation, interval, p values and verdict."""

    n: int
    mean: float
    std: float
    low: float
    high: float
    level: float
    p_t: float
    p_permutation: float
    verdict: str = "undecided"
    differences: tuple[float, ...] = ()


class Mean(NamedTuple):
    """The mean over seeds with its 95% t interval, which a single seed does not have."""

    value: float
    low: float
    high: float
    std: float
    n: int


def paired_differences(ours: Sequence[float], theirs: Sequence[float], better: str = "higher") -> np.ndarray:
    """Ours minus theirs, pair by pair, with the sign changed where lower is better: positive supports the claim.

    >>> paired_differences([3.0, 1.0], [1.0, 2.0], better="lower").tolist()
    [-2.0, 1.0]
    """
    sign = 1.0 if better == "higher" else -1.0
    differences: np.ndarray = sign * (np.asarray(ours, float) - np.asarray(theirs, float))
    return differences


def compare(ours: Sequence[float], theirs: Sequence[float], *, better: str = "higher", overlap: float | None = None,
            level: float = 1 - ALPHA) -> Comparison:
    """One claim by itself: positive differences support it.

    ``overlap`` is the number of test examples over that of training examples where the runs are random splits of one
    dataset: such runs are not independent, and Nadeau and Bengio's correction widens the interval by
    ``sqrt(1/n + overlap)`` instead of ``sqrt(1/n)``.

    Differences that are all equal have no spread from which an interval could be made: undecided.

    >>> compare([1.0, 2.0, 3.0], [0.9, 1.8, 2.7]).verdict
    'undecided'
    """
    differences = paired_differences(ours, theirs, better)
    n = len(differences)
    mean = float(differences.mean()) if n else math.nan
    std = float(differences.std(ddof=1)) if n > 1 else math.nan
    none = Comparison(n, mean, std, math.nan, math.nan, level, math.nan, math.nan,
                      differences=tuple(differences.tolist()))
    if n < 2 or not np.isfinite(differences).all():
        return none
    p_permutation = permutation_p(differences)
    if std <= SAME * max(1.0, abs(mean)):  # as may happen with few seeds of a counted metric: no spread, no interval
        return replace(none, std=0.0, p_permutation=p_permutation)
    error = std * math.sqrt(1 / n + (overlap or 0.0))
    reach = float(stats.t.ppf((1 + level) / 2, n - 1)) * error
    p_t = float(2 * stats.t.sf(abs(mean) / error, n - 1))
    whole = replace(none, low=mean - reach, high=mean + reach, p_t=p_t, p_permutation=p_permutation)
    return replace(whole, verdict=_verdict(whole))


def judge(pairs: Sequence[tuple[Sequence[float], Sequence[float], str]], *,
          overlap: float | None = None) -> list[Comparison]:
    """The claims of a recipe together, ``(ours, theirs, better)`` each, judged by Holm's procedure.

    The claim with the smallest p is judged at ``alpha / m``, the next at ``alpha / (m - 1)``, and so on; after the
    first that is undecided no other is decided. Claims with fewer than three seeds are undecided and do not count.
    """
    alone = [compare(ours, theirs, better=better, overlap=overlap) for ours, theirs, better in pairs]
    countable = [i for i, comparison in enumerate(alone) if comparison.n >= MINIMUM]
    judged = list(alone)
    deciding = True
    # A claim without an interval (no spread, or a number that is not finite) counts among the m, and comes last.
    for rank, i in enumerate(sorted(countable, key=lambda i: (math.isnan(alone[i].p_t), alone[i].p_t))):
        ours, theirs, better = pairs[i]
        level = 1 - ALPHA / (len(countable) - rank)
        comparison = compare(ours, theirs, better=better, overlap=overlap, level=level)
        deciding = deciding and comparison.verdict != "undecided"
        judged[i] = comparison if deciding else replace(comparison, verdict="undecided")
    return judged


def permutation_p(differences: Sequence[float] | np.ndarray) -> float:
    """Two-sided p under swapping the arms of any seed: exact up to 20 pairs, 100000 fixed draws beyond.

    >>> permutation_p([1.0, 2.0, 3.0])
    0.25
    """
    values = np.asarray(differences, float)
    n = len(values)
    observed = abs(values.sum()) - SAME * abs(values).sum()  # equal sums must count in spite of rounding
    if n > EXACT_UP_TO:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(100_000, n))
        return float((1 + (abs(signs @ values) >= observed).sum()) / (1 + len(signs)))
    sums = np.zeros(1)
    for value in values:  # all 2^n sums by doubling
        sums = np.concatenate([sums - value, sums + value])
    return float((abs(sums) >= observed).mean())


def _verdict(comparison: Comparison) -> str:
    if comparison.n < MINIMUM or not (comparison.low > 0 or comparison.high < 0):
        return "undecided"
    return "reproduced" if comparison.low > 0 else "contradicted"


def describe(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation; the latter is NaN for a single value."""
    array = np.asarray(values, float)
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else math.nan


def mean_of(values: Sequence[float | None]) -> Mean:
    """The mean with its interval, over the values that are present and finite.

    >>> [round(x, 2) for x in mean_of([1.0, 2.0, 3.0])]
    [2.0, -0.48, 4.48, 1.0, 3]
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    n = len(finite)
    if not n:
        return Mean(math.nan, math.nan, math.nan, math.nan, 0)
    mean = float(np.mean(finite))
    if n == 1:
        return Mean(mean, math.nan, math.nan, math.nan, 1)
    std = float(np.std(finite, ddof=1))
    reach = float(stats.t.ppf(0.975, n - 1)) * std / math.sqrt(n)
    return Mean(mean, mean - reach, mean + reach, std, n)
