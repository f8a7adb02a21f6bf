"""What a classifier said about each example, in a handful of numbers: all that any metric here needs of its logits.

Every metric of this room is a function of four numbers an example: the label's logit, its best rival, how far the
rivals together lie above the best of them, and how sure the model is of its own choice. They are read off the logits
once, block by block; the logits themselves are not kept. A million examples of any number of classes become 24 MB, and
nothing is binned or rounded on the way, so streamed and whole give the same results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ..errors import DtypeError, ShapeError, TargetError

BLOCK = 1 << 18  # logits a core at a time: with their copy in float32 they stay in its cache
BLOCK_ON_GPU = 1 << 26
FAINT = 1e-30  # a sum of exponentials below this may have lost terms to underflow


@dataclass(frozen=True)
class Readings:
    """Labelled examples.

    ``rest`` is the logsumexp of the rivals less the best of them, so that margins and gaps come from differences and
    stay exact however large the logits are. ``odds`` is the gap of the class that the model chose, whatever the label:
    the log-odds of its confidence, which tells examples apart where the confidence itself has rounded to 1.
    """

    label: Tensor
    score: Tensor
    rival: Tensor
    rest: Tensor
    odds: Tensor

    @property
    def margin(self) -> Tensor:
        """The label's logit minus its best rival: positive exactly when the example is classified correctly."""
        return self.score - self.rival

    @property
    def gap(self) -> Tensor:
        """The label's logit minus the logsumexp of its rivals: the log-odds of the label."""
        return (self.score - self.rival) - self.rest

    @property
    def others(self) -> Tensor:
        """The logsumexp of the rivals."""
        return self.rival + self.rest

    @property
    def correct(self) -> Tensor:
        """A tie is no decision, and counts as wrong."""
        return self.score > self.rival

    @property
    def confidence(self) -> Tensor:
        return self.odds.sigmoid()

    @property
    def top(self) -> Tensor:
        return torch.maximum(self.score, self.rival)

    @property
    def lse(self) -> Tensor:
        return torch.logaddexp(self.score, self.others)

    def __len__(self) -> int:
        return len(self.label)

    @classmethod
    def cat(cls, parts: Iterable[Self]) -> Self:
        """Readings of several parts, or ranks, as one."""
        parts = list(parts)
        if not parts:
            empty = torch.empty(0)
            return cls(torch.empty(0, dtype=torch.int64), empty, empty, empty, empty)
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))


@dataclass(frozen=True)
class Unlabelled:
    """Examples without labels, such as those from outside the training distribution."""

    top: Tensor
    odds: Tensor

    @property
    def others(self) -> Tensor:
        """The logsumexp of all classes but the highest."""
        return self.top - self.odds

    @property
    def confidence(self) -> Tensor:
        return self.odds.sigmoid()

    @property
    def lse(self) -> Tensor:
        return torch.logaddexp(self.top, self.others)

    def __len__(self) -> int:
        return len(self.top)

    @classmethod
    def cat(cls, parts: Iterable[Self]) -> Self:
        parts = list(parts)
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) if parts else torch.empty(0)
                     for field in fields(cls)))


def read(logits: Tensor | np.ndarray, target: Tensor | np.ndarray, *, first: int = 0) -> Readings:
    """Readings of (N, C) logits with their labels, tensors or arrays; errors count rows from ``first``.

    >>> found = read(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]))
    >>> found.margin.item(), found.correct.item()
    (2.0, True)
    """
    logits, target = as_tensor(logits), as_tensor(target)
    check(logits, target, first=first)
    label = target.to(torch.int64, copy=True)  # readings outlive the block, whose storage may be used again
    score, rival, mass = _empty(logits, 3)
    wrong, below = [], []
    for rows, buffer in _blocks(logits):
        column = label[rows, None]
        torch.gather(buffer, 1, column, out=score[rows, None])
        _mass(buffer.scatter_(1, column, -torch.inf), rival[rows], mass[rows])
        missed = (score[rows] <= rival[rows]).nonzero()[:, 0]
        if len(missed):
            wrong.append(missed + rows.start)
            below.append(_below(buffer.index_select(0, missed)))
    _refuse(~score.isfinite() | mass.isnan(), first)
    margin, rest = score - rival, mass.log().clamp_(min=0)
    odds = margin - rest
    if wrong:  # there the model chose another class, and the label is one of the others
        chosen = torch.cat(wrong)
        odds[chosen] = _odds(logits, chosen, rival[chosen], mass[chosen], torch.cat(below), margin[chosen].exp_())
    return Readings(label, score, rival, rest, odds)


