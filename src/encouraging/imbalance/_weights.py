"""Class weights from class counts."""

from __future__ import annotations

import torch
from torch import Tensor

from ..class_counts import Counts, class_counts
from ..errors import ArgumentError
from ..margins import number_or_nan


def effective_weights(counts: Counts, beta: float = 0.9999) -> Tensor:
    r"""The inverse of the effective number of samples, scaled to sum to the number of classes.

    .. math:: w_c \propto \frac{1-\beta}{1-\beta^{n_c}}, \qquad \sum_c w_c = C

    Args:
        counts: Training examples per class, all at least 1: a tensor, a numpy array, a list or a tuple of C numbers, or
            a mapping from class index to number.
        beta: 0 gives equal weights, values towards 1 the inverse of the counts.

    Returns:
        (classes,) weights in float32, for the ``weight`` argument of a loss.

    Raises:
        ArgumentError: ``beta`` is not at least 0 and below 1, or a count is below 1.
        DtypeError: The counts are not numbers.

    >>> effective_weights([5, 5])
    tensor([1., 1.])
    """
    if not 0 <= number_or_nan(beta) < 1:
        raise ArgumentError(f"effective_weights(beta={beta!r}): expected 0 <= beta < 1.")
    numbers = class_counts(counts, "effective_weights")
    raw = (1 - beta) / -torch.expm1(numbers * torch.log(torch.tensor(beta, dtype=torch.float64)))
    return (raw * len(raw) / raw.sum()).float()
