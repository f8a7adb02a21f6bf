"""The losses as functions. Each names a curve; :func:`curve_loss` does the work."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import curves
from .curves import Curve
from .curves._curve import nll
from .errors import ArgumentError, DtypeError
from .links import class_gaps, sigmoid_gap
from .ops import dispatch, reference
from .ops.elementwise import curve_values
from .ops.linear import linear_curve_loss
from .targets import (
    as_rows,
    check_alpha,
    check_arguments,
    check_factor,
    check_input,
    check_link,
    check_presence,
    check_reduction,
    one_hot,
    reduce,
    result_dtype,
)

__all__ = [
    "curve_loss", "encouraging_loss", "focal_loss", "halted_focal_loss", "linear_curve_loss", "mirror_mse_loss",
    "poly_loss", "sigmoid_curve_loss",
]


def curve_loss(input: Tensor, target: Tensor, curve: Curve, weight: Tensor | None = None, ignore_index: int = -100,
               reduction: str = "mean", label_smoothing: float = 0.0, *, match_norm: bool = False,
               impl: str = "auto") -> Tensor:
    r"""``F.cross_entropy`` with another curve: the same layouts, arguments, weights, means and dtypes.

    .. math:: \ell = \varphi(p_y), \qquad \text{smoothed or soft:}\quad \sum_k q_k\,\varphi(p_k)

    Args:
        input: Logits of shape (C), (N, C) or (N, C, d1, ..., dk).
        target: Labels (the input's shape without C) or probabilities (the input's shape).
        curve: What is taught at which confidence, see :mod:`encouraging.curves`.
        weight: One number a class.
        ignore_index: Rows of this label count nothing, whatever their logits hold.
        reduction: ``"none"``, ``"mean"`` (weighted, as torch's) or ``"sum"``.
        label_smoothing: The share of every label that is spread over all classes.
        match_norm: Scale the batch so that the gradient on the logits has the norm of cross-entropy's.
        impl: ``"auto"``, ``"reference"`` or ``"triton"``.

    >>> logits = torch.tensor([[4.0, 0.0, 0.0]])
    >>> curve_loss(logits, torch.tensor([0]), curves.normal())  # minus the gap: log 2 - 4
    tensor(-3.3069)
    """
    if not isinstance(curve, Curve):
        raise DtypeError(f"curve is a {type(curve).__name__}: expected a Curve, such as curves.conservative(0.75) or "
                         "curves.by_name('focal', gamma=2.0).")
    if type(input).__name__ == "DTensor":
        return _loss_of_dtensor(input, target, curve, weight, ignore_index, reduction, label_smoothing, match_norm)
    rows = as_rows(input, target)
    check_arguments(rows, weight, ignore_index, reduction, label_smoothing)
    labels = rows.target
    arguments: dict[str, Any] = {"weight": weight, "label_smoothing": label_smoothing, "reduction": reduction}
    if dispatch.choose(impl, input, labels, curve) == "triton":
        loss: Tensor = dispatch.kernels().rows_loss(rows, curve, ignore_index=ignore_index, **arguments)
    elif rows.soft:
        loss = reference.soft_loss(rows.logits, labels, curve, **arguments)
    else:
        loss = reference.hard_loss(rows.logits, labels, curve, ignore_index=ignore_index, **arguments)
    if match_norm:
        loss = loss * reference.match_norm_factor(rows.logits, labels, curve, weight=weight, ignore_index=ignore_index,
                                                  label_smoothing=label_smoothing)
    if reduction == "none":
        loss = loss.reshape(rows.shape)
    return loss.to(result_dtype(input, labels))


def _loss_of_dtensor(input: Any, target: Tensor, curve: Curve, weight: Tensor | None, ignore_index: int,
                     reduction: str, label_smoothing: float, match_norm: bool) -> Tensor:
    """Logits whose classes are split over ranks."""
    from .ops.parallel import parallel_curve_loss

    over_classes = any(place.is_shard() and place.dim in (1, -1) for place in input.placements)
    if input.ndim != 2 or not over_classes or match_norm:
        asked = " with match_norm" if match_norm else ""
        raise ArgumentError(
            f"input is a DTensor of shape {tuple(input.shape)}, placed {list(input.placements)}{asked}: expected "
            "(N, C) split over the classes, Shard(1). For other placements take the loss of input.to_local(), the rows "
            "of this rank, or of input.full_tensor().")
    return parallel_curve_loss(input, target, curve, weight=weight, ignore_index=ignore_index, reduction=reduction,
                               label_smoothing=label_smoothing)


def encouraging_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
                     reduction: str = "mean", label_smoothing: float = 0.0, *, log_end: float = 0.75,
                     eps: float = 1e-5, match_norm: bool = False, impl: str = "auto") -> Tensor:
    """Cross-entropy plus the bonus that keeps well-classified examples in play: :func:`curves.encouraging`.

    ``log_end`` is the probability at which the log bonus becomes a line: 0.5 and 0.75 fit learning rates that were
    tuned for cross-entropy, 1 (never, up to the clamp at ``eps``) wants half of them, or ``match_norm=True``.

    >>> encouraging_loss(torch.tensor([[4.0, 0.0, 0.0]]), torch.tensor([0]))
    tensor(-2.2090)
    """
    curve = curves.encouraging(log_end, eps)
    return curve_loss(input, target, curve, weight, ignore_index, reduction, label_smoothing, match_norm=match_norm,
                      impl=impl)


def focal_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
               reduction: str = "mean", label_smoothing: float = 0.0, *, gamma: float = 2.0,
               match_norm: bool = False, impl: str = "auto") -> Tensor:
    """Focal loss over a softmax: :func:`curves.focal`. For detection's form see :func:`sigmoid_curve_loss`."""
    return curve_loss(input, target, curves.focal(gamma), weight, ignore_index, reduction, label_smoothing,
                      match_norm=match_norm, impl=impl)


def halted_focal_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
                      reduction: str = "mean", label_smoothing: float = 0.0, *, gamma: float = 2.0,
                      halt: float = 0.5, match_norm: bool = False, impl: str = "auto") -> Tensor:
    """Focal loss that becomes cross-entropy past p = ``halt``: :func:`curves.halted_focal`."""
    return curve_loss(input, target, curves.halted_focal(gamma, halt), weight, ignore_index, reduction,
                      label_smoothing, match_norm=match_norm, impl=impl)


