r"""Squared errors of probabilities, and their mirror: every class of a row counts, not the label's alone.

The softmax of all classes but the top one is exact, and so is their sum, which is the top class's 1 - p. Where the sum
over the classes is all that is asked for, labels need no matrix of 0 and 1:

* with the mirror an error is ``2 |y - p| - 1``, and the rivals' probabilities add up to the label's 1 - p. The sum is
  ``4 (1 - p) - C``, which is a curve of the gap;
* without it the sum is ``(1 - p)^2`` of the label and ``p^2`` of its rivals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..curves import square
from ..curves._curve import nll
from ..links import class_gaps
from ..targets import Rows, checked_labels, one_hot
from ..torch_state import backward_must_be_differentiable, needs_no_rules, values_are_readable
from . import traced
from .class_sums import WIDE, top_class_of
from .exponentials import exp_
from .rows import apply, compute_dtype, in_blocks, label_rows
from .small import fits_cache


def squared_errors(logits: Tensor, truth: Tensor, bonus: bool, link: str = "softmax") -> Tensor:
    """``(y - p)**2`` of every class (N, C), with its mirror as ``bonus``; in the type of the logits and the truth."""
    return _squared_errors(logits, truth, bonus, link, summed=False)


def sums_of_squared_errors(rows: Rows, bonus: bool, link: str) -> Tensor:
    """:func:`squared_errors` of labels or probabilities, summed over the classes of every row (N)."""
    dtype = compute_dtype(rows.logits.dtype)
    if not rows.soft and link == "softmax" and rows.classes:
        label = checked_labels(rows.target, rows.classes)[:, None]
        if bonus:
            return 2 * label_rows(rows.logits, label, None, square(bonus=True)) + (2 - rows.classes)
        if needs_no_rules() and not torch.compiler.is_compiling():
            return apply(_SquaresOfLabels, rows.logits.to(dtype), label)  # type: ignore[no-any-return]
    truth = rows.target.to(dtype) if rows.soft else one_hot(rows, dtype)
    return _squared_errors(rows.logits.to(dtype), truth, bonus, link, summed=True)


def _squared_errors(logits: Tensor, truth: Tensor, bonus: bool, link: str, summed: bool) -> Tensor:
    if needs_no_rules() and not truth.requires_grad and truth.dtype == logits.dtype and logits.numel():
        op = _Squares if link == "softmax" else _SigmoidSquares
        return apply(op, logits, truth, bonus, summed)  # type: ignore[no-any-return]
    losses = plain_squared_errors(class_gaps(logits)[0] if link == "softmax" else logits, truth, bonus)
    return losses.sum(-1) if summed else losses


def plain_squared_errors(gaps: Tensor, truth: Tensor, bonus: bool) -> Tensor:
    """:func:`squared_errors` from every class's gap, in operations that can be differentiated any number of times."""
    # Through their logarithms: autograd computes sigmoid's derivative from p, which rounds to 1 for confident examples.
    p, q = (-nll(gaps)).exp(), (-nll(-gaps)).exp()
    loss = (truth * q - (1 - truth) * p).square()
    return loss - (truth * p).square() - ((1 - truth) * q).square() if bonus else loss


def _differentiable(logits: Tensor, truth: Tensor, bonus: bool, link: str, upstream: Tensor) -> Tensor:
    """The gradient in operations that can be differentiated again, for an upstream gradient per class or per row."""
    with torch.enable_grad():
        again = logits if logits.requires_grad else logits.detach().requires_grad_()
        losses = plain_squared_errors(class_gaps(again)[0] if link == "softmax" else again, truth, bonus)
        losses = losses if upstream.ndim == 2 else losses.sum(-1)
    return torch.autograd.grad(losses, again, upstream, create_graph=True)[0]


