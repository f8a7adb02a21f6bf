"""Splits of one dataset: what their differences say beyond it.

The plain interval over splits says how sure a difference is on this dataset, if it were split over and over again. It
does not say what another sample like it would show: all splits share the same examples. Nadeau and Bengio (2003) widen
the interval for that.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy import special

from .stats import Comparison


class OtherSamples(NamedTuple):
    """The interval of the difference on other samples like this dataset, at the level of the comparison; ``least`` is
    half its width with infinitely many splits."""

    low: float
    high: float
    least: float

    def can_decide(self, difference: float) -> bool:
        """Whether enough splits of this dataset could tell such a difference from 0."""
        return abs(difference) > self.least


def on_other_samples(comparison: Comparison, overlap: float) -> OtherSamples | None:
    """Nadeau and Bengio's interval; None where there is no plain one.

    Args:
        comparison: The differences over splits of one dataset.
        overlap: The number of test examples over that of training examples.
    """
    if math.isnan(comparison.low):
        return None
    n, quantile = comparison.n, (1 + comparison.level) / 2
    half_width = float(special.stdtrit(n - 1, quantile)) * comparison.std * math.sqrt(1 / n + overlap)
    least = float(special.ndtri(quantile)) * comparison.std * math.sqrt(overlap)
    return OtherSamples(comparison.mean - half_width, comparison.mean + half_width, least)
