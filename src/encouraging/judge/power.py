"""How many seeds would decide a claim: the power of the t test, and how uncertain a spread from few seeds is."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from .stats import MINIMUM, Comparison

POWER = 0.8
MAX_SEEDS = 10_000  # a larger number helps nobody
QUANTILES = (np.arange(500) + 0.5) / 500


class SeedRange(NamedTuple):
    """The numbers of seeds at the two ends of the 95% interval of the standard deviation; None stands for more than
    ``MAX_SEEDS``."""

    fewest: int | None
    most: int | None


def deviation_interval(std: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """The chi-square interval of a standard deviation that was estimated from n values.

    >>> [round(end, 2) for end in deviation_interval(1.0, 5)]
    [0.6, 2.87]
    """
    def end(probability: float) -> float:  # chdtri inverts the upper tail
        return std * math.sqrt((n - 1) / float(special.chdtri(n - 1, probability)))

    return end((1 - level) / 2), end((1 + level) / 2)


def power(difference: float, std: float, n: int, alpha: float, overlap: float | None = None) -> float:
    """The probability that n seeds decide for the claim when this is the true difference: the noncentral t's.

    >>> round(power(1.0, 1.0, 10, 0.05), 3)
    0.803
    """
    critical = float(special.stdtrit(n - 1, 1 - alpha / 2))
    shift = difference / (std * math.sqrt(1 / n + (overlap or 0.0)))
    # As the mean over quantiles of the standard deviation: scipy's noncentral t is NaN for some large shifts.
    deviations = np.sqrt(special.chdtri(n - 1, 1 - QUANTILES) / (n - 1))
    return float(special.ndtr(shift - critical * deviations).mean())


@lru_cache(4096)  # a page shows the same claim several times
def seeds_for(difference: float, std: float, alpha: float, overlap: float | None = None) -> int | None:
    """The smallest number of seeds with 80% power, or None."""
    def enough(n: int) -> bool:
        return power(difference, std, n, alpha, overlap) >= POWER

    if not enough(MAX_SEEDS):
        return None
    low, high = MINIMUM, MAX_SEEDS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def seeds_to_decide(comparison: Comparison, sought: float | None, overlap: float | None = None) -> SeedRange | None:
    """How many seeds would decide the sought difference at 80% power, at the level at which the claim is judged.

    The standard deviation is estimated from the seeds so far, so the answer is a range: the numbers for the two ends of
    its 95% interval, both larger than the number of seeds so far.

    The answer is None if nothing is sought, if there is no spread to start from, or if there are enough seeds already:
    as many as the upper end, or as the lower end if the measured difference contradicts the claim. So many would
    probably have found the sought difference, and more of them promise nothing.
    """
    if sought is None or comparison.n < MINIMUM or not comparison.std > 0:
        return None
    alpha = 1 - comparison.level
    fewest, most = (seeds_for(sought, end, alpha, overlap)
                    for end in deviation_interval(comparison.std, comparison.n))
    enough = fewest if comparison.mean < 0 else most
    if enough is not None and comparison.n >= enough:
        return None
    return SeedRange(None if fewest is None else max(fewest, comparison.n + 1), most)