class _Squares(torch.autograd.Function):
    """Squared errors of a softmax, in blocks; with ``summed`` one number per row."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, truth: Tensor, bonus: bool, summed: bool) -> Tensor:
        ctx.bonus = bonus
        if torch.compiler.is_compiling():
            ctx.save_for_backward(logits, truth)
            losses = traced.squared_errors(logits, truth, bonus)
            return losses.sum(-1) if summed else losses
        out = _room(logits, summed)
        for z, y, part in in_blocks(logits, truth, out, share=2):
            classes = _softmax(z)
            _store(_errors(classes, y).square_() if not bonus else _mirrored(classes, y), part)
        ctx.save_for_backward(logits, truth, *(classes if fits_cache(logits) and z is logits else ()))
        return out

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, truth, *saved = ctx.saved_tensors
        each = upstream if upstream.ndim == 2 else upstream[:, None]
        if torch.compiler.is_compiling():
            return traced.squared_errors_gradient(logits, truth, ctx.bonus, each), None, None, None
        if backward_must_be_differentiable(upstream):
            return _differentiable(logits, truth, ctx.bonus, "softmax", upstream), None, None, None
        gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        for z, y, up, out in in_blocks(logits, truth, each, gradient, share=2):
            classes = _Softmax(*saved) if saved else _softmax(z)
            slope = _mirrored_slope(classes, y) if ctx.bonus else _errors(classes, y)
            _gradient_(classes, slope.mul_(classes.p).mul_(2 * up), out)
        return gradient, None, None, None


class _Softmax(NamedTuple):
    p: Tensor
    top_class: Tensor  # (N, 1)
    q_of_top: Tensor  # 1 - p of the top class (N, 1); of the others p is at most 1/2


def _softmax(logits: Tensor) -> _Softmax:
    if logits.shape[1] >= WIDE and values_are_readable(logits):
        top_class = top_class_of(logits)
    else:
        top_class = logits.argmax(-1, keepdim=True)
    highest = logits.gather(-1, top_class)
    odds = exp_(torch.sub(logits, highest.masked_fill(highest == torch.inf, torch.nan))).scatter_(-1, top_class, 0.0)
    total = odds.sum(-1, keepdim=True)  # over the others, relative to the top class
    p_of_top = (1 + total).reciprocal_()
    return _Softmax(odds.mul_(p_of_top).scatter_(-1, top_class, p_of_top), top_class, total * p_of_top)


def _errors(classes: _Softmax, truth: Tensor) -> Tensor:
    """``truth - p``, exact for a truth of 0 or 1."""
    at_top = truth.gather(-1, classes.top_class)
    return (truth - classes.p).scatter_(-1, classes.top_class,
                                        at_top * classes.q_of_top - (1 - at_top) * (1 - classes.q_of_top))


def _q(classes: _Softmax) -> Tensor:
    return (1 - classes.p).scatter_(-1, classes.top_class, classes.q_of_top)


def _mirrored(classes: _Softmax, truth: Tensor) -> Tensor:
    """The errors with their mirror: ``(2y - 1) (q - p) - 2 y (1 - y) p q``, because p + q is 1."""
    q, between = _q(classes), _between(truth)
    loss = (q - classes.p).mul_(2 * truth - 1)
    return loss if between is None else loss.sub_(between.mul_(2).mul_(classes.p).mul_(q))


def _mirrored_slope(classes: _Softmax, truth: Tensor) -> Tensor:
    """Minus the derivative of :func:`_mirrored` by the gap, over ``2 p q``."""
    between, slope = _between(truth), 2 * truth - 1
    return slope if between is None else slope.add_(between.mul_(_q(classes) - classes.p))


def _gradient_(classes: _Softmax, ratio: Tensor, out: Tensor) -> None:
    """The gradient from every class's pull over 1 - p, which is written over."""
    p, top_class, q_of_top = classes
    of_top = ratio.gather(-1, top_class)
    of_others = ratio.scatter_(-1, top_class, 0.0).sum(-1, keepdim=True)
    out.copy_(p).mul_(of_others + of_top).sub_(ratio)
    out.scatter_(-1, top_class, (1 - q_of_top) * of_others - of_top * q_of_top)


