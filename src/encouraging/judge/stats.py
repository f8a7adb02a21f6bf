"""One comparison over seeds: does one side beat the other, and how certain is that?

The t interval of the paired differences decides; the exact permutation p is reported beside it. Arms share data order
and initial weights for each seed, so differences are taken per seed. Several claims are judged together in
:mod:`~encouraging.judge.family`.

The t interval assumes that the differences are about normal. Strongly skewed ones are decided wrongly more often than
at 5% (``benchmarks/skewed_differences.py`` measures how often), so :func:`looks_skewed` marks them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from ..errors import ArgumentError

ALPHA = 0.05
MINIMUM = 3
EXACT_UP_TO = 20
MANY = 100  # pairs above which random signs are drawn eight at a time, and skewness is about normal
DRAWS = 100_000  # of signs, for the permutation p
BLOCK = 1 << 20  # numbers drawn at a time
SAME = 1e-9  # differences closer than this, relative to their size, are equal but for rounding
ROUNDING = 16 * float(np.finfo(float).eps)  # of a number and of the arithmetic that made it, relative to its size
_QUIET = np.errstate(over="ignore", invalid="ignore")  # an infinity or NaN shows in the result, no warning needed
HOLDS, FAILS, NO_DIFFERENCE, UNDECIDED = "holds", "fails", "no difference", "undecided"


@dataclass(frozen=True)
class Comparison:
    """Paired differences, with the claimed direction as positive: mean, deviation, interval, p values and verdict.

    ``look`` is the look that the numbers are of, counted from 1, and ``looks`` how many were planned; both are 0 where
    the number of seeds was chosen in advance.
    """

    n: int
    mean: float
    std: float
    low: float
    high: float
    level: float
    p_t: float
    p_permutation: float
    verdict: str = UNDECIDED
    differences: tuple[float, ...] = ()
    look: int = 0
    looks: int = 0
    skewed: bool = False


class Mean(NamedTuple):
    """The mean over seeds with its 95% t interval, which a single seed does not have."""

    value: float
    low: float
    high: float
    std: float
    n: int


class TInterval(NamedTuple):
    """The mean of paired differences, its standard error, and the two-sided p of the t test against 0."""

    n: int
    mean: float
    standard_error: float
    p: float

    def half_width(self, level: float) -> float:
        """Half of the width of the interval at this level."""
        return float(special.stdtrit(self.n - 1, (1 + level) / 2)) * self.standard_error


@_QUIET
def paired_differences(ours: Sequence[float], theirs: Sequence[float], better: str = "higher") -> np.ndarray:
    """Ours minus theirs, pair by pair, with the sign changed where lower is better: positive supports the claim.

    Differences that are equal but for the rounding of the numbers that were subtracted are made equal: their spread
    says nothing.

    >>> paired_differences([3.0, 1.0], [1.0, 2.0], better="lower").tolist()
    [-2.0, 1.0]
    >>> len(set(paired_differences([0.2, 0.8, 3.0], [0.1, 0.7, 2.9]).tolist()))
    1
    """
    sign = 1.0 if better == "higher" else -1.0
    minuend, subtrahend = np.asarray(ours, float), np.asarray(theirs, float)
    if minuend.shape != subtrahend.shape or better not in ("higher", "lower"):
        raise ArgumentError(f"{minuend.size} numbers with {subtrahend.size} others, better={better!r}: expected pairs, "
                            "as many of one as of the other, and 'higher' or 'lower'.")
    differences: np.ndarray = sign * (minuend - subtrahend)
    if len(differences) and np.isfinite(differences).all():
        size = max(abs(minuend).max(), abs(subtrahend).max())
        if differences.max() - differences.min() <= ROUNDING * size:
            return np.full_like(differences, np.median(differences))
    return differences


@_QUIET
def t_interval(differences: np.ndarray, overlap: float | None = None) -> TInterval | None:
    """None if there is no interval: with fewer than two differences, one that is not finite, or all of them equal."""
    n = len(differences)
    if n < 2 or not np.isfinite(differences).all():
        return None
    mean, std = float(differences.mean()), float(differences.std(ddof=1))
    if std <= SAME * abs(mean):  # as may happen with few seeds of a counted metric
        return None
    standard_error = std * math.sqrt(1 / n + (overlap or 0.0))
    return TInterval(n, mean, standard_error, float(2 * special.stdtr(n - 1, -abs(mean) / standard_error)))


@_QUIET
def measured(differences: np.ndarray, level: float, overlap: float | None = None) -> Comparison:
    """A comparison without its verdict."""
    n = len(differences)
    mean = float(differences.mean()) if n else math.nan
    std = float(differences.std(ddof=1)) if n > 1 else math.nan
    comparison = Comparison(n, mean, std, math.nan, math.nan, level, math.nan, math.nan,
                            differences=tuple(differences.tolist()))
    if n < 2 or not np.isfinite(differences).all():
        return comparison
    comparison = replace(comparison, p_permutation=permutation_p(differences))
    interval = t_interval(differences, overlap)
    if interval is None:
        return replace(comparison, std=0.0)
    half_width = interval.half_width(level)
    return replace(comparison, low=mean - half_width, high=mean + half_width, p_t=interval.p,
                   skewed=looks_skewed(differences))


def compare(ours: Sequence[float], theirs: Sequence[float], *, better: str = "higher", overlap: float | None = None,
            level: float = 1 - ALPHA, sought: float | None = None) -> Comparison:
    """One claim by itself: positive differences support it.

    ``overlap`` is the number of test examples over that of training examples where the runs are random splits of one
    dataset: such runs are not independent, and Nadeau and Bengio's correction widens the interval by
    ``sqrt(1/n + overlap)`` instead of ``sqrt(1/n)``. ``sought`` is the difference that is looked for: an interval that
    lies within half of it of 0 means that there is no difference.

    Differences that are all equal have no spread from which an interval could be made: undecided.

    >>> compare([1.0, 2.0, 3.0], [0.9, 1.8, 2.7]).verdict
    'undecided'
    """
    comparison = measured(paired_differences(ours, theirs, better), level, overlap)
    return replace(comparison, verdict=_verdict(comparison, sought))


def _verdict(comparison: Comparison, sought: float | None) -> str:
    if comparison.n < MINIMUM or math.isnan(comparison.low):
        return UNDECIDED
    if comparison.low > 0 or comparison.high < 0:
        return HOLDS if comparison.low > 0 else FAILS
    return NO_DIFFERENCE if is_within(comparison.low, comparison.high, sought) else UNDECIDED


def is_within(low: float, high: float, sought: float | None) -> bool:
    """Whether an interval lies within half of the sought difference of 0.

    >>> is_within(-0.04, 0.06, 0.14), is_within(-0.04, 0.08, 0.14), is_within(-0.04, 0.06, None)
    (True, False, False)
    """
    return sought is not None and -abs(sought) / 2 < low and high < abs(sought) / 2


def looks_skewed(differences: Sequence[float] | np.ndarray) -> bool:
    """Whether the differences are more skewed than nine in ten sets of as many normal ones; never with fewer than four.

    With five seeds it notices one in four sets of exponential differences, with twenty four in five.

    >>> looks_skewed([0.1, 0.2, 0.1, 0.15, 3.0]), looks_skewed([1.0, 2.0, 3.0, 4.0, 5.0])
    (True, False)
    """
    values = np.asarray(differences, float)
    return len(values) >= 4 and bool(abs(_skewness(values)) > _usual_skewness(len(values)))


@_QUIET
def _skewness(values: np.ndarray) -> np.ndarray:
    """NaN, which exceeds nothing, where all values are equal."""
    centred = values - values.mean(-1, keepdims=True)
    skewness: np.ndarray = (centred**3).mean(-1) / (centred**2).mean(-1) ** 1.5
    return skewness


@lru_cache(maxsize=64)
def _usual_skewness(n: int) -> float:
    """The skewness that one in ten sets of n normal numbers exceeds: from fixed draws, or, for many numbers, from the
    skewness's own standard deviation."""
    if n > MANY:
        return float(special.ndtri(0.95)) * math.sqrt(6 * (n - 2) / ((n + 1) * (n + 3)))
    draws = np.random.default_rng(0).normal(size=(20_000, n))
    return float(np.quantile(abs(_skewness(draws)), 0.9))


