"""A long tail cut from a balanced set: how many examples each class keeps, and which."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..class_counts import class_labels
from ..errors import ArgumentError
from ..margins import number_or_nan


def exponential_counts(largest: int, classes: int, imbalance: float) -> Tensor:
    r"""Examples per class that fall exponentially from the first class to the last.

    .. math:: n_c = \lfloor n_0 \, r^{-c / (C - 1)} \rfloor

    This is the profile of CIFAR-10-LT and CIFAR-100-LT in the literature.

    Args:
        largest: Examples of the first class, :math:`n_0`.
        classes: Number of classes :math:`C`, two or more.
        imbalance: The largest count divided by the smallest, :math:`r`, 1 or more.

    Returns:
        (classes,) integers.

    Raises:
        ArgumentError: The smallest class would have no example, or ``classes`` or ``imbalance`` is too small.

    >>> int(exponential_counts(500, 100, 100).sum()), int(exponential_counts(5000, 10, 100).sum())
    (10847, 12406)
    """
    whole = hasattr(classes, "__index__") and not isinstance(classes, Tensor)
    if not whole or classes < 2 or not 1 <= number_or_nan(imbalance) <= number_or_nan(largest) < math.inf:
        raise ArgumentError(f"exponential_counts(largest={largest!r}, classes={classes!r}, imbalance={imbalance!r}): "
                            "expected two classes or more, an imbalance of 1 or more, and at least as many examples in "
                            "the largest class, so that the smallest keeps one.")
    # The literature's own expression: in other orders a count such as 5.0 may round to 4.
    return torch.tensor([max(1, int(largest * (1 / imbalance) ** (c / (classes - 1)))) for c in range(classes)])


def long_tail_indices(labels: Tensor | Sequence[int], imbalance: float, seed: int = 0) -> Tensor:
    """Which examples of a balanced set an exponential long tail keeps.

    They are drawn at random by ``seed`` alone. The same seed orders each class in the same way for every imbalance, so
    the examples at imbalance 100 are among those at 50.

    Args:
        labels: (N,) labels of the balanced set, each class 0 to the highest with equally many examples.
        imbalance: As for :func:`exponential_counts`.
        seed: Of the draw.

    Returns:
        Positions in ``labels``, rising.

    Raises:
        ArgumentError: The set is not balanced, a label is negative, or the imbalance is below 1 or too large.
        DtypeError: The labels are not integers.

    >>> labels = torch.arange(1000) % 10
    >>> torch.bincount(labels[long_tail_indices(labels, 10)]).tolist()
    [100, 77, 59, 46, 35, 27, 21, 16, 12, 10]
    """
    labels = class_labels(labels, "long_tail_indices")
    available = torch.bincount(labels) if labels.ndim == 1 else labels.new_zeros(0)
    if not len(available) or int(available.min()) != int(available.max()):
        raise ArgumentError("long_tail_indices: expected the labels of a balanced set, each class with equally many "
                            f"examples; got {available.tolist() if len(available) <= 10 else 'unequal'} counts.")
    counts = exponential_counts(int(available[0]), len(available), imbalance).to(labels.device)
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).to(labels.device)
    by_class = shuffled[labels[shuffled].argsort(stable=True)].view(len(available), -1)
    kept = torch.arange(by_class.shape[1], device=labels.device) < counts[:, None]
    return by_class[kept].sort().values
