"""The losses of single classes as functions: each class by itself (sigmoid), and squared errors of probabilities."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..curves import Curve
from ..curves._curve import check_curve
from ..ops import dispatch, repeat
from ..ops.elementwise import sigmoid_losses
from ..ops.reduction import Divisor, check_divisor, reduce, writable
from ..ops.rows import compute_dtype
from ..ops.squares import squared_errors, sums_of_squared_errors
from ..presence import check_alpha, check_factor, check_presence
from ..targets import (
    as_rows,
    check_flag,
    check_input,
    check_link,
    check_reduction,
    one_hot,
    result_dtype,
)


def sigmoid_curve_loss(input: Tensor, target: Tensor, curve: Curve, weight: Tensor | None = None,
                       reduction: str = "mean", pos_weight: Tensor | None = None, *, alpha: float | None = None,
                       negative_curve: Curve | None = None, divisor: Divisor = None) -> Tensor:
    r"""``F.binary_cross_entropy_with_logits`` with another curve: each class on its own, any shape.

    .. math:: t\,\omega\,\varphi(\sigma(z)) + (1-t)\,\varphi(1-\sigma(z))

    Args:
        input: Logits of any shape.
        target: 0 or 1 (any integer type or bool), or a probability, of the input's shape. Or the index of the one class
            that is present, for an input with its classes last: (...) for (..., C), which reads less than 0s and 1s; an
            index that names no class, such as -1, stands for none.
        curve: Any of :mod:`encouraging.curves`; ``focal(gamma)`` with ``alpha`` is detection's focal loss.
        weight: Multiplies the losses; broadcasts to the input.
        reduction: ``"none"``, ``"mean"`` (over all elements) or ``"sum"``.
        pos_weight: Multiplies the positive part; broadcasts to the input.
        alpha: Focal loss's balance: positives count ``alpha``, negatives ``1 - alpha``.
        negative_curve: A curve of its own for absent classes; by default the same.
        divisor: With ``reduction="mean"``: divide the summed loss by this number instead of the number of elements,
            for example by the number of positives, as detection does.

    Returns:
        The loss: of the input's shape for ``reduction="none"``, else one number.

    Raises:
        ShapeError, TargetError, DtypeError, ArgumentError: For input, target or arguments that do not fit each other.

    >>> import torch
    >>> from encouraging import curves
    >>> logits, present = torch.tensor([2.0, -1.0]), torch.tensor([1, 0])
    >>> sigmoid_curve_loss(logits, present, curves.normal(), reduction="none")  # minus the gap of each
    tensor([-2., -1.])
    """
    signature = repeat.elementwise_signature(input, target, (curve, negative_curve), weight, pos_weight, alpha,
                                             reduction, divisor)
    same_again = None if signature is None else repeat.find(signature)
    if same_again is not None:
        return same_again(input, target, result_dtype(input), weight, pos_weight, divisor)
    check_curve(curve)
    negative_curve = curve if negative_curve is None else negative_curve
    check_curve(negative_curve)
    check_input(input)
    check_reduction(reduction)
    check_divisor(divisor, reduction)
    check_presence(input, target)
    check_factor("weight", weight, input)
    check_factor("pos_weight", pos_weight, input)
    check_alpha(alpha)
    if dispatch.takes_elementwise(input, target, weight, pos_weight, divisor, curves=(curve, negative_curve)):
        if (signature is not None and input.is_contiguous() and target.is_contiguous()
                and dispatch.kernels().lie_as_read(input, weight, pos_weight)):
            repeat.remember(signature, dispatch.kernels().repeated_sigmoid_loss(curve, negative_curve, alpha,
                                                                                reduction))
        loss: Tensor = dispatch.kernels().sigmoid_loss(
            input, target, curve, negative_curve=negative_curve, weight=weight, pos_weight=pos_weight, alpha=alpha,
            reduction=reduction, divisor=divisor, dtype=result_dtype(input))
    else:
        losses = sigmoid_losses(input, target, curve, negative_curve, weight, pos_weight, alpha)
        loss = reduce(losses, reduction, divisor)
    dtype = result_dtype(input)
    return writable(loss if loss.dtype == dtype else loss.to(dtype))


def mirror_mse_loss(input: Tensor, target: Tensor, *, bonus: bool = True, link: str = "softmax",
                    reduction: str = "mean", divisor: Divisor = None) -> Tensor:
    r"""The squared error of the probabilities, with its mirror as bonus; the mean is over examples and classes.

    .. math:: (y-p)^2 - (y\,p)^2 - ((1-y)(1-p))^2

    For one-hot targets the two together are ``2 |y - p| - 1``, whose slope does not vanish as the error becomes small.

    Args:
        input: Logits as :func:`curve_loss` takes them.
        target: Labels, or probabilities of the input's shape.
        bonus: Whether the mirror bonus is added.
        link: ``"softmax"`` or ``"sigmoid"``.
        reduction: ``"none"`` (the input's shape), ``"mean"`` (over examples and classes) or ``"sum"``.
        divisor: With ``reduction="mean"``: divide the sum by this number instead of the number of elements.

    Returns:
        The loss: of the input's shape for ``reduction="none"``, else one number.

    Raises:
        ShapeError, TargetError, DtypeError, ArgumentError: For input, target or arguments that do not fit each other.

    >>> import torch
    >>> mirror_mse_loss(torch.zeros(1, 2), torch.tensor([0]))  # |y - p| is a half everywhere
    tensor(0.)
    """
    signature = repeat.mse_signature(input, target, bonus, link, reduction, divisor)
    same_again = None if signature is None else repeat.find(signature)
    if same_again is not None:
        return same_again(input, target, result_dtype(input), None, divisor)
    check_flag("bonus", bonus)
    check_link(link)
    check_reduction(reduction)
    check_divisor(divisor, reduction)
    rows = as_rows(input, target)
    if dispatch.takes_elementwise(input, target, divisor, curves=()):
        if (signature is not None and link == "softmax" and bonus and reduction != "none" and not rows.soft
                and input.ndim == 2 and input.numel() and target.is_contiguous() and rows.target is target):
            repeat.remember(signature, dispatch.kernels().repeated_mse_loss(input, reduction, divisor))
        arguments: dict[str, Any] = {"reduction": reduction, "divisor": divisor, "dtype": result_dtype(input)}
        loss: Tensor = dispatch.kernels().mse_loss(rows.logits, rows.target, bonus=bonus, link=link, **arguments)
    elif reduction != "none":
        losses = sums_of_squared_errors(rows, bonus, link)
        # A mean is over examples and classes.
        loss = reduce(losses, reduction, losses.shape[0] * rows.classes if divisor is None else divisor)
    else:
        logits = rows.logits.to(compute_dtype(input.dtype))
        truth = rows.target.to(logits.dtype) if rows.soft else one_hot(rows, logits.dtype)
        loss = squared_errors(logits, truth, bonus, link)
    if reduction == "none":
        axis = min(1, input.ndim - 1)
        loss = loss.reshape(*rows.shape, loss.shape[-1]).movedim(-1, axis)
    dtype = result_dtype(input)
    return writable(loss if loss.dtype == dtype else loss.to(dtype))