def poly_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
              reduction: str = "mean", label_smoothing: float = 0.0, *, epsilon: float = 1.0,
              match_norm: bool = False, impl: str = "auto") -> Tensor:
    """PolyLoss's first term: :func:`curves.poly`."""
    return curve_loss(input, target, curves.poly(epsilon), weight, ignore_index, reduction, label_smoothing,
                      match_norm=match_norm, impl=impl)


def sigmoid_curve_loss(input: Tensor, target: Tensor, curve: Curve, weight: Tensor | None = None,
                       reduction: str = "mean", pos_weight: Tensor | None = None, *,
                       alpha: float | None = None) -> Tensor:
    r"""``F.binary_cross_entropy_with_logits`` with another curve: each class on its own, any shape.

    .. math:: t\,\omega\,\varphi(\sigma(z)) + (1-t)\,\varphi(1-\sigma(z))

    Args:
        input: Logits of any shape.
        target: 0 or 1 (any integer type or bool), or a probability, of the input's shape.
        curve: What is taught at which confidence; ``curves.focal(gamma)`` with ``alpha`` is detection's focal loss.
        weight: Multiplies the losses; broadcasts to the input.
        pos_weight: Multiplies the positive part; broadcasts to the input.
        alpha: Focal loss's balance: positives count ``alpha``, negatives ``1 - alpha``.

    >>> logits, present = torch.tensor([2.0, -1.0]), torch.tensor([1, 0])
    >>> sigmoid_curve_loss(logits, present, curves.normal(), reduction="none")  # minus the gap of each
    tensor([-2., -1.])
    """
    if not isinstance(curve, Curve):
        raise DtypeError(f"curve is a {type(curve).__name__}: expected a Curve, such as curves.focal(2.0).")
    check_input(input)
    check_reduction(reduction)
    check_presence(input, target)
    check_factor("weight", weight, input)
    check_factor("pos_weight", pos_weight, input)
    check_alpha(alpha)
    dtype = reference.compute_dtype(input.dtype)
    logits = input.to(dtype)
    for_positives = 1.0 if pos_weight is None else pos_weight.to(dtype)
    if alpha is not None:
        for_positives = alpha * for_positives
    for_negatives = 1.0 if alpha is None else 1 - alpha
    if target.is_floating_point():
        share = target.to(dtype)
        loss = (share * for_positives * curve_values(logits, curve)
                + (1 - share) * for_negatives * curve_values(-logits, curve))
    else:
        positive = target.bool()
        loss = curve_values(sigmoid_gap(logits, positive), curve)
        if pos_weight is not None or alpha is not None:
            loss = loss * torch.where(positive, for_positives, torch.full_like(loss, for_negatives))
    if weight is not None:
        loss = loss * weight
    return reduce(loss, reduction).to(result_dtype(input))


def mirror_mse_loss(input: Tensor, target: Tensor, *, bonus: bool = True, link: str = "softmax",
                    reduction: str = "mean") -> Tensor:
    r"""The squared error of the probabilities, with its mirror as bonus; the mean is over examples and classes.

    .. math:: (y-p)^2 - (y\,p)^2 - ((1-y)(1-p))^2

    For one-hot targets the two together are ``2 |y - p| - 1``: a pull that does not die as the error becomes small.

    Args:
        input: Logits as :func:`curve_loss` takes them.
        target: Labels, or probabilities of the input's shape.
        bonus: Whether the mirror bonus is added.
        link: ``"softmax"`` or ``"sigmoid"``.
        reduction: ``"none"`` has the input's shape.

    >>> mirror_mse_loss(torch.zeros(1, 2), torch.tensor([0]))  # |y - p| is a half everywhere
    tensor(0.)
    """
    check_link(link)
    check_reduction(reduction)
    rows = as_rows(input, target)
    logits = rows.logits.to(reference.compute_dtype(input.dtype))
    truth = rows.target.to(logits.dtype) if rows.soft else one_hot(rows, logits.dtype)
    gaps = class_gaps(logits)[0] if link == "softmax" else logits
    # Through their logarithms: sigmoid's own derivative takes 1 - p from p, which has rounded to 1 long ago.
    p, q = (-nll(gaps)).exp(), (-nll(-gaps)).exp()
    loss = (truth * q - (1 - truth) * p).square()
    if bonus:
        loss = loss - (truth * p).square() - ((1 - truth) * q).square()
    if reduction == "none":
        axis = min(1, input.ndim - 1)
        shaped = loss.reshape(*rows.shape, loss.shape[-1]).movedim(-1, axis)
        return shaped.to(result_dtype(input))
    return reduce(loss, reduction).to(result_dtype(input))
