"""Class-balanced sampling: every class as often as every other, however rare it is."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ArgumentError


def balanced_indices(labels: Tensor, count: int, generator: torch.Generator, per_class: int | None = None) -> Tensor:
    """Positions of ``count`` examples, drawn so that all classes are equally frequent.

    With ``per_class``, classes are visited in random order, all of them before one is visited again, and each visit
    takes that many examples; 4 gives the batches of the second stage of decoupled training (cRT). Without it, the class
    of each example is drawn on its own. Within a class all examples are used before one is repeated. Classes without
    examples are never drawn.

    Args:
        labels: (N,) integers, on the CPU.
        count: Number of positions to draw.
        generator: The only source of randomness: the same state gives the same positions.
        per_class: Examples per visit, consecutive in the result.

    Returns:
        (count,) positions in ``labels``.

    >>> labels = torch.tensor([0] * 8 + [1, 2])
    >>> drawn = balanced_indices(labels, 9, torch.Generator().manual_seed(0), per_class=1)
    >>> torch.bincount(labels[drawn]).tolist()
    [3, 3, 3]
    """
    if labels.ndim != 1 or not len(labels):
        raise ArgumentError(f"balanced_indices: expected labels of the shape (examples,), got {tuple(labels.shape)}.")
    if count < 0 or (per_class is not None and per_class < 1):
        raise ArgumentError(f"balanced_indices(count={count}, per_class={per_class}): expected count of at least 0 and "
                            "per_class of at least 1.")
    present, label, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    if per_class is None:
        classes = torch.randint(len(present), (count,), generator=generator)
    else:
        rounds = -(-count // (per_class * len(present)))
        visits = torch.rand(rounds, len(present), generator=generator).argsort(1).flatten()
        classes = visits.repeat_interleave(per_class)[:count]
    drawn = torch.empty(count, dtype=torch.int64)
    needed = torch.bincount(classes, minlength=len(present))
    drawn[classes.argsort(stable=True)] = _by_class(label, sizes, needed, generator)
    return drawn


def _by_class(label: Tensor, sizes: Tensor, needed: Tensor, generator: torch.Generator) -> Tensor:
    """As many positions as each class needs, class after class: its examples in random order, then in another one."""
    passes = -(-needed // sizes)
    # One row per example and pass: sorted by class, then pass, then at random.
    example = torch.arange(len(label)).repeat_interleave(passes[label])
    earlier = (passes[label].cumsum(0) - passes[label]).repeat_interleave(passes[label])
    number = torch.arange(len(example)) - earlier  # of the pass
    order = torch.randperm(len(example), generator=generator)
    order = order[number[order].argsort(stable=True)]
    order = order[label[example[order]].argsort(stable=True)]
    shown = passes * sizes
    rank = torch.arange(len(example)) - (shown.cumsum(0) - shown).repeat_interleave(shown)
    return example[order[rank < needed.repeat_interleave(shown)]]
