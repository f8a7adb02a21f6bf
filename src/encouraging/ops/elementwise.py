"""A curve applied to gaps of any shape, with its pull as the gradient: what the sigmoid losses are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..curves import Curve
from ..curves._together import pull_of_many, value_of_many
from ..links import sigmoid_gap
from ..torch_state import (
    PLAIN,
    backward_must_be_differentiable,
    is_eager,
    needs_no_rules,
    needs_plain_operations,
    read_before_function,
    values_are_readable,
)
from .rows import apply, compute_dtype, in_blocks


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
    if target.is_floating_point():
        target = target.to(dtype)
    elif target.shape == logits.shape:
        target = target.bool()
    else:
        target = target.long()[..., None] == torch.arange(logits.shape[-1], device=target.device)
    if not mse and type(logits) in PLAIN and needs_no_rules() and not _need_gradient(target, for_positives):
        curves = curve, negative_curve
        loss: Tensor = apply(_SigmoidLosses, logits, target, *curves, for_positives, for_negatives)
        return loss if weight is None else loss * weight
    loss = _of_values(logits, target, (curve, negative_curve), for_positives, for_negatives, curve_values)
    if mse and target.is_floating_point():
        between, p = target * (1 - target), torch.sigmoid(logits)
        loss = loss - (2 * between * p * torch.sigmoid(-logits) if curve.params["bonus"] else between)
    return loss if weight is None else loss * weight


def _need_gradient(*tensors: object) -> bool:
    return any(isinstance(each, Tensor) and each.requires_grad for each in tensors)


def _weighted(weight: Tensor, values: Tensor) -> Tensor:
    """Their product, in which a weight of 0 leaves nothing of an infinite value."""
    return weight * torch.where((weight == 0) & values.isinf(), 0.0, values)


class _SigmoidLosses(torch.autograd.Function):
    """:func:`sigmoid_losses` without a weight, in blocks that stay in the cache. The target is bool or of the logits'
    type, and ``for_positives`` is a number or broadcasts to the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, curve: Curve, negative_curve: Curve,
                for_positives: float | Tensor, for_negatives: float) -> Tensor:
        ctx.curves, ctx.for_negatives = (curve, negative_curve), for_negatives
        ctx.for_positives = None if isinstance(for_positives, Tensor) else for_positives
        ctx.save_for_backward(logits, target, for_positives if isinstance(for_positives, Tensor) else None)
        return _in_blocks(_losses, logits, (target,), ctx.curves, for_positives, for_negatives)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, for_positives = ctx.saved_tensors
        for_positives = ctx.for_positives if for_positives is None else for_positives
        if backward_must_be_differentiable(upstream):
            slope = _slopes(logits, target, upstream, ctx.curves, for_positives, ctx.for_negatives)
        else:
            slope = _in_blocks(_slopes, logits, (target, upstream), ctx.curves, for_positives, ctx.for_negatives)
        return slope, None, None, None, None, None


def _in_blocks(function: Callable[..., Tensor], logits: Tensor, others: tuple[Tensor, ...], curves: tuple[Curve, Curve],
               for_positives: float | Tensor, for_negatives: float) -> Tensor:
    """A function of numbers that are each on their own, in blocks; at once where a compiler makes its own loops."""
    if not is_eager():
        return function(logits, *others, curves, for_positives, for_negatives)
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    shape = (-1, logits.shape[-1]) if logits.ndim > 1 and logits.numel() else (-1, 1)
    parts = [tensor.expand(logits.shape).reshape(shape) for tensor in (*others, for_positives)
             if isinstance(tensor, Tensor)]
    for z, result, *part in in_blocks(logits.reshape(shape), out.view(shape), *parts, share=2):
        positives = part.pop() if isinstance(for_positives, Tensor) else for_positives
        result.copy_(function(z, *part, curves, positives, for_negatives))
    return out


