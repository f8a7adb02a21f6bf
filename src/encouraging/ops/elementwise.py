"""A curve applied to gaps of any shape, with its pull as the gradient: what the sigmoid losses are made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..curves import Curve
from ..links import sigmoid_gap
from ..torch_state import in_forward_mode, needs_plain_operations, read_before_function, values_are_readable
from .rows import compute_dtype


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
