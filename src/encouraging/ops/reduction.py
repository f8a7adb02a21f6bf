"""From the loss of every row to the number that is returned, and what a mean divides by."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ArgumentError, DtypeError, ShapeError, TargetError
from ..targets import check_class_weight, check_dense, check_label_dtype, checked_ignore_index
from ..torch_state import values_are_readable

Divisor = float | Tensor | None


def reduce(losses: Tensor, reduction: str, divisor: Divisor = None) -> Tensor:
    """The losses as they are, their sum, or their mean: the sum over ``divisor``, by default over their number."""
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.mean() if divisor is None else losses.sum() / divisor


def quotient(total: Tensor, divisor: float | Tensor) -> Tensor:
    """``total / divisor``. Where the divisor is 0, as with all rows ignored, the gradient on ``total`` is 0."""
    if not isinstance(divisor, Tensor):
        return total / divisor
    empty = divisor == 0
    return torch.where(empty, total.detach() / divisor, total / torch.where(empty, 1.0, divisor))


def rows_of(column: Tensor) -> Tensor:
    """The numbers (N) of a column (N, 1) in a tensor of their own, for a Function to return: autograd refuses to change
    a view in place (``loss /= steps``) that a Function made."""
    return torch.squeeze_copy(column, 1)


def writable(loss: Tensor) -> Tensor:
    """A loss that in-place operations accept. For a subclass of Tensor the result of a Function is a view, which
    autograd does not allow to be modified, so it is cloned."""
    if type(loss) is Tensor or torch.compiler.is_compiling() or not loss._is_view():
        return loss
    return loss.clone()


def check_divisor(divisor: Divisor, reduction: str) -> None:
    """Refuse a divisor that no mean asks for, or that is not one number."""
    if divisor is None:
        return
    if reduction != "mean":
        raise ArgumentError(f"divisor with reduction={reduction!r}: it replaces what a mean divides by. Use "
                            "reduction='mean', or leave divisor out and divide the result yourself.")
    if isinstance(divisor, Tensor):
        if divisor.ndim != 0:
            raise ShapeError(f"divisor has shape {tuple(divisor.shape)}: expected one number, a tensor of shape ().")
        if divisor.is_complex() or divisor.dtype == torch.bool:
            raise DtypeError(f"divisor is {divisor.dtype}: expected a real number.")
    elif isinstance(divisor, bool) or not isinstance(divisor, int | float):
        raise DtypeError(f"divisor is a {type(divisor).__name__}: expected a number or a tensor of shape ().")
    elif not 0 < divisor < math.inf:
        raise ArgumentError(f"divisor={divisor!r}: expected a positive number, by which the summed loss is divided.")


def loss_divisor(target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, *,
                 class_dim: int = 1) -> Tensor:
    """What ``reduction="mean"`` divides the summed loss of this target by, as a tensor of shape ().

    For labels that is the number of labels that are not ignored, or the sum of their class weights; for probabilities
    it is the number of examples, as in ``F.cross_entropy``. Sum it over the parts of a batch (accumulation steps,
    ranks), and pass the sum to each part's loss as ``divisor``: the gradients of the parts then add up to the gradient
    of the whole batch. It stays on the target's device and makes nothing wait.

    Args:
        target: Labels of any shape, or probabilities as the loss takes them.
        weight: One number per class, as the loss takes it.
        ignore_index: The label of rows that do not count.
        class_dim: Where probabilities have their classes: 1 for ``curve_loss``, -1 for ``linear_curve_loss``.

    Returns:
        A tensor of shape () on the target's device: a number of rows, or a sum of class weights.

    Raises:
        ShapeError, TargetError, DtypeError, ArgumentError: For a target or arguments that the losses refuse, too.

    >>> loss_divisor(torch.tensor([2, 0, -100, 1]))
    tensor(3)
    >>> loss_divisor(torch.tensor([2, 0, -100, 1]), weight=torch.tensor([1.0, 0.5, 0.25]))
    tensor(1.7500)
    """
    if not isinstance(target, Tensor):
        raise DtypeError(f"target is a {type(target).__name__}: expected a tensor of labels or of probabilities.")
    check_dense("target", target)
    ignore_index = checked_ignore_index(ignore_index)
    if target.is_floating_point() and target.ndim:
        classes = target.shape[_checked_class_dim(class_dim, target.ndim)]
        if weight is not None:
            check_class_weight(weight, classes)
        return torch.full((), target.numel() // max(1, classes), device=target.device)
    check_label_dtype(target, f"target is {target.dtype} of shape {tuple(target.shape)}",
                      "integer labels, or probabilities of shape (C), (N, C) or (N, C, d1, ..., dk)")
    labels = target.long()  # before the comparison: in uint8, -100 is the label 156
    ignored = labels == ignore_index
    if weight is not None:
        check_class_weight(weight, None)
        if weight.device != target.device:
            raise ArgumentError(f"weight is on {weight.device} but target on {target.device}: move one of them.")
        weight = weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
        outside = ((labels < 0) | (labels >= weight.shape[0])) & ~ignored
        if values_are_readable(labels) and bool(outside.any()):
            raise TargetError(f"target holds the label {int(labels[outside][0])}, but weight has {weight.shape[0]} "
                              "classes.")
    return label_divisor(labels, weight, ignored)


def _checked_class_dim(class_dim: int, dims: int) -> int:
    """The dimension of the classes of probabilities with so many dimensions. A single example has no other one."""
    if isinstance(class_dim, bool) or not isinstance(class_dim, int):
        raise ArgumentError(f"class_dim={class_dim!r}: expected an integer, the dimension of the classes.")
    if dims == 1:
        return 0
    if not -dims <= class_dim < dims:
        raise ArgumentError(f"class_dim={class_dim} for a target of {dims} dimensions: expected the dimension of the "
                            f"classes, from {-dims} to {dims - 1}.")
    return class_dim


def label_divisor(labels: Tensor, weight: Tensor | None, ignored: Tensor) -> Tensor:
    """The number of labels that are not ignored, or the sum of their class weights."""
    if weight is None:
        return (~ignored).sum()
    return weight[labels.masked_fill(ignored, 0)].masked_fill(ignored, 0.0).sum()
