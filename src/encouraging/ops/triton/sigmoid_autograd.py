"""The kernel of the sigmoid link as a differentiable operation; its plain twin is ``elementwise.sigmoid_losses``."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...curves import Curve
from ...torch_state import is_batched
from .. import elementwise
from ..reduction import Divisor
from .cached_launch import launch
from .curves import constants
from .layout import pieces
from .sigmoid import CLASS_INDEX, PRESENCE, PROBABILITY, sigmoid_kernel
from .sums import Sum, sum_of
from .upstream import mean_factor, one_or_each, scaled, times_upstream

_BLOCK = 2048  # elements of a program
_SMALL_BLOCK = 1024
few_elements = 1 << 21  # up to so many, small blocks keep more of the GPU busy: 982 large ones are one round and a bit


class Arguments(NamedTuple):
    """What a loss takes beside logits and target; the factors broadcast to the logits."""

    curve: Curve
    negative_curve: Curve
    weight: Tensor | None
    pos_weight: Tensor | None
    alpha: float | None
    mse: bool


def sigmoid_loss(logits: Tensor, target: Tensor, curve: Curve, *, negative_curve: Curve | None = None,
                 weight: Tensor | None = None, pos_weight: Tensor | None = None, alpha: float | None = None,
                 reduction: str = "mean", divisor: Divisor = None, mse: bool = False,
                 dtype: torch.dtype = torch.float32) -> Tensor:
    """The sum, the mean or (``none``) the losses of logits of any shape, in ``dtype``.

    ``target`` has the logits' shape, or that of their rows: one class index for each, with the classes last. ``mse`` is
    for square curves alone: the squared error of probabilities as targets, with its mirror.
    """
    arguments = Arguments(curve, negative_curve or curve, weight, pos_weight, alpha, mse)
    target = target.detach()
    if not _walk_alike(logits, target):
        logits, target = logits.contiguous(), target.contiguous()
    if reduction == "none":
        rows: Tensor = _SigmoidLater.apply(logits, target, arguments, dtype)
        return rows
    factor, over = mean_factor(logits.numel(), reduction, divisor, logits.device)
    form = _SigmoidLaterReduced if logits.dtype == torch.float16 and logits.requires_grad else _SigmoidAhead
    loss: Tensor = form.apply(logits, target, arguments, factor, over, dtype)
    return loss


def _walk_alike(logits: Tensor, target: Tensor) -> bool:
    """Whether both lie in memory in the order of their elements."""
    return logits.is_contiguous() and target.is_contiguous()


class _SigmoidAhead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, arguments: Arguments, factor: float,
                divisor: Tensor | None, dtype: torch.dtype) -> Tensor:
        grad = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        sums = sum_of(logits, pieces(logits.numel(), _block(logits)), dtype=dtype)
        _launch(logits, target, arguments, sums=sums, grad=grad, scale=factor, divisor=divisor)
        ctx.save_for_backward(logits, target, grad, divisor)
        ctx.arguments, ctx.factor = arguments, factor
        return sums.total(divisor, factor)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, grad, divisor = ctx.saved_tensors
        if torch.is_grad_enabled():
            above = scaled(upstream, ctx.factor, divisor)
            result = _differentiable(logits, target, ctx.arguments, above.expand(logits.shape))
        else:
            result = times_upstream(grad.view(-1, 1), upstream).view_as(grad)
        return result, None, None, None, None, None


class _SigmoidLaterReduced(torch.autograd.Function):
    """The sum or the mean, whose gradient is made in the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, arguments: Arguments, factor: float,
                divisor: Tensor | None, dtype: torch.dtype) -> Tensor:
        sums = sum_of(logits, pieces(logits.numel(), _block(logits)), dtype=dtype)
        _launch(logits, target, arguments, sums=sums, scale=factor, divisor=divisor)
        ctx.save_for_backward(logits, target, divisor)
        ctx.arguments, ctx.factor = arguments, factor
        return sums.total(divisor, factor)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, divisor = ctx.saved_tensors
        if torch.is_grad_enabled():
            above = scaled(upstream, ctx.factor, divisor)
            result = _differentiable(logits, target, ctx.arguments, above.expand(logits.shape))
        else:
            result, batched = torch.empty_like(logits), is_batched(upstream)
            _launch(logits, target, ctx.arguments, grad=result, scale=ctx.factor, divisor=divisor,
                    upstream=None if batched else upstream)
            result = (result.float() * upstream).to(result.dtype) if batched else result
        return result, None, None, None, None, None


