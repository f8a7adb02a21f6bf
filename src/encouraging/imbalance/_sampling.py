"""Class-balanced sampling: every class as often as every other, however rare it is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..class_counts import class_labels
from ..errors import ArgumentError


def balanced_indices(labels: Tensor | Sequence[int], count: int, generator: torch.Generator,
                     per_class: int = 1) -> Tensor:
    """Positions of ``count`` examples, drawn so that all classes are equally frequent.

    Classes are visited in random order, all of them before one is visited again, and each visit takes ``per_class``
    examples. Within a class all examples are used before one is repeated. With ``per_class=4`` these are the batches of
    the second stage of decoupled training (cRT). Classes without examples are never visited.

    Args:
        labels: (N,) integers: a tensor on the CPU, a numpy array or a list.
        count: Number of positions to draw.
        generator: The only source of randomness: the same state gives the same positions.
        per_class: Examples per visit, consecutive in the result.

    Returns:
        (count,) positions in ``labels``.

    Raises:
        ArgumentError: There are no labels, one is negative, or ``count`` or ``per_class`` is too small.
        DtypeError: The labels are not integers.

    >>> labels = torch.tensor([0] * 8 + [1, 2])
    >>> drawn = balanced_indices(labels, 9, torch.Generator().manual_seed(0))
    >>> torch.bincount(labels[drawn]).tolist()
    [3, 3, 3]
    """
    labels = class_labels(labels, "balanced_indices")
    if labels.ndim != 1 or not len(labels):
        raise ArgumentError(f"balanced_indices: expected labels of the shape (examples,), got {tuple(labels.shape)}.")
    if not (hasattr(count, "__index__") and hasattr(per_class, "__index__")) or count < 0 or per_class < 1:
        raise ArgumentError(f"balanced_indices(count={count!r}, per_class={per_class!r}): expected integers, count of "
                            "at least 0 and per_class of at least 1.")
    present, label, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    visits = -(-count // per_class)
    rounds = -(-visits // len(present))
    # A whole number of rounds, so that each class needs the same number of draws; the surplus is cut off at the end.
    order = torch.rand(rounds, len(present), generator=generator).argsort(1)
    draws = _draws(label, sizes, rounds * per_class, generator).view(len(present), rounds, per_class)
    return draws[order, torch.arange(rounds)[:, None]].reshape(-1)[:count]


def _draws(label: Tensor, sizes: Tensor, needed: int, generator: torch.Generator) -> Tensor:
    """(classes, needed) positions: per class its examples in random order, then in another random order, and so on."""
    passes = -(-needed // sizes)
    # One row per example and pass: sorted by class, then pass, then at random.
    example = torch.arange(len(label)).repeat_interleave(passes[label])
    pass_start = torch.repeat_interleave(passes[label].cumsum(0) - passes[label], passes[label])
    number = torch.arange(len(example)) - pass_start  # of the pass
    shuffled = torch.randperm(len(example), generator=generator)
    shuffled = shuffled[number[shuffled].argsort(stable=True)]
    shuffled = shuffled[label[example[shuffled]].argsort(stable=True)]
    starts = (passes * sizes).cumsum(0) - passes * sizes
    return example[shuffled[starts[:, None] + torch.arange(needed)]]
