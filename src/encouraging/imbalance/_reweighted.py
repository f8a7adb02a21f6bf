"""A re-weighted loss with one divisor for cross-entropy and another for the bonus."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import curves
from ..curves import Curve
from ..errors import ArgumentError
from ..losses import curve_loss
from ..ops.reduction import label_divisor
from ..ops.rows import compute_dtype
from ..targets import check_class_weight, check_input


def reweighted_loss(input: Tensor, target: Tensor, weight: Tensor, curve: Curve | None = None,
                    ignore_index: int = -100) -> Tensor:
    r"""Cross-entropy as the mean over class weights, and the bonus, weighted too, as the mean over examples.

    .. math:: \ell = \frac{\sum_i w_{y_i}\,\mathrm{CE}_i}{\sum_i w_{y_i}}
              + \frac{1}{n}\sum_i w_{y_i}\,(\varphi_i - \mathrm{CE}_i)

    This is how the authors of the encouraging loss divide in deferred re-weighting. The weights of a batch of mostly
    frequent classes are small, so the bonus counts for less than with ``CurveLoss(curve, weight=weight)``, which
    divides both by the weights.

    Args:
        input: Logits of shape (N, C) or (N, C, d1, ..., dk); those in half precision are read in float32.
        target: Labels.
        weight: One number per class, such as :func:`effective_weights`.
        curve: Cross-entropy and bonus together; by default ``curves.normal()``, the bonus of the paper.
        ignore_index: Rows with this label do not count.

    Returns:
        A single number; NaN where no row counts.

    Raises:
        ArgumentError: The target holds probabilities.
        ShapeError, TargetError, DtypeError: For input, target or weight that do not fit each other.

    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0], [1.0, 1.0]])
    >>> reweighted_loss(logits, torch.tensor([0, 1]), torch.tensor([0.5, 1.5]), curves.cross_entropy())
    tensor(0.5516)
    """
    if isinstance(target, Tensor) and target.is_floating_point():
        raise ArgumentError("reweighted_loss: expected labels as integers, got a target of "
                            f"{str(target.dtype).removeprefix('torch.')}. Pass class indices.")
    check_input(input)
    check_class_weight(weight, None)
    logits = input.to(compute_dtype(input.dtype))
    # By rows, because a label at -inf has an infinite cross-entropy, which must not reach the difference of the sums.
    plain = curve_loss(logits, target, curves.cross_entropy(), weight, ignore_index, "none")
    total = curve_loss(logits, target, curves.normal() if curve is None else curve, weight, ignore_index, "none")
    bonus = torch.where(plain == torch.inf, 0.0, total - plain)
    labels = target.long()  # before the comparison: in uint8, -100 is the label 156
    ignored = labels == ignore_index
    by_weight = label_divisor(labels, weight.to(logits), ignored)  # loss_divisor has no gradient for learned weights
    return plain.sum() / by_weight + bonus.sum() / label_divisor(labels, None, ignored)