class _SigmoidLater(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, arguments: Arguments, dtype: torch.dtype) -> Tensor:
        losses = torch.empty_like(logits, dtype=dtype)
        _launch(logits, target, arguments, losses=losses)
        ctx.save_for_backward(logits, target)
        ctx.arguments = arguments
        return losses

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable(logits, target, ctx.arguments, upstream), None, None, None
        result = torch.empty_like(logits)
        if is_batched(upstream):
            _launch(logits, target, ctx.arguments, grad=result)
            result = (result.float() * upstream).to(result.dtype)
        else:
            _launch(logits, target, ctx.arguments, grad=result, upstream=upstream)
        return result, None, None, None


def _differentiable(logits: Tensor, target: Tensor, arguments: Arguments, upstream: Tensor) -> Tensor:
    """The gradient in operations that can be differentiated again: the plain ones."""
    losses = elementwise.sigmoid_losses(logits, target, *arguments)
    return torch.autograd.grad(losses, logits, upstream.to(losses.dtype), create_graph=True)[0]


def _launch(logits: Tensor, target: Tensor, arguments: Arguments, *, sums: Sum | None = None,
            losses: Tensor | None = None, grad: Tensor | None = None, upstream: Tensor | None = None,
            scale: float = 1.0, divisor: Tensor | None = None) -> None:
    """Write whatever there is a buffer for; ``grad`` of the sum times ``scale`` over ``divisor``, and times an upstream
    gradient, one for all or one for each."""
    upstream, how = (None, 0) if upstream is None else one_or_each(upstream)
    elements, block = logits.numel(), _block(logits)
    if not elements:
        return
    weight, weight_after, weight_size = _factor(arguments.weight, logits)
    pos_weight, pos_after, pos_size = _factor(arguments.pos_weight, logits)
    kind = PROBABILITY if target.is_floating_point() else PRESENCE if target.shape == logits.shape else CLASS_INDEX
    positive, negative = constants(arguments.curve), constants(arguments.negative_curve)
    alpha = arguments.alpha
    out, shares, counter = (losses, None, None) if sums is None else sums[:3]
    tensors = (logits, target, weight, pos_weight, divisor, upstream, out, shares, counter, grad)
    numbers = (elements, logits.shape[-1] if logits.ndim else 1, weight_after, weight_size, pos_after, pos_size,
               1.0 if alpha is None else float(alpha), 1.0 if alpha is None else 1.0 - alpha, float(scale),
               *positive[2:], *negative[2:])
    launch(sigmoid_kernel, pieces(elements, block), tensors, numbers, KIND=positive.kind,
           NEGATIVE_KIND=negative.kind, TWO_CURVES=positive != negative, TARGET=kind.value, MSE=arguments.mse,
           WEIGHTED=weight is not None, POS_WEIGHTED=pos_weight is not None, DIVIDED=divisor is not None,
           GRAD=grad is not None, SUMS=sums is not None, VALUES=losses is not None, UPSTREAM=how,
           LARGE=elements >= 2**31 - block, WIDE=numbers[1] >= block, BLOCK=block,
           LAST=0 if sums is None else sums.ending, num_warps=4, enable_fp_fusion=True)


def _block(logits: Tensor) -> int:
    return _SMALL_BLOCK if logits.numel() <= few_elements else _BLOCK


def _factor(factor: Tensor | None, logits: Tensor) -> tuple[Tensor | None, int, int]:
    """A factor that broadcasts to the logits, the size of the dimensions after its own, and its own size. Its own
    dimensions are neighbours, or it is written out."""
    if factor is None:
        return None, 1, 1
    factor = factor.detach()
    sizes = (1,) * (logits.ndim - factor.ndim) + tuple(factor.shape)
    own = [axis for axis, size in enumerate(sizes) if size > 1]
    if not own:
        return factor.contiguous(), 1, 1
    inside = range(own[0], own[-1] + 1)
    if any(sizes[axis] != logits.shape[axis] for axis in inside):
        return factor.expand(logits.shape).contiguous(), 1, logits.numel()
    after = math.prod(logits.shape[own[-1] + 1:])
    return factor.contiguous(), after, math.prod(logits.shape[axis] for axis in inside)
