"""Losses that write their gradient over the logits, for logits that nobody needs afterwards."""

from __future__ import annotations

import torch
from torch import Tensor

from ..curves import Curve
from ..curves._curve import check_curve
from ..errors import ArgumentError, DtypeError, ShapeError
from ..targets import as_rows, check_arguments, check_dense
from . import dispatch, reference
from .reduction import Divisor, check_divisor
from .rows import compute_dtype


def curve_loss_and_gradient_(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None,
                             ignore_index: int = -100, label_smoothing: float = 0.0, divisor: Divisor = None,
                             upstream: Tensor | None = None, impl: str = "auto") -> Tensor:
    """Overwrite ``logits`` with the gradient of ``sum(losses * upstream) / divisor``, and return the losses.

    For training code that manages gradients itself and creates logits only to consume them, such as an output layer in
    chunks. Nothing of the logits' size is allocated on a GPU. Autograd does not see the call: run it under
    ``torch.no_grad()``, or on detached logits.

    Args:
        logits: (N, C). They hold their gradient afterwards.
        target: Labels (N) or probabilities (N, C).
        curve: The loss as a function of the label's probability: any of :mod:`encouraging.curves`.
        weight, ignore_index, label_smoothing, impl: As in :func:`curve_loss`.
        divisor: What the gradient is divided by; 1 by default. :func:`loss_divisor` gives that of a mean.
        upstream: (N), the gradient on each row's loss; 1 by default.

    Returns:
        The losses (N), in at least float32, neither multiplied by ``upstream`` nor divided.

    Raises:
        ShapeError, TargetError, DtypeError: For logits, target or arguments that do not fit each other.
        ArgumentError: An argument cannot be used, autograd would record the call, or several logits are the same number
            in memory.

    >>> from encouraging import curves
    >>> logits = torch.tensor([[1.0, 1.0], [3.0, 0.0]])
    >>> curve_loss_and_gradient_(logits, torch.tensor([0, 0]), curves.cross_entropy(), divisor=2)
    tensor([0.6931, 0.0486])
    >>> logits
    tensor([[-0.2500,  0.2500], [-0.0237,  0.0237]])
    """
    check_curve(curve)
    check_divisor(divisor, "mean")
    rows = as_rows(logits, target)
    if logits.ndim != 2:
        raise ShapeError(f"logits have shape {tuple(logits.shape)}: expected (N, C), one row per example.")
    ignore_index = check_arguments(rows, weight, ignore_index, "none", label_smoothing)
    if logits.requires_grad and torch.is_grad_enabled():
        raise ArgumentError("the logits require a gradient, and autograd would not notice that they are overwritten: "
                            "call this under torch.no_grad(), pass logits.detach(), or use "
                            "curve_loss(..., inplace=True).")
    check_no_overlap(logits)
    if upstream is not None:
        _check_upstream(upstream, logits)
    if dispatch.choose(impl, logits, rows.target, curve) == "triton":
        if divisor is not None and not isinstance(divisor, Tensor):
            divisor = torch.full((), float(divisor), device=logits.device)
        losses: Tensor = dispatch.kernels().loss_and_gradient_(
            logits, rows.target, curve, weight=weight, ignore_index=ignore_index, label_smoothing=label_smoothing,
            denominator=divisor, upstream=upstream)
        return losses
    with torch.no_grad():
        if divisor is not None:
            dtype = compute_dtype(logits.dtype)  # the type of upstream may be too narrow for the quotient
            upstream = (logits.new_ones(logits.shape[:1], dtype=dtype) if upstream is None else
                        upstream.to(dtype)) / divisor
        return reference.rows_with_gradient_(
            logits, rows.target, curve, soft=rows.soft, weight=weight, ignore_index=ignore_index,
            label_smoothing=label_smoothing, upstream=upstream)


def _check_upstream(upstream: Tensor, logits: Tensor) -> None:
    if not isinstance(upstream, Tensor) or upstream.is_complex():
        raise DtypeError(f"upstream is {getattr(upstream, 'dtype', type(upstream).__name__)}: expected a tensor of "
                         f"shape ({logits.shape[0]},), one number per row.")
    check_dense("upstream", upstream)
    if upstream.shape != logits.shape[:1]:
        raise ShapeError(f"upstream has shape {tuple(upstream.shape)}: expected ({logits.shape[0]},), one number per "
                         "row.")
    if upstream.device != logits.device:
        raise ArgumentError(f"logits are on {logits.device} but upstream on {upstream.device}: move one of them.")


def check_no_overlap(logits: Tensor) -> None:
    """Refuse logits of which several are the same number in memory, such as expanded ones."""
    reach = 0  # the offset of the last element in the dimensions with smaller strides
    for stride, size in sorted(zip(logits.stride(), logits.shape, strict=True)):
        if size > 1 and stride <= reach:
            raise ArgumentError(f"several of the logits, of shape {tuple(logits.shape)} and strides {logits.stride()}, "
                                "are the same number in memory: expected logits that can hold their gradient. Pass a "
                                "copy, logits.contiguous(), which holds it afterwards, or inplace=False.")
        reach += max(0, size - 1) * stride


def check_overwritable(logits: Tensor) -> None:
    """Refuse ``inplace=True`` for logits whose values belong to the caller."""
    origin = logits._base if logits._base is not None else logits
    if origin.is_leaf and logits.requires_grad and torch.is_grad_enabled():
        raise ArgumentError("inplace=True would overwrite logits that are a leaf (or a view of one): expected the "
                            "output of a layer. Pass inplace=False.")
