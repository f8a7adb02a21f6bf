"""The loss of logits whose classes are split over ranks, as a DTensor."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..curves import Curve
from ..errors import ArgumentError
from .reduction import Divisor


def loss_of_split_classes(input: Any, target: Tensor, curve: Curve, weight: Tensor | None, ignore_index: int,
                          reduction: str, label_smoothing: float, match_norm: bool, divisor: Divisor) -> Tensor:
    """``parallel_curve_loss`` of a DTensor (N, C) with ``Shard(1)``; any other one is refused."""
    from .parallel import parallel_curve_loss

    over_classes = any(placement.is_shard() and placement.dim in (1, -1) for placement in input.placements)
    if input.ndim != 2 or not over_classes or match_norm:
        option = " with match_norm" if match_norm else ""
        raise ArgumentError(
            f"input is a DTensor of shape {tuple(input.shape)}, placed {list(input.placements)}{option}: expected "
            "(N, C) split over the classes, Shard(1). For other placements take the loss of input.to_local(), the rows "
            "of this rank, or of input.full_tensor().")
    return parallel_curve_loss(input, target, curve, weight=weight, ignore_index=ignore_index, reduction=reduction,
                               label_smoothing=label_smoothing, divisor=divisor)
