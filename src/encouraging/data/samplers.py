"""The examples of each batch of an epoch. All random numbers come from the generator that is passed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..imbalance import balanced_indices


class Sampler(Protocol):
    """The batches of one epoch, as indices of examples."""

    def batches(self, draw: torch.Generator) -> Sequence[Tensor]: ...


class Shuffled:
    """Every example once per epoch, in random order; or in the order of the data with ``shuffle=False``.

    >>> [batch.tolist() for batch in Shuffled(5, 2, shuffle=False).batches(torch.Generator())]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, count: int, batch_size: int, shuffle: bool = True) -> None:
        self.count, self.batch_size, self.shuffle = count, batch_size, shuffle

    def batches(self, draw: torch.Generator) -> Sequence[Tensor]:
        order = torch.randperm(self.count, generator=draw) if self.shuffle else torch.arange(self.count)
        return torch.split(order, self.batch_size)


class ClassBalanced:
    """As many examples per epoch as the data has, every class as often as any other: see :func:`balanced_indices`.

    A batch holds ``per_class`` examples of each of its classes, and the classes take turns.
    """

    def __init__(self, labels: Tensor, batch_size: int, per_class: int | None = None) -> None:
        if per_class is not None and not 1 <= per_class <= batch_size:
            raise ArgumentError(f"per_class={per_class}: expected 1 to {batch_size}, the examples of a batch.")
        self.labels, self.batch_size, self.per_class = labels.cpu(), batch_size, per_class or 1

    def batches(self, draw: torch.Generator) -> Sequence[Tensor]:
        return torch.split(balanced_indices(self.labels, len(self.labels), draw, self.per_class), self.batch_size)


class ByTokens:
    """Batches of examples of similar length that hold at most ``budget`` tokens, padding counted.

    Examples are sorted by length with random ties and divided into batches, and the batches are shuffled. The number of
    examples of a batch is a multiple of ``multiple`` if possible, so that there are few different shapes.
    """

    def __init__(self, lengths: Tensor, budget: int, *, multiple: int = 1, shuffle: bool = True) -> None:
        longest = int(lengths.max()) if len(lengths) else 0
        if longest > budget:
            raise ArgumentError(f"budget={budget} tokens per batch: the longest example has {longest}. Raise it, or "
                                "leave longer examples out.")
        self.lengths, self.budget, self.multiple, self.shuffle = lengths, budget, multiple, shuffle

    def batches(self, draw: torch.Generator) -> Sequence[Tensor]:
        order = torch.randperm(len(self.lengths), generator=draw) if self.shuffle else torch.arange(len(self.lengths))
        order = order[torch.sort(self.lengths[order], stable=True).indices]
        sizes = self.lengths[order].tolist()
        batches, first = [], 0
        while first < len(sizes):
            last = first + 1
            while last < len(sizes) and sizes[last] * (last + 1 - first) <= self.budget:
                last += 1
            if last < len(sizes):
                last = max(first + 1, first + (last - first) // self.multiple * self.multiple)
            batches.append(order[first:last])
            first = last
        if not self.shuffle:
            return batches
        return [batches[number] for number in torch.randperm(len(batches), generator=draw).tolist()]


class RankBatches:
    """The batches of one rank in an evaluation, in the order of the data. They are complete ones, so that what is in a
    batch does not depend on the number of ranks; ``numbers`` are their places among the batches of all ranks.

    >>> [batch.tolist() for batch in RankBatches(5, 2, rank=1, world=2).batches(torch.Generator())]
    [[2, 3]]
    """

    def __init__(self, count: int, batch_size: int, rank: int = 0, world: int = 1) -> None:
        self.count, self.batch_size = count, batch_size
        self.numbers = range(rank, -(-count // batch_size), world)

    def batches(self, draw: torch.Generator) -> Sequence[Tensor]:
        whole = torch.split(torch.arange(self.count), self.batch_size)
        return [whole[number] for number in self.numbers]