class _SquaresOfLabels(torch.autograd.Function):
    """:class:`_Squares` of labels, without the mirror, summed: ``(1 - p)^2`` of the label and ``p^2`` of its rivals."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, label: Tensor) -> Tensor:
        out = logits.new_empty(logits.shape[0])
        for z, y, part in in_blocks(logits, label, out, share=2):
            classes = _softmax(z)
            squares = classes.p.square().scatter_(-1, y, 0.0).sum(-1, keepdim=True)
            part.copy_(_of_label(classes, y)[1].square_().add_(squares)[:, 0])
        ctx.save_for_backward(logits, label, *(classes if fits_cache(logits) and z is logits else ()))
        return out

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, None]:
        logits, label, *saved = ctx.saved_tensors
        if backward_must_be_differentiable(upstream):
            truth = torch.zeros_like(logits).scatter(-1, label, 1.0)
            return _differentiable(logits, truth, False, "softmax", upstream), None
        gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        for z, y, up, out in in_blocks(logits, label, upstream[:, None], gradient, share=2):
            classes = _Softmax(*saved) if saved else _softmax(z)
            p, top_class, q_of_top = classes
            p_of_label, q_of_label = _of_label(classes, y)
            # Every class's pull over 1 - p: 2 p q of the label, -2 p^2 of a rival. The top class is treated apart.
            own, of_top = 2 * p_of_label * q_of_label, -2 * (1 - q_of_top).square()
            is_top = top_class == y
            squares = p.square().scatter_(-1, y, 0.0).scatter_(-1, top_class, 0.0).sum(-1, keepdim=True)
            of_others = torch.where(is_top, 0.0, own) - 2 * squares
            of_top = torch.where(is_top, own, of_top)
            of_all = of_others + of_top
            out.copy_(p).mul_(2).add_(of_all).mul_(p).mul_(up)
            out.scatter_(-1, y, (p_of_label * of_all - own) * up)
            out.scatter_(-1, top_class, ((1 - q_of_top) * of_others - of_top * q_of_top) * up)
        return gradient, None


def _of_label(classes: _Softmax, label: Tensor) -> tuple[Tensor, Tensor]:
    """p and 1 - p of the labels (N, 1)."""
    p = classes.p.gather(-1, label)
    return p, torch.where(classes.top_class == label, classes.q_of_top, 1 - p)


class _SigmoidSquares(torch.autograd.Function):
    """Squared errors where each class is on its own, in blocks; with ``summed`` one number per row."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, truth: Tensor, bonus: bool, summed: bool) -> Tensor:
        ctx.save_for_backward(logits, truth)
        ctx.bonus = bonus
        if torch.compiler.is_compiling():
            losses = _sigmoid_errors(logits, truth, bonus)
            return losses.sum(-1) if summed else losses
        out = _room(logits, summed)
        for z, y, part in in_blocks(logits, truth, out, share=2):
            _store(_sigmoid_errors(z, y, bonus), part)
        return out

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, truth = ctx.saved_tensors
        each = upstream if upstream.ndim == 2 else upstream[:, None]
        if torch.compiler.is_compiling():
            return _sigmoid_slope(logits, truth, ctx.bonus) * (-2 * each), None, None, None
        if backward_must_be_differentiable(upstream):
            return _differentiable(logits, truth, ctx.bonus, "sigmoid", upstream), None, None, None
        gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        for z, y, up, out in in_blocks(logits, truth, -2 * each, gradient, share=2):
            out.copy_(_sigmoid_slope(z, y, ctx.bonus).mul_(up))
        return gradient, None, None, None


def _sigmoid_errors(logits: Tensor, truth: Tensor, bonus: bool) -> Tensor:
    p, q = logits.sigmoid(), logits.neg().sigmoid()
    if not bonus:
        return torch.addcmul(truth * q, truth - 1, p).square()
    loss, between = (q - p) * (2 * truth - 1), _between(truth)
    return loss if between is None else loss - 2 * between * p * q


def _sigmoid_slope(logits: Tensor, truth: Tensor, bonus: bool) -> Tensor:
    """Minus half of the derivative of :func:`_sigmoid_errors`."""
    p, q = logits.sigmoid(), logits.neg().sigmoid()
    if not bonus:
        return torch.addcmul(truth * q, truth - 1, p) * p * q
    slope, between = 2 * truth - 1, _between(truth)
    return (slope if between is None else slope + between * (q - p)) * p * q


def _between(truth: Tensor) -> Tensor | None:
    """``y (1 - y)``, None where it is 0 everywhere."""
    between = truth * (1 - truth)
    return None if values_are_readable(truth) and not bool(between.any()) else between


def _room(logits: Tensor, summed: bool) -> Tensor:
    return logits.new_empty(logits.shape[0]) if summed else torch.empty_like(
        logits, memory_format=torch.contiguous_format)


def _store(losses: Tensor, part: Tensor) -> None:
    """The losses of a block, or their sums, where they belong."""
    if part.ndim == 1:
        part.copy_(losses.sum(-1))
    else:
        part.copy_(losses)
