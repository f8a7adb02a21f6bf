"""A loss over rows of labels as the kernels take it, and room for what they keep of every row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .curves import Constants


class Problem(NamedTuple):
    """A loss over rows of logits, as the kernels take it: the target is flat, and the weight has a
    type of ``dispatch.KERNEL_DTYPES``."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    curve: Constants
    ignore_index: int
    smoothing: float


def empty_state(target: Tensor, smoothing: float, reduced: bool = False) -> Tensor:
    """Room for what :func:`gradient_later` needs of every row; for a sum or a mean it is flat and has one more."""
    rows, numbers = target.shape[0], 7 if smoothing else 4
    return torch.empty(numbers * rows + 1 if reduced else (numbers, rows), dtype=torch.float32, device=target.device)


def empty_lengths(problem: Problem) -> Tensor:
    """Room for the lengths of the rows' gradients."""
    return torch.empty(size=(2, problem.target.shape[0]), dtype=torch.float32, device=problem.logits.device)
