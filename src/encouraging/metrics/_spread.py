"""A distribution in a few hundred numbers: quantiles, denser towards both ends.

Unlike a histogram, quantiles need no bins chosen beforehand, so distributions of different scale, of different seeds or
of different models can be drawn on one axis later, and averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from ..errors import ShapeError
from ._inputs import as_tensor

_TAIL = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003)
LEVELS = (0.0, *_TAIL, *(k / 200 for k in range(1, 200)), *(1 - t for t in reversed(_TAIL)), 1.0)


def spread(values: Tensor | np.ndarray) -> dict[str, float | list[float]]:
    """A distribution in a few hundred numbers.

    Args:
        values: (N), numbers of any scale.

    Returns:
        ``mean``, ``std`` and ``quantiles`` (at :data:`LEVELS`) of the finite values, and under ``infinite`` the number
        of the others where there are any. Without finite values: NaN, and no quantiles.

    Raises:
        ShapeError: The values have another number of dimensions than one.

    >>> import torch
    >>> distribution = spread(torch.arange(1001.0))
    >>> distribution["mean"], distribution["quantiles"][LEVELS.index(0.5)]
    (500.0, 500.0)
    """
    values = as_tensor(values)
    if values.ndim != 1:  # sorting goes over the last dimension alone
        raise ShapeError(f"spread: expected the shape (N,), got {tuple(values.shape)}. Use values.flatten().")
    array = np.sort(values.detach().double().cpu().numpy())
    total, array = len(array), array[np.isfinite(array)]
    # Margins are infinite where every class but the label was masked out.
    infinite: dict[str, float | list[float]] = {"infinite": total - len(array)} if total > len(array) else {}
    if not len(array):
        return {"mean": float("nan"), "std": float("nan"), "quantiles": [], **infinite}
    position = np.asarray(LEVELS) * (len(array) - 1)
    low = position.astype(int)
    step = array[np.minimum(low + 1, len(array) - 1)] - array[low]
    return {"mean": float(array.mean()), "std": float(array.std()),
            "quantiles": [float(f"{q:.6g}") for q in array[low] + step * (position - low)], **infinite}


def median(distribution: Mapping[str, float | list[float]]) -> float:
    quantiles = distribution["quantiles"]
    assert isinstance(quantiles, list)
    return quantiles[LEVELS.index(0.5)] if quantiles else float("nan")


def shares(quantiles: Sequence[float], edges: Sequence[float] | np.ndarray) -> np.ndarray:
    """The fraction of the values in each bin ``(low, high]`` between rising ``edges``, from the quantiles alone.

    Equal values are never divided between bins; on the first edge they count too.

    Args:
        quantiles: Those of :func:`spread`.
        edges: The edges of the bins, rising.

    Returns:
        One fraction per bin; 0 everywhere without quantiles.

    >>> import torch
    >>> shares(spread(torch.arange(1001.0))["quantiles"], [0, 250, 1000]).round(3)
    array([0.25, 0.75])
    """
    positions, bin_edges = np.asarray(quantiles, float), np.array(edges, float)
    if not len(positions):
        return np.zeros(len(bin_edges) - 1)
    # Interpolation needs increasing positions: equal quantiles become a very steep ramp that ends at their value.
    first, last = float(positions[0]), float(positions[-1])
    width = max(last - first, abs(first), abs(last), 1e-300) * 1e-12
    rising = positions - width * np.arange(len(positions))[::-1]
    bin_edges[0] -= width * len(positions)
    return np.asarray(np.diff(np.interp(bin_edges, rising, LEVELS, left=0.0, right=1.0)))


def mean_spread(several: Sequence[Mapping[str, float | list[float]]]) -> list[float]:
    """The mean quantile function of several distributions, such as those of an arm's seeds.

    Args:
        several: Results of :func:`spread`; those without quantiles are skipped.

    Returns:
        One number per level of :data:`LEVELS`; none where all distributions are empty.

    >>> import torch
    >>> quantiles = mean_spread([spread(torch.tensor([0.0, 1.0])), spread(torch.tensor([2.0, 3.0]))])
    >>> quantiles[0], quantiles[-1]
    (1.0, 2.0)
    """
    rows = [distribution["quantiles"] for distribution in several if distribution["quantiles"]]
    return [float(value) for value in np.asarray(rows, float).mean(0)] if rows else []
