"""Compares the size of our difference with the paper's. A verdict is about the direction alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from .stats import MINIMUM, Comparison

CONSISTENT, SMALLER, LARGER = "consistent", "smaller", "larger"


@dataclass(frozen=True)
class BesidePaper:
    """Our mean difference minus the paper's with its unadjusted 95% interval, and a word for it.

    ``with_spread`` tells whether the paper's own spread is in the interval.
    """

    word: str
    paper: float
    mean: float
    low: float
    high: float
    with_spread: bool

    @property
    def words(self) -> str:
        return f"{self.word} {'with' if self.word == CONSISTENT else 'than'} the paper's"


def beside_paper(comparison: Comparison, paper: float | None, variances: Sequence[float] = (), seeds: int | None = None,
                 overlap: float | None = None) -> BesidePaper | None:
    """Compare a difference with the paper's.

    Args:
        comparison: ours.
        paper: the paper's difference, positive where it supports the claim.
        variances: squared standard errors of the paper's means. They are treated as independent, because the paper does
            not say which of its runs belong together. Degrees of freedom are Welch's and Satterthwaite's.
        seeds: the number of runs behind each of them.
        overlap: as in :func:`~encouraging.judge.stats.compare`.

    Returns:
        None where the paper gives no difference, or where ours has no interval.
    """
    n = comparison.n
    if paper is None or n < MINIMUM or not comparison.std > 0:
        return None
    our_variance = comparison.std**2 * (1 / n + (overlap or 0.0))
    variance = our_variance + sum(variances)
    degrees_of_freedom = variance**2 / (our_variance**2 / (n - 1)
                                        + sum(theirs**2 / ((seeds or 2) - 1) for theirs in variances))
    half_width = float(special.stdtrit(degrees_of_freedom, 0.975)) * math.sqrt(variance)
    mean = comparison.mean - paper
    low, high = mean - half_width, mean + half_width
    word = SMALLER if high < 0 else LARGER if low > 0 else CONSISTENT
    return BesidePaper(word, paper, mean, low, high, bool(variances))
