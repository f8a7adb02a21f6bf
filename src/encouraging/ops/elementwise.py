"""A curve applied to gaps of any shape, with its pull as the gradient: what the sigmoid losses are made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..curves import Curve, square
from ..curves._curve import nll
from ..links import class_gaps, sigmoid_gap
from ..torch_state import (
    backward_must_be_differentiable,
    in_forward_mode,
    needs_plain_operations,
    read_before_function,
    values_are_readable,
)
from .class_sums import Block, block_of, gradient_of_pulls, is_plain
from .rows import apply, compute_dtype, in_blocks, label_rows


def curve_values(gap: Tensor, curve: Curve) -> Tensor:
    """``curve.value(gap)`` with the derivative ``-curve.pull(gap)``, under every transform."""
    if needs_plain_operations():
        return curve.value(gap)
    compiling = torch.compiler.is_compiling()
    if compiling:
        read_before_function(curve.params.values())
    op = _Values if compiling else _ValuesForward
    return op.apply(gap, curve)  # type: ignore[no-any-return, no-untyped-call]


def sigmoid_losses(logits: Tensor, target: Tensor, curve: Curve, negative_curve: Curve, weight: Tensor | None,
                   pos_weight: Tensor | None, alpha: float | None, mse: bool = False) -> Tensor:
    """The losses of logits of any shape, each a class of its own, in at least float32.

    ``target`` says for every logit whether its class is present (integers, bool) or how surely (floats), or it has one
    class index per row, the classes last. ``mse``, for square curves, is the squared error of probabilities as targets.
    """
    dtype = compute_dtype(logits.dtype)
    logits = logits.to(dtype)
    for_positives = 1.0 if pos_weight is None else pos_weight.to(dtype)
    if alpha is not None:
        for_positives = alpha * for_positives
    for_negatives = 1.0 if alpha is None else 1 - alpha
    # A weight of 0 leaves nothing of an infinite value below, which matters only for probabilities and such weights.
    if (target.is_floating_point() and pos_weight is None and alpha not in (0, 1) and values_are_readable(target)
            and not target.requires_grad and not in_forward_mode() and bool((target == target.bool()).all())):
        target = target.bool()  # a class is present or not: one value per logit instead of two
    if target.is_floating_point():
        presence = target.to(dtype)
        loss = (_weighted(presence * for_positives, curve_values(logits, curve))
                + _weighted((1 - presence) * for_negatives, curve_values(-logits, negative_curve)))
        if mse:
            between = presence * (1 - presence)
            p = torch.sigmoid(logits)
            loss = loss - (2 * between * p * torch.sigmoid(-logits) if curve.params["bonus"] else between)
    else:
        positive = target.bool() if target.shape == logits.shape else (
            target.long()[..., None] == torch.arange(logits.shape[-1], device=target.device))
        gap = sigmoid_gap(logits, positive)
        loss = curve_values(gap, curve)
        if negative_curve is not curve:  # not !=, which a compiler cannot ask of numbers that a schedule changes
            loss = torch.where(positive, loss, curve_values(gap, negative_curve))
        if pos_weight is not None or alpha is not None:
            loss = loss * torch.where(positive, for_positives, torch.full_like(loss, for_negatives))
    return loss if weight is None else loss * weight


def _weighted(weight: Tensor, values: Tensor) -> Tensor:
    """Their product, in which a weight of 0 leaves nothing of an infinite value."""
    return weight * torch.where((weight == 0) & values.isinf(), 0.0, values)


def squared_errors(logits: Tensor, truth: Tensor, bonus: bool, link: str = "softmax") -> Tensor:
    """``(y - p)**2`` of every class (N, C), with its mirror as ``bonus``; in the type of the logits and the truth."""
    if link == "softmax" and is_plain() and not truth.requires_grad and truth.dtype == logits.dtype:
        return apply(_SquaredErrors, logits, truth, bonus)  # type: ignore[no-any-return]
    return _squared_errors(class_gaps(logits)[0] if link == "softmax" else logits, truth, bonus)


def mirrored_errors_of_labels(logits: Tensor, label: Tensor) -> Tensor:
    """:func:`squared_errors` with its mirror, summed over the classes of every row (N) of labels (N, 1). They are
    ``2 |y - p| - 1``, and the rivals' probabilities add up to the label's 1 - p: the sum is ``4 (1 - p) - C``."""
    return 2 * label_rows(logits, label, None, square(bonus=True)) + (2 - logits.shape[-1])


def _squared_errors(gaps: Tensor, truth: Tensor, bonus: bool) -> Tensor:
    # Through their logarithms: autograd computes sigmoid's derivative from p, which rounds to 1 for confident examples.
    p, q = (-nll(gaps)).exp(), (-nll(-gaps)).exp()
    loss = (truth * q - (1 - truth) * p).square()
    return loss - (truth * p).square() - ((1 - truth) * q).square() if bonus else loss


class _SquaredErrors(torch.autograd.Function):
    """Squared errors of a softmax in blocks, with p and 1 - p from one exponential per class: of all classes but the
    top one, p is at most 1/2, and the top class's are sigmoids of its gap."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, truth: Tensor, bonus: bool) -> Tensor:
        ctx.save_for_backward(logits, truth)
        ctx.bonus = bonus
        losses = torch.empty_like(logits, memory_format=torch.contiguous_format)
        for z, y, loss in in_blocks(logits, truth, losses, share=2):
            p, q = _probabilities(block_of(z))
            if bonus:  # the three squares are (2y - 1) (q - p) - 2 y (1 - y) p q, where p + q is 1
                between = _between(y)
                loss.copy_((q - p).mul_(2 * y - 1))
                if between is not None:
                    loss.sub_(between.mul_(2).mul_(p).mul_(q))
            else:
                loss.copy_(_errors(y, p, q).square_())
        return losses

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, truth = ctx.saved_tensors
        if backward_must_be_differentiable(upstream):
            with torch.enable_grad():
                again = logits if logits.requires_grad else logits.detach().requires_grad_()
                losses = _squared_errors(class_gaps(again)[0], truth, ctx.bonus)
            gradient, = torch.autograd.grad(losses, again, upstream, create_graph=True)
            return gradient, None, None
        gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        for z, y, up, out in in_blocks(logits, truth, upstream, gradient, share=2):
            block = block_of(z)
            p, q = _probabilities(block)
            if ctx.bonus:
                pull, between = 2 * y - 1, _between(y)
                if between is not None:
                    pull.add_(between.mul_(q - p))
            else:
                pull = _errors(y, p, q)
            out.copy_(gradient_of_pulls(block, pull.mul_(2).mul_(p).mul_(q).mul_(up), p))
        return gradient, None, None


