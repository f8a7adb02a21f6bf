"""The losses as functions. :func:`curve_loss` computes; the named losses call it with their curve."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from . import curves
from .curves import Curve
from .curves._cross_entropy import CrossEntropy
from .curves._curve import check_curve
from .errors import TargetError
from .ops import as_torch, dispatch, reference, repeat
from .ops.elementwise import sigmoid_losses, squared_errors
from .ops.in_place import check_overwritable, curve_loss_and_gradient_
from .ops.linear import linear_curve_loss
from .ops.reduction import Divisor, check_divisor, loss_divisor, reduce, writable
from .ops.small import plain_loss
from .ops.split_classes import loss_of_split_classes
from .ops.stats import LossStats, stats_of, threshold_of
from .targets import (
    as_rows,
    check_alpha,
    check_arguments,
    check_factor,
    check_flag,
    check_input,
    check_link,
    check_presence,
    check_reduction,
    one_hot,
    result_dtype,
)

__all__ = [
    "LossStats", "curve_loss", "curve_loss_and_gradient_", "curve_loss_with_stats", "encouraging_loss", "focal_loss",
    "halted_focal_loss", "linear_curve_loss", "loss_divisor", "mirror_mse_loss", "poly_loss", "sigmoid_curve_loss",
]

_IN_PLAIN_TORCH = ("auto", "reference")  # on a CPU
_cached_encouraging = functools.lru_cache(maxsize=64)(curves.encouraging)  # its checks take longer than its lookup


def curve_loss(input: Tensor, target: Tensor, curve: Curve, weight: Tensor | None = None, ignore_index: int = -100,
               reduction: str = "mean", label_smoothing: float = 0.0, *, match_norm: bool = False,
               divisor: Divisor = None, inplace: bool = False, impl: str = "auto") -> Tensor:
    r"""``F.cross_entropy`` with another curve: the same layouts, arguments, weights, means and dtypes.

    With the curve of cross-entropy itself, fewer than 1 MiB of logits on a GPU are handed to torch.

    .. math:: \ell = \varphi(p_y), \qquad \text{smoothed or soft:}\quad \sum_k q_k\,\varphi(p_k)

    Args:
        input: Logits of shape (C), (N, C) or (N, C, d1, ..., dk).
        target: Labels (the input's shape without C) or probabilities (the input's shape).
        curve: What is taught at which confidence, see :mod:`encouraging.curves`.
        weight: One number per class.
        ignore_index: Rows with this label do not count, whatever their logits hold.
        reduction: ``"none"``, ``"mean"`` (weighted, as in torch) or ``"sum"``.
        label_smoothing: The share of every label that is spread over all classes.
        match_norm: Scale the batch so that the gradient on the logits has the norm of cross-entropy's.
        divisor: With ``reduction="mean"``: divide the summed loss by this number instead of the batch's own count (or
            sum of weights), so that parts of a batch (accumulation steps, ranks) add up to the mean of the whole;
            :func:`loss_divisor` computes it. A tensor of shape () is not read by the host.
        inplace: Allow the gradient to be written over the input, which must be the output of a layer and must not be
            used afterwards. The kernels do so for ``"mean"`` and ``"sum"`` of float32 and bfloat16; elsewhere it has
            no effect.
        impl: ``"auto"``, ``"reference"`` or ``"triton"``.

    Returns:
        The loss: of the target's shape for ``reduction="none"``, else one number.

    Raises:
        ShapeError, TargetError, DtypeError, ArgumentError: For input, target or arguments that do not fit each other.

    >>> import torch
    >>> logits = torch.tensor([[4.0, 0.0, 0.0]])
    >>> curve_loss(logits, torch.tensor([0]), curves.normal())  # minus the gap: log 2 - 4
    tensor(-3.3069)
    """
    if match_norm is not False:
        check_flag("match_norm", match_norm)
    if type(curve) is CrossEntropy and divisor is None and not match_norm and not inplace:
        by_torch = as_torch.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing, impl)
        if by_torch is not None:
            return by_torch
    signature = None
    dense = getattr(input, "layout", None) is torch.strided is getattr(target, "layout", None)
    if dense and not inplace:
        signature = repeat.signature(input, target, curve, weight, ignore_index, reduction, label_smoothing, divisor,
                                     impl, match_norm)
        same_again = None if signature is None else repeat.find(signature)
        if same_again is not None:
            dtype = torch.float32 if input.dtype is torch.float32 else result_dtype(input, target)
            return same_again(input, target, dtype, weight, divisor, curve)
        if divisor is None and type(label_smoothing) is float and impl in _IN_PLAIN_TORCH and not match_norm:
            of_small_batch = None if label_smoothing else plain_loss(input, target, curve, weight, ignore_index,
                                                                     reduction)
            if of_small_batch is None:
                of_small_batch = reference.plain_mass_loss(input, target, curve, weight, ignore_index, reduction,
                                                           label_smoothing)
            if of_small_batch is not None:
                return of_small_batch
    check_curve(curve)
    if divisor is not None:
        check_divisor(divisor, reduction)
    if type(input).__name__ == "DTensor":
        return loss_of_split_classes(input, target, curve, weight, ignore_index, reduction, label_smoothing, match_norm,
                                     divisor)
    rows = as_rows(input, target)
    ignore_index = check_arguments(rows, weight, ignore_index, reduction, label_smoothing)
    labels = rows.target
    arguments: dict[str, Any] = {"weight": weight, "label_smoothing": label_smoothing}
    if inplace:
        check_overwritable(input)
    own_curves = not rows.soft and not label_smoothing
    by_kernels = dispatch.choose(impl, input, labels, curve, own_curves=own_curves,
                                 others=(weight, divisor)) == "triton"
    if match_norm and not by_kernels:
        factor = reference.match_norm_factor(rows.logits, labels, curve, weight=weight, ignore_index=ignore_index,
                                             label_smoothing=label_smoothing)
    if by_kernels:
        if (signature is not None and labels is target and input.ndim == 2
                and (rows.soft or target.is_contiguous())):
            repeat.remember(signature, dispatch.kernels().repeated_loss(
                curve if repeat.is_own(curve) else None, ignore_index, label_smoothing, reduction, rows.soft,
                match_norm))
        loss: Tensor = dispatch.kernels().rows_loss(rows, curve, ignore_index=ignore_index, reduction=reduction,
                                                    divisor=divisor, inplace=inplace, match_norm=match_norm,
                                                    **arguments)
    else:
        arguments["reduction"] = reduction if divisor is None else "sum"
        if rows.soft:
            loss = reference.soft_loss(rows.logits, labels, curve, **arguments)
        else:
            loss = reference.hard_loss(rows.logits, labels, curve, ignore_index=ignore_index, **arguments)
        loss = loss if divisor is None else loss / divisor
        loss = loss * factor if match_norm else loss
    if reduction == "none" and loss.shape != rows.shape:
        loss = loss.reshape(rows.shape)
    dtype = result_dtype(input, labels)
    return writable(loss if loss.dtype == dtype else loss.to(dtype))


def curve_loss_with_stats(input: Tensor, target: Tensor, curve: Curve, weight: Tensor | None = None,
                          ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0, *,
                          past: float | None = None, divisor: Divisor = None, inplace: bool = False,
                          impl: str = "auto") -> tuple[Tensor, LossStats]:
    """:func:`curve_loss` together with its by-products: p of the label, logsumexp, prediction, share of learned rows.

    The kernels have these numbers anyway, so that accuracy and confidence need no second pass over the logits; the
    reference computes them in one.

    Args:
        input, target, curve, weight, ignore_index, reduction, label_smoothing, divisor, inplace, impl: As in
            :func:`curve_loss`; the target holds labels.
        past: The probability above which :attr:`LossStats.past` counts a row. By default the curve's own ``log_end``
            (``start``, ``halt``), or 1/2.

    Returns:
        The loss, and its :class:`LossStats`.

    >>> import torch
    >>> logits, labels = torch.tensor([[4.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 0])
    >>> loss, stats = curve_loss_with_stats(logits, labels, curves.conservative(0.75))
    >>> stats.p, stats.past
    (tensor([0.9647, 0.2119]), tensor(0.5000))
    >>> (stats.argmax == labels).float().mean()  # accuracy
    tensor(0.5000)
    """
    check_curve(curve)
    check_divisor(divisor, reduction)
    threshold = threshold_of(curve, past)
    rows = as_rows(input, target)
    if rows.soft:
        raise TargetError("the target holds probabilities: by-products are about labels. Use curve_loss, or pass "
                          "target.argmax(1).")
    ignore_index = check_arguments(rows, weight, ignore_index, reduction, label_smoothing)
    if dispatch.choose(impl, input, rows.target, curve, others=(weight, divisor)) != "triton":
        loss = curve_loss(input, target, curve, weight, ignore_index, reduction, label_smoothing, divisor=divisor,
                          inplace=inplace, impl="reference")
        return loss, stats_of(rows.logits, rows.target, ignore_index, threshold, rows.shape)
    if inplace:
        check_overwritable(input)
    loss, (*by_products, share) = dispatch.kernels().rows_loss(
        rows, curve, weight=weight, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction,
        divisor=divisor, inplace=inplace, stats=threshold)
    loss = loss.reshape(rows.shape) if reduction == "none" else loss
    p, lse, argmax = (flat.reshape(rows.shape) for flat in by_products)
    return loss.to(result_dtype(input)), LossStats(p, lse, argmax, share)


def encouraging_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
                     reduction: str = "mean", label_smoothing: float = 0.0, *, log_end: float = 0.75,
                     eps: float = 1e-5, match_norm: bool = False, divisor: Divisor = None,
                     impl: str = "auto") -> Tensor:
    """Cross-entropy plus the bonus that keeps well-classified examples in play: :func:`curves.encouraging`.

    ``log_end`` is the probability at which the log bonus becomes a line. 0.5 and 0.75 work with learning rates that
    were tuned for cross-entropy; 1 (no line, only the clamp at ``eps``) needs about half of them, or
    ``match_norm=True``. The other arguments are those of :func:`curve_loss`.

    >>> import torch
    >>> encouraging_loss(torch.tensor([[4.0, 0.0, 0.0]]), torch.tensor([0]))
    tensor(-2.2090)
    """
    cacheable = type(log_end) is float and type(eps) is float and not torch.compiler.is_compiling()
    curve = _cached_encouraging(log_end, eps) if cacheable else curves.encouraging(log_end, eps)
    return curve_loss(input, target, curve, weight, ignore_index, reduction, label_smoothing, match_norm=match_norm,
                      divisor=divisor, impl=impl)


def focal_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
               reduction: str = "mean", label_smoothing: float = 0.0, *, gamma: float = 2.0,
               match_norm: bool = False, divisor: Divisor = None, impl: str = "auto") -> Tensor:
    """Focal loss over a softmax: :func:`curves.focal`. For detection's form see :func:`sigmoid_curve_loss`."""
    return curve_loss(input, target, curves.focal(gamma), weight, ignore_index, reduction, label_smoothing,
                      match_norm=match_norm, divisor=divisor, impl=impl)


def halted_focal_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
                      reduction: str = "mean", label_smoothing: float = 0.0, *, gamma: float = 2.0,
                      halt: float = 0.5, match_norm: bool = False, divisor: Divisor = None,
                      impl: str = "auto") -> Tensor:
    """Focal loss that becomes cross-entropy past p = ``halt``: :func:`curves.halted_focal`."""
    return curve_loss(input, target, curves.halted_focal(gamma, halt), weight, ignore_index, reduction,
                      label_smoothing, match_norm=match_norm, divisor=divisor, impl=impl)


