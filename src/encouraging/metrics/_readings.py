"""A few numbers per example, which are all that the metrics of this package need of its logits.

Every metric of this package is a function of four numbers per example: the label's logit, its best rival, how far the
rivals together lie above the best of them, and how sure the model is of its own choice. They are read off the logits
once, block by block; the logits themselves are not kept. A million examples of any number of classes become 24 MB, and
nothing is binned or rounded on the way, so streaming gives the same results as reading everything at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ..errors import DtypeError, TargetError
from ._blocks import blocks, empty_columns, exponentiate, log_odds_of, sum_below_one
from ._inputs import as_tensor, check

LARGE = 2.0**126  # twice this, a difference of two such numbers, is still finite in float32
HUGE = 1e150  # its square, for a standard deviation, is still finite in float64


@dataclass(frozen=True)
class Readings:
    """A few numbers per labelled example, as :func:`read` makes them; each is a tensor of shape (N).

    Attributes:
        label: The label.
        score: The label's logit.
        rival: The logit of the best rival.
        rival_excess: The logsumexp of the rivals minus the best of them, so that margins and gaps come from differences
            and stay exact however large the logits are.
        log_odds: The gap of the class that the model chose, whatever the label: the log-odds of its confidence, which
            orders examples whose confidence has rounded to 1.
    """

    label: Tensor
    score: Tensor
    rival: Tensor
    rival_excess: Tensor
    log_odds: Tensor

    @property
    def margin(self) -> Tensor:
        """The label's logit minus its best rival: positive exactly when the example is classified correctly."""
        return self.score - self.rival

    @property
    def gap(self) -> Tensor:
        """The label's logit minus the logsumexp of its rivals: the log-odds of the label."""
        return (self.score - self.rival) - self.rival_excess

    @property
    def others(self) -> Tensor:
        """The logsumexp of the rivals."""
        return self.rival + self.rival_excess

    @property
    def correct(self) -> Tensor:
        """Whether each example is classified correctly, as by :func:`correct`: a tie is wrong."""
        return self.score > self.rival

    @property
    def confidence(self) -> Tensor:
        return self.log_odds.sigmoid()

    @property
    def highest(self) -> Tensor:
        """The highest logit."""
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
    """Examples without labels, such as out-of-distribution ones, as :func:`read_unlabelled` makes them.

    Attributes:
        highest: (N), the highest logit.
        log_odds: (N), its gap: the log-odds of the model's confidence.
    """

    highest: Tensor
    log_odds: Tensor

    @property
    def others(self) -> Tensor:
        """The logsumexp of all classes but the highest."""
        return self.highest - self.log_odds

    @property
    def confidence(self) -> Tensor:
        return self.log_odds.sigmoid()

    @property
    def lse(self) -> Tensor:
        return torch.logaddexp(self.highest, self.others)

    def __len__(self) -> int:
        return len(self.highest)

    @classmethod
    def cat(cls, parts: Iterable[Self]) -> Self:
        parts = list(parts)
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) if parts else torch.empty(0)
                     for field in fields(cls)))


def read(logits: Tensor | np.ndarray, target: Tensor | np.ndarray, *, first: int = 0) -> Readings:
    """The few numbers per example that the metrics need of logits and labels.

    Args:
        logits: (N, C), two classes or more: a tensor or an array.
        target: (N), integers from 0 to C - 1.
        first: The number of the first row, for error messages.

    Returns:
        The readings, on the device of the logits.

    Raises:
        ShapeError, DtypeError: The logits are not (N, C) floats, or the labels are not (N) integers.
        TargetError: A label names no class, or a row has NaN or infinite logits (-inf is allowed, except the label's).

    >>> readings = read(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]))
    >>> readings.margin.item(), readings.correct.item()
    (2.0, True)
    """
    logits, target = as_tensor(logits, "logits"), as_tensor(target, "labels")
    check(logits, target, first=first)
    label = target.to(torch.int64, copy=True)  # the caller may reuse the storage of the block
    readings = _read(logits, label, first)
    overflow = _large(readings.score) | _large(readings.rival) | (readings.log_odds.isinf() & readings.rival.isfinite())
    if readings.score.dtype == torch.float32 and bool(overflow.any()):
        return _read(logits.double(), label, first)
    return readings


