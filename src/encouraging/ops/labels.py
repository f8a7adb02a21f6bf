"""Targets as the operations on rows take them: labels as a column that is safe to gather with, and the rows to leave
out; probabilities as the mass of every class."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import TargetError
from ..targets import ONE_CLASS_HINT
from ..torch_state import values_are_readable

_FEW_NUMBERS = 1 << 15


def split_ignored(logits: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Labels (N, 1) that are safe to gather with, and the column of rows to leave out, None where there are none.

    A label that names no class is an error where its value can be read. Elsewhere it reaches the gather: a device
    assert on a GPU, an index error in compiled code.
    """
    if values_are_readable(target):
        return split_readable(logits, target, ignore_index)
    target = target.long()  # before the comparison: in uint8, -100 is the label 156
    ignored = target == ignore_index
    return target.masked_fill(ignored, 0)[:, None], ignored[:, None]


def split_readable(logits: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """:func:`split_ignored` of labels whose values can be read."""
    ignored: Tensor | None = None
    low, high = _range(target)
    if low <= ignore_index <= high:
        left_out = target == ignore_index
        target, ignored = target.masked_fill(left_out, 0), left_out.unsqueeze(-1)
        low, high = _range(target)
    classes = logits.shape[1]
    if low < 0 or high >= classes:
        came = f"target holds the label {low if low < 0 else high}, but there "
        if classes == 1:
            raise TargetError(f"{came}is a single class, 0.{ONE_CLASS_HINT}")
        raise TargetError(f"{came}are {classes} classes: expected labels from 0 to {classes - 1}, or "
                          f"ignore_index={ignore_index} for rows to leave out.")
    return target.long().unsqueeze(-1), ignored


def _range(labels: Tensor) -> tuple[int, int]:
    if not labels.numel():
        return 0, 0
    low, high = labels.aminmax()
    return int(low.item()), int(high.item())


def zero_ignored(rows: Tensor, ignored: Tensor | None) -> Tensor:
    """The rows, with 0 in those that are ignored."""
    return rows if ignored is None else rows.masked_fill(ignored, 0.0)


def zero_ignored_(rows: Tensor, ignored: Tensor | None) -> Tensor:
    """:func:`zero_ignored` in place. On a CPU the fill of a mask that is broadcast takes as long as the exponentials of
    all rows, and filling the rows themselves a tenth."""
    if ignored is None:
        return rows
    if rows.numel() < _FEW_NUMBERS or not values_are_readable(rows):
        return rows.masked_fill_(ignored, 0.0)
    return rows.index_fill_(0, ignored[:, 0].nonzero()[:, 0], 0.0)


def soft_mass(target: Tensor, weight: Tensor | None, label_smoothing: float, dtype: torch.dtype) -> Tensor:
    """Class probabilities after smoothing, times the class weights."""
    mass = target.to(dtype)
    if label_smoothing:
        mass = mass * (1 - label_smoothing) + label_smoothing / target.shape[-1]
    return mass if weight is None else mass * weight.to(dtype)