def _probabilities(block: Block) -> tuple[Tensor, Tensor]:
    """p and 1 - p of every class of a block."""
    p = block.weights * block.p_of_base
    q = 1 - p
    return (p.scatter_(-1, block.top_class, torch.sigmoid(block.gap_of_top)),
            q.scatter_(-1, block.top_class, torch.sigmoid(-block.gap_of_top)))


def _errors(truth: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """``truth - p``, exact for a truth of 0 or 1."""
    return truth * q - (1 - truth).mul_(p)


def _between(truth: Tensor) -> Tensor | None:
    """``y (1 - y)``, None where it is 0 everywhere."""
    between = truth * (1 - truth)
    return None if values_are_readable(truth) and not bool(between.any()) else between


class _Values(torch.autograd.Function):
    @staticmethod
    def forward(gap: Tensor, curve: Curve) -> Tensor:
        return curve.value(gap)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        gap, ctx.curve = inputs
        ctx.save_for_backward(gap)
        ctx.save_for_forward(gap)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (gap,) = ctx.saved_tensors
        return -ctx.curve.pull(gap) * upstream, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], gap: Tensor, curve: Curve) -> tuple[Tensor, Any]:
        return curve_values(gap, curve), in_dims[0]


class _ValuesForward(_Values):
    """Adds the forward-mode rule, which ``torch.compile(fullgraph=True)`` does not accept on a Function."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (gap,) = ctx.saved_tensors
        pull: Tensor = ctx.curve.pull(gap)
        return -pull * tangent