def read_unlabelled(logits: Tensor | np.ndarray, *, first: int = 0) -> Unlabelled:
    """Readings of (N, C) logits without labels."""
    logits = as_tensor(logits)
    check(logits)
    top, mass, below = _empty(logits, 3)
    for rows, buffer in _blocks(logits):
        _mass(buffer, top[rows], mass[rows])
        below[rows] = _below(buffer)
    _refuse(~top.isfinite() | mass.isnan(), first)
    return Unlabelled(top, _odds(logits, torch.arange(len(logits), device=logits.device), top, mass, below, 0.0))


def as_tensor(values: Tensor | np.ndarray) -> Tensor:
    """Arrays of any library that numpy can read, without a copy where there need be none."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def check(logits: Tensor, target: Tensor | None = None, *, first: int = 0) -> None:
    """Whether these can be read at all; labels are looked at."""
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ShapeError(f"logits: expected the shape (examples, classes) with two classes or more, got "
                         f"{tuple(logits.shape)}.")
    if not logits.is_floating_point() or logits.dtype.itemsize == 1:
        raise DtypeError(f"logits: expected floating-point numbers, got {logits.dtype}.")
    if target is None:
        return
    if target.shape != logits.shape[:1]:
        raise ShapeError(f"labels: expected one a row of the logits, the shape ({len(logits)},), got "
                         f"{tuple(target.shape)}.")
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise DtypeError(f"labels: expected integers, got {target.dtype}.")
    if len(target):
        label = target.to(torch.int64)  # torch compares no unsigned integers but bytes
        low, high = (int(bound) for bound in torch.aminmax(label))
        if low < 0 or high >= logits.shape[1]:
            wrong = int(((label < 0) | (label >= logits.shape[1])).nonzero()[0])
            raise TargetError(f"labels: row {first + wrong} has {int(label[wrong])}, expected 0 to "
                              f"{logits.shape[1] - 1}; leave out rows without a label.")


def _empty(logits: Tensor, several: int) -> list[Tensor]:
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return [torch.empty(len(logits), dtype=dtype, device=logits.device) for _ in range(several)]


def _blocks(logits: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Pieces of rows, copied in float32 (float64 stays) to where they may be written over."""
    size = BLOCK * torch.get_num_threads() if logits.device.type == "cpu" else BLOCK_ON_GPU
    step = max(1, min(size // logits.shape[1], len(logits)))
    dtype = torch.promote_types(logits.dtype, torch.float32)
    store = torch.empty(step, logits.shape[1], dtype=dtype, device=logits.device)
    for first in range(0, len(logits), step):
        block = logits[first : first + step].detach()
        yield slice(first, first + len(block)), store[: len(block)].copy_(block)


def _mass(buffer: Tensor, top: Tensor, mass: Tensor) -> None:
    """The highest of every row, and the sum of exp(z - highest); these powers are left in the buffer."""
    torch.amax(buffer, 1, out=top)
    pivot = top.clamp(min=torch.finfo(buffer.dtype).min)  # all masked out: exp(-inf - (-inf)) would be NaN
    torch.sum(buffer.sub_(pivot[:, None]).exp_(), 1, out=mass)


def _below(powers: Tensor) -> Tensor:
    """The sum of the powers that are less than 1, the highest's. Its place is not looked for: in torch an argmax costs
    as much as everything else together."""
    return powers.frac_().sum(1)


def _odds(logits: Tensor, rows: Tensor, top: Tensor, mass: Tensor, below: Tensor, label: Tensor | float) -> Tensor:
    """The log-odds of the highest class of these rows against all others; ``label`` is what a label that was left out
    of the mass adds to them."""
    ties = (mass - below).round_() - 1
    others = below + ties + label
    odds = -others.log()
    far = (others < FAINT).nonzero()[:, 0]  # so far below that exp underflows: measured from their own highest
    for part in torch.split(far, max(1, BLOCK // logits.shape[1])):
        again = logits[rows[part]].detach().to(top.dtype)
        second, mass = torch.empty_like(top[part]), torch.empty_like(top[part])
        _mass(again.masked_fill_(again >= top[part, None], -torch.inf), second, mass)
        odds[part] = (top[part] - second) - mass.log().clamp_(min=0)
    return odds


def _refuse(bad: Tensor, first: int) -> None:
    if bool(bad.any()):
        raise TargetError(f"logits: row {first + int(bad.nonzero()[0])} has NaN or infinite values (-inf is allowed "
                          "for classes that were masked out, except the label's).")
