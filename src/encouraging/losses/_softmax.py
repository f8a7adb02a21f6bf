"""The losses over a softmax as functions. :func:`curve_loss` computes; the named losses call it with their curve."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .. import curves
from ..curves import Curve
from ..curves._cross_entropy import CrossEntropy
from ..curves._curve import check_curve
from ..errors import TargetError
from ..ops import as_torch, dispatch, reference, repeat
from ..ops.in_place import check_overwritable
from ..ops.reduction import Divisor, check_divisor, writable
from ..ops.small import plain_loss
from ..ops.split_classes import loss_of_split_classes
from ..ops.stats import LossStats, stats_of, threshold_of
from ..targets import as_rows, check_arguments, check_flag, result_dtype

_IN_PLAIN_TORCH = ("auto", "reference")  # on a CPU
_cached_encouraging = functools.lru_cache(maxsize=64)(curves.encouraging)  # its checks take longer than its lookup


def curve_loss(input: Tensor, target: Tensor, curve: Curve, weight: Tensor | None = None, ignore_index: int = -100,
               reduction: str = "mean", label_smoothing: float = 0.0, *, match_norm: bool = False,
               divisor: Divisor = None, inplace: bool = False, impl: str = "auto") -> Tensor:
    r"""``F.cross_entropy`` with another curve: the same layouts, arguments, weights, means and dtypes.

    The curve ``cross_entropy()`` calls torch's own function for less than 1 MiB of logits on a GPU.

    .. math:: \ell = \varphi(p_y), \qquad \text{smoothed or soft:}\quad \sum_k q_k\,\varphi(p_k)

    Args:
        input: Logits of shape (C), (N, C) or (N, C, d1, ..., dk).
        target: Labels (the input's shape without C) or probabilities (the input's shape).
        curve: The loss as a function of the label's probability: any of :mod:`encouraging.curves`.
        weight: One number per class.
        ignore_index: Rows with this label do not count, whatever their logits hold.
        reduction: ``"none"``, ``"mean"`` (weighted, as in torch) or ``"sum"``.
        label_smoothing: The share of every label that is spread over all classes.
        match_norm: Scale the batch so that the gradient on the logits has the norm of cross-entropy's.
        divisor: With ``reduction="mean"``: divide the summed loss by this number instead of the batch's own count (or
            sum of weights), so that parts of a batch (accumulation steps, ranks) add up to the mean of the whole;
            :func:`loss_divisor` computes it. With a tensor of shape () the host waits for nothing.
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
    if inplace is not False:
        check_flag("inplace", inplace)
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
    by_kernels = dispatch.choose(impl, input, labels, curve, gaps_are_enough=not (rows.soft or label_smoothing),
                                 others=(weight, divisor)) == "triton"
    if match_norm and not by_kernels:
        factor = reference.match_norm_factor(rows.logits, labels, curve, weight=weight, ignore_index=ignore_index,
                                             label_smoothing=label_smoothing)
    if by_kernels:
        if (signature is not None and labels is target and input.ndim == 2
                and (rows.soft or target.is_contiguous())):
            repeat.remember(signature, dispatch.kernels().repeated_loss(
                curve if repeat.is_from_catalogue(curve) else None, ignore_index, label_smoothing, reduction, rows.soft,
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
    """:func:`curve_loss` together with its by-products: p of the label, logsumexp, prediction, fraction learned.

    The GPU kernels compute these numbers anyway, so accuracy and confidence need no further pass over the logits. The
    reference needs one.

    Args:
        input, target, curve, weight, ignore_index, reduction, label_smoothing, divisor, inplace, impl: As in
            :func:`curve_loss`; the target holds labels.
        past: A threshold: the probability above which a row counts in the fraction :attr:`LossStats.past`. By default
            the curve's own ``log_end`` (``start``, ``halt``), or 1/2.

    Returns:
        The loss, and its :class:`LossStats`.

    Raises:
        TargetError: The target holds probabilities, or a label that names no class.
        ShapeError, DtypeError, ArgumentError: As in :func:`curve_loss`, or ``past`` is no probability.

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
    """Cross-entropy plus the bonus that keeps well-classified examples in training: :func:`curves.encouraging`.

    Args:
        input, target, weight, ignore_index, reduction, label_smoothing, match_norm, divisor, impl: As in
            :func:`curve_loss`.
        log_end: The probability, from 0 to 1, at which the log bonus becomes a line. 0.5 and 0.75 work with learning
            rates that were tuned for cross-entropy. 1 (no line, only the clamp at ``eps``) needs about half the
            rate, or ``match_norm=True``.
        eps: The clamp of 1 - p, used only where ``log_end`` is 1.

    Returns:
        The loss, as :func:`curve_loss` returns it.

    Raises:
        CurveError: ``log_end`` or ``eps`` is outside its range.
        ShapeError, TargetError, DtypeError, ArgumentError: As in :func:`curve_loss`.

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
    """Focal loss over a softmax: :func:`curves.focal`. For detection's form see :func:`sigmoid_curve_loss`.

    Args:
        input, target, weight, ignore_index, reduction, label_smoothing, match_norm, divisor, impl: As in
            :func:`curve_loss`.
        gamma: How strongly well-classified examples are down-weighted, at least 0; 0 is cross-entropy.

    Returns:
        The loss, as :func:`curve_loss` returns it.

    Raises:
        CurveError: ``gamma`` is outside its range.
        ShapeError, TargetError, DtypeError, ArgumentError: As in :func:`curve_loss`.

    >>> import torch
    >>> focal_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))  # log 2, times (1 - p) ** 2
    tensor(0.1733)
    """
    return curve_loss(input, target, curves.focal(gamma), weight, ignore_index, reduction, label_smoothing,
                      match_norm=match_norm, divisor=divisor, impl=impl)


def halted_focal_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
                      reduction: str = "mean", label_smoothing: float = 0.0, *, gamma: float = 2.0,
                      halt: float = 0.5, match_norm: bool = False, divisor: Divisor = None,
                      impl: str = "auto") -> Tensor:
    """Focal loss that becomes cross-entropy past p = ``halt``: :func:`curves.halted_focal`.

    Args:
        input, target, weight, ignore_index, reduction, label_smoothing, match_norm, divisor, impl: As in
            :func:`curve_loss`.
        gamma: How strongly well-classified examples are down-weighted, at least 0; 0 is cross-entropy.
        halt: The probability, from 0 to 1, past which the loss is cross-entropy, shifted to meet focal loss.

    Returns:
        The loss, as :func:`curve_loss` returns it.

    Raises:
        CurveError: ``gamma`` or ``halt`` is outside its range.
        ShapeError, TargetError, DtypeError, ArgumentError: As in :func:`curve_loss`.

    >>> import torch
    >>> halted_focal_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))  # at p = 1/2 still focal loss
    tensor(0.1733)
    """
    return curve_loss(input, target, curves.halted_focal(gamma, halt), weight, ignore_index, reduction,
                      label_smoothing, match_norm=match_norm, divisor=divisor, impl=impl)


def poly_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
              reduction: str = "mean", label_smoothing: float = 0.0, *, epsilon: float = 1.0,
              match_norm: bool = False, divisor: Divisor = None, impl: str = "auto") -> Tensor:
    """Cross-entropy plus the first term of PolyLoss: :func:`curves.poly`.

    Args:
        input, target, weight, ignore_index, reduction, label_smoothing, match_norm, divisor, impl: As in
            :func:`curve_loss`.
        epsilon: What 1 - p is multiplied by before it is added to cross-entropy, at least -1.

    Returns:
        The loss, as :func:`curve_loss` returns it.

    Raises:
        CurveError: ``epsilon`` is outside its range.
        ShapeError, TargetError, DtypeError, ArgumentError: As in :func:`curve_loss`.

    >>> import torch
    >>> poly_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))  # log 2 + 1/2
    tensor(1.1931)
    """
    return curve_loss(input, target, curves.poly(epsilon), weight, ignore_index, reduction, label_smoothing,
                      match_norm=match_norm, divisor=divisor, impl=impl)