def poly_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
              reduction: str = "mean", label_smoothing: float = 0.0, *, epsilon: float = 1.0,
              match_norm: bool = False, divisor: Divisor = None, impl: str = "auto") -> Tensor:
    """PolyLoss's first term: :func:`curves.poly`."""
    return curve_loss(input, target, curves.poly(epsilon), weight, ignore_index, reduction, label_smoothing,
                      match_norm=match_norm, divisor=divisor, impl=impl)


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
        curve: What is taught at which confidence; ``curves.focal(gamma)`` with ``alpha`` is detection's focal loss.
        weight: Multiplies the losses; broadcasts to the input.
        reduction: ``"none"``, ``"mean"`` (over all elements) or ``"sum"``.
        pos_weight: Multiplies the positive part; broadcasts to the input.
        alpha: Focal loss's balance: positives count ``alpha``, negatives ``1 - alpha``.
        negative_curve: A curve of its own for absent classes; by default the same.
        divisor: With ``reduction="mean"``: divide the summed loss by this number instead of the number of elements,
            for example by the number of positives, as detection does.

    Returns:
        The loss: of the input's shape for ``reduction="none"``, else one number.

    >>> import torch
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
    else:
        logits = rows.logits.to(reference.compute_dtype(input.dtype))
        truth = rows.target.to(logits.dtype) if rows.soft else one_hot(rows, logits.dtype)
        loss = reduce(squared_errors(logits, truth, bonus, link), reduction, divisor)
    if reduction == "none":
        axis = min(1, input.ndim - 1)
        loss = loss.reshape(*rows.shape, loss.shape[-1]).movedim(-1, axis)
    dtype = result_dtype(input)
    return loss if loss.dtype == dtype else loss.to(dtype)
