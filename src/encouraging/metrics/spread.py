"""A distribution in a few hundred numbers: quantiles, denser towards both ends.

Unlike a histogram, quantiles need no bins chosen beforehand, so distributions of different scale, of different seeds or
of different models can be drawn on one axis later, and averaged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

_TAIL = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003)
LEVELS = (0.0, *_TAIL, *(k / 200 for k in range(1, 200)), *(1 - t for t in reversed(_TAIL)), 1.0)


def spread(values: Tensor) -> dict[str, float | list[float]]:
    """Mean, deviation and the quantiles at :data:`LEVELS`.

    >>> found = spread(torch.arange(1001.0))
    >>> found["mean"], found["quantiles"][LEVELS.index(0.5)]
    (500.0, 500.0)
    """
    array = np.sort(values.detach().double().cpu().numpy())
    if not len(array):
        return {"mean": float("nan"), "std": float("nan"), "quantiles": []}
    return {"mean": float(array.mean()), "std": float(array.std()),
            "quantiles": [float(f"{q:.6g}") for q in np.quantile(array, LEVELS)]}


def median(found: dict[str, float | list[float]]) -> float:
    quantiles = found["quantiles"]
    assert isinstance(quantiles, list)
    return quantiles[LEVELS.index(0.5)] if quantiles else float("nan")


def shares(quantiles: Sequence[float], edges: Sequence[float] | np.ndarray) -> np.ndarray:
    """The share of the values in every bin between ``edges``, from the quantiles alone.

    >>> shares(spread(torch.arange(1001.0))["quantiles"], [0, 250, 1000]).round(3)
    array([0.25, 0.75])
    """
    at = np.asarray(quantiles, float)
    levels = np.asarray(LEVELS)
    # Equal quantiles are a lump of equal values: its whole mass lies where the lump is.
    below = np.interp(edges, *_steps(at, levels), left=0.0, right=1.0)
    return np.asarray(np.diff(below))


def _steps(at: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Strictly rising positions for interpolation; a lump becomes a very steep ramp that ends at its value."""
    width = max(float(at[-1] - at[0]), abs(float(at[-1])), 1.0) * 1e-12
    rising = at - width * np.arange(len(at))[::-1]
    return np.maximum.accumulate(rising), levels


def mean_spread(several: Sequence[dict[str, float | list[float]]]) -> list[float]:
    """The mean quantile function of several distributions, such as those of the seeds of an arm."""
    rows = np.asarray([found["quantiles"] for found in several], float)
    return [float(value) for value in rows.mean(0)]
