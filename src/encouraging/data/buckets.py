"""Pairs of sentences as batches of a few fixed shapes, each with about the same number of tokens.

Sentences are padded to one of a few lengths. A batch has pairs of one length only, and always the same number of them:
a last batch is filled up with empty pairs. So a CUDA graph or a compiled model sees only one shape per length. All
pairs are on the device, where batches are gathered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError
from .clock import Clock
from .draw import generator
from .pieces import END, PAD, START

LENGTHS = 12  # the engine records at most 16 shapes
MULTIPLE = 8  # of which the rows of a batch are a multiple if possible, for matrix units


# Sentences (rows, length), with an end, and their translations (rows, length + 1), with a start and an end; both are
# padded. An empty pair has a sentence that is only an end and a translation that is only padding.
TokenBatch = tuple[Tensor, Tensor]


def best_lengths(lengths: Sequence[int], number: int = LENGTHS) -> list[int]:
    """The lengths, at most ``number``, to which examples of these lengths are padded with the least padding.

    >>> best_lengths([3, 3, 4, 9, 10], 2)
    [4, 10]
    """
    values, counts = np.unique(np.asarray(lengths), return_counts=True)
    before = np.concatenate([[0], counts.cumsum()])  # examples that are shorter than the i-th value
    cost = np.where(np.arange(len(values) + 1) == 0, 0.0, np.inf)  # of the examples below, with no length yet
    cuts: list[np.ndarray] = []
    for _ in range(min(number, len(values))):
        # From i to j: the examples between the two values are padded to the j-th one.
        steps = cost[:, None] + np.where(np.tri(len(values) + 1, k=-1).T > 0, values[np.maximum(
            np.arange(len(values) + 1) - 1, 0)][None] * (before[None] - before[:, None]), np.inf)
        steps[np.arange(len(values) + 1), np.arange(len(values) + 1)] = cost  # a length may be left unused
        cuts.append(steps.argmin(0))
        cost = steps.min(0)
    chosen, end = [], len(values)
    for cut in reversed(cuts):
        if cut[end] != end:
            chosen.append(int(values[end - 1]))
            end = int(cut[end])
    return chosen[::-1]


class TokenBatches:
    """A source of sentences and their translations, with at most ``budget`` tokens per batch and side, padding counted.

    Every pair occurs once per epoch. The order follows from seed, stage and epoch; the parts of several ranks have one
    shape too.

    Args:
        source: the pieces of every sentence, as indices.
        target: the pieces of its translation.
        budget: the largest number of sentences of a batch times their padded length.
        seed: the seed of the order.
        device: where the pairs are stored.
        shuffle: if false, the pairs are sorted by length, the same in every epoch.
        lengths: the largest number of different lengths.
    """

    def __init__(self, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], budget: int, seed: int,
                 device: torch.device, *, shuffle: bool = True, lengths: int = LENGTHS) -> None:
        pair_lengths = [max(len(one), len(other)) + 1 for one, other in zip(source, target, strict=True)]
        if not pair_lengths:
            raise ArgumentError(f"batches of {budget} tokens: there are no sentences.")
        if max(pair_lengths) > budget:
            raise ArgumentError(f"batches of {budget} tokens: the longest sentence has {max(pair_lengths)} pieces. "
                                "Raise train.batch_size, or leave long sentences out with options.longest.")
        self.seed, self.device, self.shuffle, self.budget = seed, device, shuffle, budget
        self.lengths = best_lengths(pair_lengths, lengths)
        self.members: list[Tensor] = []
        self.tables: list[TokenBatch] = []
        buckets = np.searchsorted(self.lengths, pair_lengths)
        for bucket, length in enumerate(self.lengths):
            indices = np.flatnonzero(buckets == bucket).tolist()
            self.members.append(torch.tensor(indices))
            self.tables.append((
                padded([[*source[i], END] for i in indices] + [[END]], length).to(device),
                padded([[START, *target[i], END] for i in indices] + [[]], length + 1).to(device)))

    def rows(self, bucket: int) -> int:
        """The number of pairs of a batch of this length."""
        rows = self.budget // self.lengths[bucket]
        return rows // MULTIPLE * MULTIPLE if rows >= MULTIPLE else rows

    def length(self, clock: Clock) -> int:
        return sum(-(-len(members) // self.rows(bucket)) for bucket, members in enumerate(self.members))

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[TokenBatch]:
        epoch = self._epoch(generator(self.seed, clock.stage, clock.epoch))[start:]
        parts = []  # of this rank, all moved to the device at once
        for bucket, rows in epoch:
            part = torch.full((-(-self.rows(bucket) // world),), len(self.members[bucket]))  # the empty pair
            own = rows[rank::world]
            part[: len(own)] = own
            parts.append(part)
        index = torch.cat(parts).to(self.device) if parts else torch.empty(0, dtype=torch.long)
        first = 0
        for (bucket, _), part in zip(epoch, parts, strict=True):
            chosen = index[first : first + len(part)]
            first += len(part)
            source, target = self.tables[bucket]
            yield source[chosen], target[chosen]

    def _epoch(self, draw: torch.Generator) -> list[tuple[int, Tensor]]:
        """The batches of an epoch: the bucket, and the rows of its tables."""
        batches: list[tuple[int, Tensor]] = []
        for bucket, members in enumerate(self.members):
            order = torch.randperm(len(members), generator=draw) if self.shuffle else torch.arange(len(members))
            batches += [(bucket, rows) for rows in torch.split(order, self.rows(bucket))]
        if not self.shuffle:
            return batches
        return [batches[number] for number in torch.randperm(len(batches), generator=draw).tolist()]

    @property
    def filling(self) -> float:
        """The fraction of positions that hold a token and not padding, over both sides of all pairs."""
        used = sum(int((table != PAD).sum()) for both in self.tables for table in both)
        return used / sum(table.numel() for both in self.tables for table in both)


def padded(several: Sequence[Sequence[int]], length: int) -> Tensor:
    """Lists of numbers as rows of one length, filled up with padding.

    >>> padded([[5, 6], []], 3).tolist()
    [[5, 6, 0], [0, 0, 0]]
    """
    table = np.full((len(several), length), PAD, dtype=np.int64)
    for row, numbers in enumerate(several):
        table[row, : len(numbers)] = numbers
    return torch.from_numpy(table)
