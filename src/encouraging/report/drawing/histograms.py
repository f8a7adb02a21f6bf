"""Histograms from quantiles: records keep the quantiles of a distribution, not its examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...metrics import LEVELS, mean_spread, shares

BINS = 48
ENDS = 0.005  # the share of the examples at either end that would only stretch the axis


def finite(quantiles: Sequence[float]) -> np.ndarray:
    """Quantiles without infinite ends, which a masked class may leave and no axis can show."""
    row = np.asarray(quantiles, float)
    numbers = row[np.isfinite(row)]
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 0.0)
    return np.asarray(np.nan_to_num(row, nan=low, posinf=high, neginf=low))


def mean_quantiles(spreads: Sequence[Mapping[str, Any]]) -> np.ndarray | None:
    """The mean quantiles of several seeds; None where no seed has all of them."""
    complete = [spread for spread in spreads if len(spread.get("quantiles", ())) == len(LEVELS)]
    return finite(mean_spread(complete)) if complete else None


def bin_edges(rows: Sequence[np.ndarray], include: float | None = None) -> np.ndarray:
    """Bins that hold all but the outermost examples of every row of quantiles."""
    levels = np.asarray(LEVELS)
    low = min(float(np.interp(ENDS, levels, row)) for row in rows)
    high = max(float(np.interp(1 - ENDS, levels, row)) for row in rows)
    if include is not None:
        low, high = min(low, include), max(high, include)
    room = max(0.03 * (high - low), 0.5 if high <= low else 0.0)
    return np.linspace(low - room, high + room, BINS + 1)


def heights(row: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The share of the examples in every bin; never all 0, so that it can be scaled."""
    parts = shares(row.tolist(), edges)
    return parts if parts.max() > 0 else np.ones_like(parts)