def permutation_p(differences: Sequence[float] | np.ndarray) -> float:
    """Two-sided p under swapping the arms of any seed: exact up to 20 pairs, 100000 fixed draws beyond. NaN where a
    difference is not finite.

    >>> permutation_p([1.0, 2.0, 3.0])
    0.25
    """
    values = np.asarray(differences, float)
    n = len(values)
    if not np.isfinite(values).all():
        return math.nan
    observed = abs(values.sum()) - SAME * abs(values).sum()  # equal sums must count in spite of rounding
    if n > EXACT_UP_TO:
        return float((1 + (abs(_random_sums(values)) >= observed).sum()) / (1 + DRAWS))
    sums = values[:1] if n else np.zeros(1)
    for value in values[1:]:  # 2^(n-1) sums by doubling; the others are their negatives
        sums = np.concatenate([sums - value, sums + value])
    return float((abs(sums) >= observed).mean())


def _random_sums(values: np.ndarray) -> np.ndarray:
    """Sums of the values with random signs, from fixed draws, in little memory."""
    random = np.random.default_rng(0)
    if len(values) <= MANY:
        rows = BLOCK // len(values)
        return np.concatenate([random.choice([-1.0, 1.0], size=(min(rows, DRAWS - start), len(values))) @ values
                               for start in range(0, DRAWS, rows)])
    # A random byte stands for the signs of eight values, and is looked up among the 256 sums that these have.
    signs = 1.0 - 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    sums = np.zeros(DRAWS)
    for eight in np.pad(values, (0, -len(values) % 8)).reshape(-1, 8):
        sums += (signs @ eight)[random.integers(256, size=DRAWS, dtype=np.uint8)]
    return sums


@_QUIET
def describe(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation; the latter is NaN for a single value."""
    array = np.asarray(values, float)
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else math.nan


@_QUIET
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
    half_width = float(special.stdtrit(n - 1, 0.975)) * std / math.sqrt(n)
    return Mean(mean, mean - half_width, mean + half_width, std, n)
