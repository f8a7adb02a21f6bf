"""Pairs of sentences as batches of a few fixed shapes that hold about the same number of tokens each.

Sentences are padded to one of a few lengths, and a batch holds pairs of one length only, always the same number of
them: a last batch is filled up with empty pairs. So a CUDA graph or a compiled model sees as many shapes as there are
lengths, and no others. All pairs live on the device; a batch is gathered there.
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
MULTIPLE = 8  # rows of a batch, where it can be: matrix units like it


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
    chosen, at = [], len(values)
    for cut in reversed(cuts):
        if cut[at] != at:
            chosen.append(int(values[at - 1]))
            at = int(cut[at])
    return chosen[::-1]


class TokenBatches:
    """A source of sentences and their translations, with at most ``budget`` tokens per batch and side, padding counted.

    Every pair comes once per epoch. What is drawn follows from seed, stage and epoch; the shares of several ranks have
    one shape too.

    Args:
        source: The numbers of the pieces of every sentence.
        target: Those of its translation.
        budget: Sentences of a batch times their padded length, at most.
        seed: Of the order.
        device: Where the pairs live.
        shuffle: Else the pairs come in the order of their lengths, the same in every epoch.
        lengths: How many lengths there are at most.
    """

    def __init__(self, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], budget: int, seed: int,
                 device: torch.device, *, shuffle: bool = True, lengths: int = LENGTHS) -> None:
        own = [max(len(one), len(other)) + 1 for one, other in zip(source, target, strict=True)]
        if not own or max(own) > budget:
            raise ArgumentError(f"batches of {budget} tokens: "
                                + (f"the longest sentence has {max(own)} pieces. Raise train.batch_size, or leave long "
                                   "sentences out with options.longest." if own else "there are no sentences."))
        self.seed, self.device, self.shuffle, self.budget = seed, device, shuffle, budget
        self.lengths = best_lengths(own, lengths)
        self.members: list[Tensor] = []
        self.tables: list[TokenBatch] = []
        where = np.searchsorted(self.lengths, own)
        for bucket, length in enumerate(self.lengths):
            numbers = np.flatnonzero(where == bucket).tolist()
            self.members.append(torch.tensor(numbers))
            self.tables.append((
                padded([[*source[i], END] for i in numbers] + [[END]], length).to(device),
                padded([[START, *target[i], END] for i in numbers] + [[]], length + 1).to(device)))

    def rows(self, bucket: int) -> int:
        """How many pairs a batch of this length has."""
        rows = self.budget // self.lengths[bucket]
        return rows // MULTIPLE * MULTIPLE if rows >= MULTIPLE else rows

    def length(self, clock: Clock) -> int:
        return sum(-(-len(members) // self.rows(bucket)) for bucket, members in enumerate(self.members))

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[TokenBatch]:
        plan = self._plan(generator(self.seed, clock.stage, clock.epoch))[start:]
        shares = []
        for bucket, rows in plan:
            filled = torch.full((-(-self.rows(bucket) // world),), len(self.members[bucket]))  # the empty pair
            share = rows[rank::world]
            filled[: len(share)] = share
            shares.append(filled)
        index = torch.cat(shares).to(self.device) if shares else torch.empty(0, dtype=torch.long)
        first = 0
        for (bucket, _), share in zip(plan, shares, strict=True):
            chosen = index[first : first + len(share)]
            first += len(share)
            source, target = self.tables[bucket]
            yield source[chosen], target[chosen]

    def _plan(self, draw: torch.Generator) -> list[tuple[int, Tensor]]:
        """The batches of an epoch: a length, and which of its pairs."""
        plan: list[tuple[int, Tensor]] = []
        for bucket, members in enumerate(self.members):
            order = torch.randperm(len(members), generator=draw) if self.shuffle else torch.arange(len(members))
            plan += [(bucket, rows) for rows in torch.split(order, self.rows(bucket))]
        return [plan[at] for at in torch.randperm(len(plan), generator=draw).tolist()] if self.shuffle else plan

    @property
    def filling(self) -> float:
        """The share of positions that hold a token, over both sides of all pairs: what is not lost to padding."""
        used = sum(int((table != PAD).sum()) for both in self.tables for table in both)
        return used / sum(table.numel() for both in self.tables for table in both)


def padded(several: Sequence[Sequence[int]], length: int) -> Tensor:
    """Lists of numbers as rows of one length.

    >>> padded([[5, 6], []], 3).tolist()
    [[5, 6, 0], [0, 0, 0]]
    """
    whole = np.full((len(several), length), PAD, dtype=np.int64)
    for row, numbers in enumerate(several):
        whole[row, : len(numbers)] = numbers
    return torch.from_numpy(whole)
