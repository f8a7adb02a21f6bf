"""A distribution in a few hundred numbers: quantiles, denser towards both ends.

Unlike a histogram, quantiles need no bins chosen beforehand, so distributions of different scale, of different seeds or
of different models can be drawn on one axis later, and averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

_TAIL = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003)
LEVELS = (0.0, *_TAIL, *(k / 200 for k in range(1, 200)), *(1 - t for t in reversed(_TAIL)), 1.0)


def spread(values: Tensor) -> dict[str, float | list[float]]:
    """Mean, deviation and the quantiles at :data:`LEVELS`, of the values that are finite; how many are not is said.

    >>> import torch
    >>> found = spread(torch.arange(1001.0))
    >>> found["mean"], found["quantiles"][LEVELS.index(0.5)]
    (500.0, 500.0)
    """
    array = np.sort(values.detach().double().cpu().numpy())
    whole, array = len(array), array[np.isfinite(array)]
    # The rivals of a label are all infinite where every other class was masked out.
    found: dict[str, float | list[float]] = {"infinite": whole - len(array)} if whole > len(array) else {}
    if not len(array):
        return {"mean": float("nan"), "std": float("nan"), "quantiles": [], **found}
    place = np.asarray(LEVELS) * (len(array) - 1)
    low = place.astype(int)
    step = array[np.minimum(low + 1, len(array) - 1)] - array[low]
    return {"mean": float(array.mean()), "std": float(array.std()),
            "quantiles": [float(f"{q:.6g}") for q in array[low] + step * (place - low)], **found}


def median(found: Mapping[str, float | list[float]]) -> float:
    quantiles = found["quantiles"]
    assert isinstance(quantiles, list)
    return quantiles[LEVELS.index(0.5)] if quantiles else float("nan")


def shares(quantiles: Sequence[float], edges: Sequence[float] | np.ndarray) -> np.ndarray:
    """The share of the values in every bin ``(low, high]`` between rising ``edges``, from the quantiles alone.

    A lump of equal values counts whole, and on the very first edge too.

    >>> import torch
    >>> shares(spread(torch.arange(1001.0))["quantiles"], [0, 250, 1000]).round(3)
    array([0.25, 0.75])
    """
    at, ends = np.asarray(quantiles, float), np.array(edges, float)
    if not len(at):
        return np.zeros(len(ends) - 1)
    # Interpolation needs rising positions: a lump of equal quantiles becomes a very steep ramp that ends at its value.
    width = max(float(at[-1] - at[0]), abs(float(at[0])), abs(float(at[-1])), 1e-300) * 1e-12
    rising = at - width * np.arange(len(at))[::-1]
    ends[0] -= width * len(at)
    return np.asarray(np.diff(np.interp(ends, rising, LEVELS, left=0.0, right=1.0)))


def mean_spread(several: Sequence[Mapping[str, float | list[float]]]) -> list[float]:
    """The mean quantile function of several distributions, such as those of the seeds of an arm. Empty ones have no
    say."""
    rows = [found["quantiles"] for found in several if found["quantiles"]]
    return [float(value) for value in np.asarray(rows, float).mean(0)] if rows else []
