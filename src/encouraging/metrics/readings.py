"""What a classifier said about each example, in a handful of numbers: all that any metric here needs of its logits.

Every metric of this room is a function of four numbers an example: the label's logit, its best rival, the logsumexp of
the rivals, and how sure the model is of its own choice. They are read off the logits once, block by block; the logits
themselves are not kept. A million examples of any number of classes become 20 MB, and nothing is binned or rounded on
the way, so streamed and whole give the same results.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from ..errors import DtypeError, ShapeError, TargetError

BLOCK = 1 << 18  # logits in a block: one MiB of float32 stays in a core's cache


@dataclass(frozen=True)
class Readings:
    """Labelled examples.

    ``odds`` is the gap of the class that the model chose, whatever the label: the log-odds of its confidence, which
    tells examples apart where the confidence itself has rounded to 1.
    """

    label: Tensor
    score: Tensor
    rival: Tensor
    others: Tensor
    odds: Tensor

    @property
    def margin(self) -> Tensor:
        """The label's logit minus its best rival: positive exactly when the example is classified correctly."""
        return self.score - self.rival

    @property
    def gap(self) -> Tensor:
        """The label's logit minus the logsumexp of its rivals: the log-odds of the label."""
        return self.score - self.others

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
    others: Tensor

    @property
    def odds(self) -> Tensor:
        return self.top - self.others

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


def read(logits: Tensor, target: Tensor) -> Readings:
    """Readings of (N, C) logits with their labels.

    >>> found = read(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]))
    >>> found.margin.item(), found.correct.item()
    (2.0, True)
    """
    check(logits, target)
    parts = []
    for first, block, buffer in _blocks(logits):
        label = target[first : first + len(block)].to(torch.int64)
        score, rival, others = _apart(buffer, label)
        odds = score - others
        wrong = (score <= rival).nonzero()[:, 0]
        if len(wrong):  # the model chose another class than the label: few rows, read once more around that class
            again = block[wrong].to(buffer.dtype)
            chosen, _, rest = _apart(again, again.argmax(1))
            odds[wrong] = chosen - rest
        _refuse_nonfinite(score, others, first)
        parts.append(Readings(label, score, rival, others, odds))
    return Readings.cat(parts)


def read_unlabelled(logits: Tensor) -> Unlabelled:
    """Readings of (N, C) logits without labels."""
    check(logits)
    parts = []
    for first, _, buffer in _blocks(logits):
        top, _, others = _apart(buffer, buffer.argmax(1))
        _refuse_nonfinite(top, others, first)
        parts.append(Unlabelled(top, others))
    return Unlabelled.cat(parts)


def check(logits: Tensor, target: Tensor | None = None) -> None:
    """Whether these can be read at all; labels are looked at."""
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ShapeError(f"logits: expected the shape (examples, classes) with two classes or more, got "
                         f"{tuple(logits.shape)}.")
    if not logits.is_floating_point():
        raise DtypeError(f"logits: expected floating-point numbers, got {logits.dtype}.")
    if target is None:
        return
    if target.shape != logits.shape[:1]:
        raise ShapeError(f"labels: expected one a row of the logits, the shape ({len(logits)},), got "
                         f"{tuple(target.shape)}.")
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise DtypeError(f"labels: expected integers, got {target.dtype}.")
    if len(target):
        low, high = (int(bound) for bound in torch.aminmax(target.to(torch.int64)))
        if low < 0 or high >= logits.shape[1]:
            wrong = int(((target < 0) | (target.to(torch.int64) >= logits.shape[1])).nonzero()[0])
            raise TargetError(f"labels: row {wrong} has {int(target[wrong])}, expected 0 to {logits.shape[1] - 1}; "
                              "leave out rows without a label.")


def _blocks(logits: Tensor) -> Iterable[tuple[int, Tensor, Tensor]]:
    """Pieces of rows, each with a copy in float32 (float64 stays) that may be written over."""
    rows = max(1, BLOCK // logits.shape[1])
    dtype = torch.promote_types(logits.dtype, torch.float32)
    store = torch.empty(min(rows, len(logits)), logits.shape[1], dtype=dtype, device=logits.device)
    for first in range(0, len(logits), rows):
        block = logits[first : first + rows].detach()
        yield first, block, store[: len(block)].copy_(block)


def _apart(buffer: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One class against the rest: its logit, the best and the logsumexp of the others. Writes over the buffer."""
    column = index[:, None]
    score = buffer.gather(1, column)[:, 0]
    buffer.scatter_(1, column, -torch.inf)
    rival = buffer.amax(1)
    pivot = rival.clamp(min=torch.finfo(buffer.dtype).min)  # all others masked out: exp(-inf - (-inf)) would be NaN
    others = rival + buffer.sub_(pivot[:, None]).exp_().sum(1).log_().clamp_(min=0)
    return score, rival, others


def _refuse_nonfinite(score: Tensor, others: Tensor, first: int) -> None:
    bad = ~score.isfinite() | others.isnan() | others.isposinf()
    if bool(bad.any()):
        raise TargetError(f"logits: row {first + int(bad.nonzero()[0])} has NaN or infinite values (-inf is allowed "
                          "for classes that were masked out, except the label's).")
