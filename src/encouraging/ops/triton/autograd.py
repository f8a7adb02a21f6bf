"""The kernels as a differentiable operation.

Two forms. *Ahead*: the forward pass writes the gradient of a mean or a sum, and the backward pass only multiplies by
the upstream gradient, on the device, where it is not 1. One read and one write of the logits' size in all. *Later*: the
forward pass keeps a few numbers per row and the backward pass makes the gradient from them and the logits. That serves
reduction ``none``; float16, whose small gradients would be lost before a gradient scaler could lift them;
``torch.compile``, which cannot pass a buffer from one pass to the other without a copy; and few logits, of which a
second read costs less than a launch for the upstream gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...curves import Curve, cross_entropy
from ...curves._catalogue import is_in_catalogue
from ...errors import ArgumentError
from ...targets import Rows
from .. import reference
from ..dispatch import KERNEL_DTYPES
from ..elementwise import curve_values
from ..in_place import check_no_overlap
from ..reduction import Divisor, label_divisor, reduce
from . import operators
from .curves import Gap, constants
from .functions import NO_EXTRAS, Ahead, Extras, Later, LaterReduced, Overwritten, Step, bare_apply, divisor_of
from .launch import loss_sum, losses
from .matching import norm_ratio
from .own import OwnCurve, OwnStep
from .problem import Problem, empty_lengths
from .soft_autograd import repeated_soft_loss, soft_loss, soft_loss_and_gradient_
from .stats import ByProducts, by_products_of, count_past, empty_by_products
from .tiling import MOST_PLANES

few_bytes = 16 << 20  # of logits whose gradient is made later; their states may take twice as much
_STATE_BYTES = 32  # of a row, written and read


def rows_loss(rows: Rows, curve: Curve, *, match_norm: bool = False, **arguments: Any) -> Any:
    """:func:`hard_loss` of rows, read as they lie where the kernels are good at that, or :func:`soft_loss`; with
    ``match_norm`` times ``reference.match_norm_factor``."""
    if match_norm and (rows.soft or arguments.get("label_smoothing") or torch.compiler.is_compiling()):
        factor = match_norm_factor(rows, curve, **arguments)
        return rows_loss(rows, curve, **arguments) * factor
    if rows.soft:
        return soft_loss(rows.logits, rows.target, curve, **_without(arguments, "ignore_index", "inplace", "stats"))
    planes = rows.planes if rows.input.ndim > 2 and rows.classes <= MOST_PLANES else None
    logits, target = (rows.logits, rows.target) if planes is None else planes
    if not is_in_catalogue(curve):
        return own_curve_loss(logits, target, curve, match_norm=match_norm, **_without(arguments, "inplace", "stats"))
    return hard_loss(logits, target, curve, match_norm=match_norm, **arguments)


def _without(arguments: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in names}


def hard_loss(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None, ignore_index: int = -100,
              label_smoothing: float = 0.0, reduction: str = "mean", inplace: bool = False,
              stats: bool | float = False, match_norm: bool = False, divisor: Divisor = None) -> Any:
    """``reference.hard_loss`` by the kernels: float32, for logits (N, C) with a target (N), or (N, C, d) with (N, d).

    A label that names no class gives NaN as its loss and its gradient. ``inplace`` allows the gradient to be written
    over the logits, which must not be a leaf: a later use of them in a differentiable operation is an error then. It is
    made use of where the gradient is made ahead. ``stats`` asks for a pair of the loss and :class:`Stats`; a number
    between 0 and 1 is the probability beyond which rows are counted there, by default the curve's own ``log_end``
    (``start``, ``halt``), else one half. ``match_norm``, in eager mode and without smoothing, multiplies by the factor
    that gives the gradient the norm of cross-entropy's. ``divisor`` replaces what a mean divides by.
    """
    if torch.compiler.is_compiling():
        rows = operators.rows(logits, target.reshape(-1), weight, curve, ignore_index, label_smoothing)
        loss = _reduce(rows, target, weight, ignore_index, reduction, divisor)
        by_products = by_products_of(logits, target, ignore_index) if stats is not False else None
    else:
        labels = target if target.ndim == 1 and target.is_contiguous() else target.reshape(-1).contiguous()
        problem = Problem(logits, labels, _plain(weight), constants(curve), ignore_index, float(label_smoothing))
        by_products = empty_by_products(problem) if stats is not False else None
        if match_norm:
            loss = _matched(problem, curve, reduction, by_products, divisor)
        else:
            loss = _eager(problem, curve, reduction, inplace, by_products, divisor)
    if reduction == "none" and logits.ndim == 3:
        loss = loss.reshape(target.shape)
    return loss if by_products is None else (loss, count_past(by_products, curve, stats, target.shape))


def _eager(problem: Problem, curve: Curve, reduction: str, inplace: bool,
           by_products: ByProducts | None, divisor: Divisor) -> Tensor:
    logits, over = problem.logits, divisor_of(divisor, problem.logits.device)
    if not (logits.requires_grad and torch.is_grad_enabled()):
        if reduction == "none":
            return losses(problem, stats=by_products)
        return loss_sum(problem, reduction == "mean", over, stats=by_products)
    if inplace:
        _check_inplace(logits)
    step = Step(curve, problem.ignore_index, problem.smoothing, reduction == "mean")
    if reduction == "none":
        rows: Tensor = Later.apply(logits, problem.target, problem.weight, step, Extras(by_products))
        return rows
    form = LaterReduced if is_made_later(logits, inplace) else Ahead
    loss: Tensor = form.apply(logits, problem.target, problem.weight, step, Extras(by_products, over, None, inplace))
    if inplace and form is Ahead:
        Overwritten.apply(logits)
    return loss


def is_made_later(logits: Tensor, inplace: bool = False) -> bool:
    """Whether the gradient of a mean or a sum of these logits is made in the backward pass. The states of many short
    rows take more time than the launch that they save."""
    if logits.dtype == torch.float16:
        return True
    count = logits.numel()
    rows = count // max(1, logits.shape[1])
    return not inplace and count * logits.element_size() <= few_bytes and rows * _STATE_BYTES <= 2 * few_bytes


def repeated_loss(curve: Curve | None, ignore_index: int, label_smoothing: float, reduction: str, soft: bool = False,
                  match_norm: bool = False) -> Callable[..., Tensor]:
    """:func:`rows_loss` for calls that repeat: of logits (N, C) and labels (N) or probabilities of the same shapes,
    types and layouts, in eager mode; ``weight`` is contiguous, the ``divisor`` float32. The loss has the type that is
    asked for. Where ``curve`` is None, every call has a curve of its own, one without a kernel."""
    smoothing = float(label_smoothing)
    if curve is None:
        return _repeated_own_curve(ignore_index, reduction, match_norm)
    if match_norm and (soft or smoothing or reduction == "none"):
        return _repeated_in_parts(ignore_index, smoothing, reduction, soft)
    if soft:
        return repeated_soft_loss(curve, smoothing, reduction)
    steps: dict[tuple[bool, torch.dtype, int], tuple[Callable[..., Tensor] | None, Step]] = {}
    form, mean = _apply_rows if reduction == "none" else _apply_later if match_norm else None, reduction == "mean"

    def loss(logits: Tensor, target: Tensor, dtype: torch.dtype, weight: Tensor | None = None,
             divisor: Tensor | None = None, curve: Curve = curve) -> Tensor:
        learns = logits.requires_grad and torch.is_grad_enabled()
        found = steps.get((learns, dtype, few_bytes))
        if found is None:
            usual = form or (_apply_later if is_made_later(logits) else _apply_ahead)
            found = usual if learns else None, Step(curve, ignore_index, smoothing, mean, True, dtype)
            steps[learns, dtype, few_bytes] = found
        apply, step = found
        extras = NO_EXTRAS
        if match_norm:
            lengths = torch.empty(size=(2, target.shape[0]), dtype=torch.float32, device=logits.device)
            extras = Extras(None, divisor, lengths)
        elif divisor is not None:
            extras = Extras(None, divisor)
        if apply is not None:
            return apply(logits, target, weight, step, extras)
        if form is _apply_rows:
            return step.losses(logits, target, weight, extras, None)
        return step.loss(logits, target, weight, extras, None, None)

    return loss


_apply_later, _apply_ahead, _apply_rows = bare_apply(LaterReduced), bare_apply(Ahead), bare_apply(Later)
_apply_own = bare_apply(OwnCurve)


def _repeated_own_curve(ignore_index: int, reduction: str, match_norm: bool) -> Callable[..., Tensor]:
    if match_norm or reduction == "none":
        return _repeated_in_parts(ignore_index, 0.0, reduction, False, match_norm)
    steps: dict[torch.dtype, OwnStep] = {}

    def loss(logits: Tensor, target: Tensor, dtype: torch.dtype, weight: Tensor | None, divisor: Tensor | None,
             curve: Curve) -> Tensor:
        step = steps.get(dtype)
        if step is None:
            step = steps[dtype] = OwnStep(ignore_index, reduction == "mean", True, dtype)
        return _apply_own(logits, target, weight, curve, step, divisor)

    return loss


def _repeated_in_parts(ignore_index: int, smoothing: float, reduction: str, soft: bool,
                       match_norm: bool = True) -> Callable[..., Tensor]:
    """For losses that are made of several operations: only what was checked is not checked again."""

    def loss(logits: Tensor, target: Tensor, dtype: torch.dtype, weight: Tensor | None, divisor: Tensor | None,
             curve: Curve) -> Tensor:
        rows = Rows(logits, target, soft, logits.shape[:1])
        result: Tensor = rows_loss(rows, curve, match_norm=match_norm, weight=weight, ignore_index=ignore_index,
                                   label_smoothing=smoothing, reduction=reduction, divisor=divisor)
        return result if result.dtype == dtype else result.to(dtype)

    return loss


def _matched(problem: Problem, curve: Curve, reduction: str, by_products: ByProducts | None,
             divisor: Divisor) -> Tensor:
    """The factor is known when all rows have been read: the gradient is made later, with a second read."""
    lengths = empty_lengths(problem)
    step = Step(curve, problem.ignore_index, problem.smoothing, reduction == "mean")
    extras = Extras(by_products, divisor_of(divisor, problem.logits.device), lengths)
    form = Later if reduction == "none" else LaterReduced
    loss: Tensor = form.apply(problem.logits, problem.target, problem.weight, step, extras)
    return loss * norm_ratio(lengths) if reduction == "none" else loss


def own_curve_loss(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None,
                   ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean",
                   match_norm: bool = False, divisor: Divisor = None) -> Tensor:
    """:func:`hard_loss` of a curve that has no kernel: a pass over the logits gives the gaps, torch evaluates the curve
    on one number per row, and the backward pass writes the gradient."""
    labels = target.reshape(-1).contiguous()
    if reduction != "none" and not match_norm and not torch.compiler.is_compiling():
        step, over = OwnStep(ignore_index, reduction == "mean"), divisor_of(divisor, logits.device)
        own: Tensor = OwnCurve.apply(logits, labels, _plain(weight), curve, step, over)
        return own
    lengths = None
    if torch.compiler.is_compiling():
        gaps = operators.rows(logits, labels, None, Gap(), ignore_index, 0.0)
    else:
        problem = Problem(logits, labels, None, constants(Gap()), ignore_index, 0.0)
        lengths = empty_lengths(problem) if match_norm else None
        gaps = Later.apply(logits, labels, None, Step(Gap(), ignore_index, 0.0, False), Extras(lengths=lengths))
    known = labels.long() != ignore_index
    each = known.to(gaps.dtype) if weight is None else (
        weight.detach().float()[labels.long().clamp(0, weight.shape[0] - 1)] * known)
    # An ignored row's gap is 0, and whatever the curve is there must not reach the sum.
    rows = torch.where(known, curve_values(gaps, curve), 0.0)
    rows = rows if weight is None else rows * each
    loss = _reduce(rows, labels, weight, ignore_index, reduction, divisor)
    if lengths is not None:
        with torch.no_grad():
            pulls = torch.where(known, curve.pull(gaps), 0.0)
            factor = norm_ratio(lengths * torch.stack([each, each * pulls]).abs())
        loss = loss * factor
    return loss.reshape(target.shape) if reduction == "none" else loss


def match_norm_factor(rows: Rows, curve: Curve, *, weight: Tensor | None = None, ignore_index: int = -100,
                      label_smoothing: float = 0.0, **_: Any) -> Tensor:
    """``reference.match_norm_factor`` from the two gradients of the sum, written one after the other."""
    arguments: dict[str, Any] = {"weight": weight, "ignore_index": ignore_index, "label_smoothing": label_smoothing}
    if torch.compiler.is_compiling() or not is_in_catalogue(curve):
        return reference.match_norm_factor(rows.logits, rows.target, curve, **arguments)
    with torch.no_grad():
        logits, target = rows.logits.detach(), rows.target.detach()
        buffer = torch.empty_like(logits, dtype=torch.float32)
        norms = []
        for one in (cross_entropy(), curve):
            buffer.copy_(logits)
            loss_and_gradient_(buffer, target, one, **arguments)
            norms.append(torch.linalg.vector_norm(buffer, dim=1))
    return norm_ratio(torch.stack(norms))


def loss_and_gradient_(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None,
                       ignore_index: int = -100, label_smoothing: float = 0.0, denominator: Tensor | None = None,
                       upstream: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
    """Overwrite ``logits`` by the gradient of ``sum(rows * upstream) / denominator`` and return the rows' losses.

    For code that makes logits only to use them up, without autograd; ``target`` holds labels or probabilities.
    ``upstream`` has one number per row. ``lengths`` (2, N), for labels without smoothing, receives what
    :func:`norm_ratio` takes.
    """
    check_no_overlap(logits)
    if target.is_floating_point():
        return soft_loss_and_gradient_(logits, target, curve, weight, label_smoothing, denominator, upstream)
    problem = Problem(logits, target.reshape(-1).contiguous(), _plain(weight), constants(curve), ignore_index,
                      label_smoothing)
    partial_weights = None if denominator is None else denominator.reshape(1).to(logits.device, torch.float32)
    upstream = None if upstream is None else upstream.contiguous()
    return losses(problem, grad=logits, partial_weights=partial_weights, upstream=upstream, lengths=lengths)


def _plain(weight: Tensor | None) -> Tensor | None:
    """Class weights as the kernels read them."""
    if weight is None:
        return None
    weight = weight.detach()
    return (weight if weight.dtype in KERNEL_DTYPES else weight.float()).contiguous()


def _reduce(rows: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str,
            divisor: Divisor) -> Tensor:
    if reduction != "mean" or divisor is not None:
        return reduce(rows, reduction, divisor)
    labels = target.reshape(-1).long()  # before the comparison: in uint8, -100 is the label 156
    ignored = labels == ignore_index
    if weight is None:
        return rows.sum() / label_divisor(labels, None, ignored)
    labels = labels.clamp(0, weight.shape[0] - 1)
    return rows.sum() / label_divisor(labels, weight.detach().float(), ignored)


def _check_inplace(logits: Tensor) -> None:
    origin = logits._base if logits._base is not None else logits
    if origin.is_leaf:
        raise ArgumentError("inplace=True would write over logits that are a leaf (or a view of one), whose values "
                            "belong to whoever made them: expected the output of a layer. Pass inplace=False.")
    check_no_overlap(logits)