def _losses(logits: Tensor, target: Tensor, curves: tuple[Curve, Curve], for_positives: float | Tensor,
            for_negatives: float) -> Tensor:
    (curve, negative_curve), value = curves, value_of_many if values_are_readable(logits) else _value
    signs = _signs(logits, target, curves, for_positives, for_negatives)
    if signs is not None:
        return _scaled(value(curve, logits * signs), signs, for_positives, for_negatives)
    if target.is_floating_point() and values_are_readable(logits):
        of_positives, of_negatives = target * for_positives, (1 - target) * for_negatives
        loss = torch.addcmul(of_positives * value(curve, logits), of_negatives, value(negative_curve, -logits))
        if math.isfinite(float(loss.sum())):  # else a weight of 0 may have met an infinite value
            return loss
    return _of_values(logits, target, curves, for_positives, for_negatives, lambda gap, each: value(each, gap))


def _of_values(logits: Tensor, target: Tensor, curves: tuple[Curve, Curve], for_positives: float | Tensor,
               for_negatives: float, value: Callable[[Tensor, Curve], Tensor]) -> Tensor:
    """The losses from the values of the curves, in operations that autograd knows if it knows those of ``value``."""
    curve, negative_curve = curves
    if target.is_floating_point():
        return (_weighted(target * for_positives, value(logits, curve))
                + _weighted((1 - target) * for_negatives, value(-logits, negative_curve)))
    gap = sigmoid_gap(logits, target)
    loss = value(gap, curve)
    if negative_curve is not curve:  # not !=, which a compiler cannot ask of numbers that a schedule changes
        loss = torch.where(target, loss, value(gap, negative_curve))
    return _scaled(loss, target, for_positives, for_negatives)


def _slopes(logits: Tensor, target: Tensor, upstream: Tensor, curves: tuple[Curve, Curve],
            for_positives: float | Tensor, for_negatives: float) -> Tensor:
    """The derivative of :func:`_losses` times the upstream gradient."""
    plain = values_are_readable(logits) and not backward_must_be_differentiable(upstream)
    (curve, negative_curve), pull_of = curves, pull_of_many if plain else _pull
    signs = _signs(logits, target, curves, for_positives, for_negatives)
    if signs is not None:
        pull = _scaled(pull_of(curve, logits * signs), signs, for_positives, for_negatives)
        return signs * -upstream * pull
    if target.is_floating_point():
        of_negatives = (1 - target) * for_negatives * pull_of(negative_curve, -logits)
        return upstream * (of_negatives - target * for_positives * pull_of(curve, logits))
    gap = sigmoid_gap(logits, target)
    pull = pull_of(curve, gap)
    if negative_curve is not curve:
        pull = torch.where(target, pull, pull_of(negative_curve, gap))
    return sigmoid_gap(-upstream, target) * _scaled(pull, target, for_positives, for_negatives)


def _signs(logits: Tensor, target: Tensor, curves: tuple[Curve, Curve], for_positives: float | Tensor,
           for_negatives: float) -> Tensor | None:
    """1 for classes that are present and -1 for those that are not, where every one is one or the other: one value per
    logit is enough then. A multiplication takes a fraction of the time of a ``where``."""
    if curves[0] is not curves[1]:
        return None
    if target.is_floating_point():
        # A weight of 0 leaves nothing of an infinite value, which matters for probabilities alone.
        if isinstance(for_positives, Tensor) or 0 in (for_positives, for_negatives):
            return None
        if not values_are_readable(target) or not torch.equal(target * target, target):
            return None
    return target.to(logits.dtype).mul(2).sub_(1)


def _value(curve: Curve, gap: Tensor) -> Tensor:
    return curve.value(gap)


def _pull(curve: Curve, gap: Tensor) -> Tensor:
    return curve.pull(gap)


def _scaled(numbers: Tensor, target: Tensor, for_positives: float | Tensor, for_negatives: float) -> Tensor:
    """The numbers times their factors; the target is bool, or above 0 for classes that are present."""
    if not isinstance(for_positives, Tensor) and for_positives == for_negatives == 1:
        return numbers
    positive = target if target.dtype == torch.bool else target > 0
    return numbers * torch.where(positive, for_positives, torch.full_like(numbers, for_negatives))


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