def _read(logits: Tensor, label: Tensor, first: int) -> Readings:
    score, rival, total = empty_columns(logits, 3)
    missed, lower = [], []
    for rows, buffer in blocks(logits):
        column = label[rows, None]
        torch.gather(buffer, 1, column, out=score[rows, None])
        exponentiate(buffer.scatter_(1, column, -torch.inf), rival[rows], total[rows])
        wrong = (score[rows] <= rival[rows]).nonzero()[:, 0]
        if len(wrong):
            missed.append(wrong + rows.start)
            lower.append(sum_below_one(buffer.index_select(0, wrong)))
    _refuse(~score.isfinite() | total.isnan(), first, impossible=(score == -torch.inf) & ~total.isnan())
    margin, excess = score - rival, total.log().clamp_(min=0)
    log_odds = margin - excess
    if missed:  # the model chose another class there, and the label belongs to the others
        wrong = torch.cat(missed)
        log_odds[wrong] = log_odds_of(logits, wrong, rival[wrong], total[wrong], torch.cat(lower), margin[wrong].exp_())
    _refuse_huge(first, score, rival, log_odds)
    return Readings(label, score, rival, excess, log_odds)


def check_readings(readings: object, call: str) -> Readings:
    """Refuse anything else than readings; ``call`` says how the metric is called with logits and labels."""
    if not isinstance(readings, Readings):
        raise DtypeError(f"{call.partition('(')[0]}: expected readings, got {type(readings).__name__}. Pass {call}.")
    return readings


def read_unlabelled(logits: Tensor | np.ndarray, *, first: int = 0) -> Unlabelled:
    """The few numbers per example that the metrics need of logits without labels.

    Args:
        logits: (N, C), two classes or more: a tensor or an array.
        first: The number of the first row, for error messages.

    Returns:
        The readings, on the device of the logits.

    Raises:
        ShapeError, DtypeError, TargetError: As :func:`read`.

    >>> readings = read_unlabelled(torch.tensor([[3.0, 1.0]]))
    >>> readings.highest.item(), readings.log_odds.item()
    (3.0, 2.0)
    """
    logits = as_tensor(logits, "logits")
    check(logits)
    readings = _read_unlabelled(logits, first)
    if readings.log_odds.dtype == torch.float32 and bool((_large(readings.highest) | readings.log_odds.isinf()).any()):
        exact = _read_unlabelled(logits.double(), first)
        if bool((_large(exact.highest) | (exact.log_odds.isfinite() & readings.log_odds.isinf())).any()):
            return exact
    return readings


def _read_unlabelled(logits: Tensor, first: int) -> Unlabelled:
    highest, total, lower = empty_columns(logits, 3)
    for rows, buffer in blocks(logits):
        exponentiate(buffer, highest[rows], total[rows])
        lower[rows] = sum_below_one(buffer)
    _refuse(~highest.isfinite() | total.isnan(), first)
    all_rows = torch.arange(len(logits), device=logits.device)
    log_odds = log_odds_of(logits, all_rows, highest, total, lower, 0.0)
    _refuse_huge(first, highest, log_odds)
    return Unlabelled(highest, log_odds)


def as_floats(values: Tensor) -> Tensor:
    """In float32, or in float64 where a difference of these numbers could overflow."""
    return values.double() if bool(_large(values).any()) else values.float()


def _large(values: Tensor) -> Tensor:
    size = values.abs()
    return (size > LARGE) & (size < torch.inf)


def _refuse(bad: Tensor, first: int, impossible: Tensor | None = None) -> None:
    """Refuse bad rows; where the label's logit is -inf (``impossible``), its loss would be infinite."""
    if not bool(bad.any()):
        return
    row = int(bad.nonzero()[0])
    if impossible is not None and bool(impossible[row]):
        raise TargetError(f"logits: row {first + row} has -inf for its label (-inf is allowed for classes that were "
                          "masked out, except the label's). Where logits are logarithms of probabilities, replace "
                          "probabilities of 0 first: np.log(np.maximum(p, 1e-38)).")
    raise TargetError(f"logits: row {first + row} has NaN or infinite values (-inf is allowed for classes that were "
                      "masked out, except the label's).")


def _refuse_huge(first: int, *columns: Tensor) -> None:
    for values in columns:
        if values.dtype == torch.float64 and bool((huge := (values.abs() > HUGE) & values.isfinite()).any()):
            row = int(huge.nonzero()[0])
            raise TargetError(f"logits: row {first + row} has a number of the size {abs(float(values[row])):g}; "
                              f"expected at most {HUGE:g}. Mask classes out with -inf, or divide all logits.")
