"""The kernels of soft targets as a differentiable operation; the two forms are those of ``autograd.py``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...curves import Curve
from ...torch_state import is_batched
from .. import reference
from ..reduction import Divisor, reduce
from . import soft_operators
from .curves import constants
from .soft_launch import SoftProblem, soft_loss_sum, soft_losses
from .upstream import mean_factor, scaled, times_upstream

_NONE = (None,) * 6  # for everything but logits and target


def soft_loss(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None,
              label_smoothing: float = 0.0, reduction: str = "mean", divisor: Divisor = None,
              dtype: torch.dtype = torch.float32) -> Tensor:
    """``reference.soft_loss`` by the kernels, for logits and probabilities (N, C); a mean is over ``divisor`` where
    there is one. The loss has this ``dtype``.

    The targets may need a gradient too. ``torch.compile`` sees one operator, and one for the gradients.
    """
    if torch.compiler.is_compiling():
        rows = soft_operators.rows(logits, target, weight, curve, label_smoothing)
        return reduce(rows, reduction, divisor).to(dtype)
    problem = _problem(logits, target, weight, curve, label_smoothing)
    factor, over = mean_factor(logits.shape[0], reduction, divisor, logits.device)
    if not (torch.is_grad_enabled() and (logits.requires_grad or target.requires_grad)):
        if reduction == "none":
            return soft_losses(problem, dtype=dtype)
        return soft_loss_sum(problem, factor, over, dtype=dtype)
    if reduction == "none":
        losses: Tensor = _SoftLater.apply(logits, target, problem.weight, curve, problem.smoothing, dtype)
        return losses
    form = _SoftLaterReduced if torch.float16 in (logits.dtype, target.dtype) else _SoftAhead
    loss: Tensor = form.apply(logits, target, problem.weight, curve, problem.smoothing, factor, over, dtype)
    return loss


def _problem(logits: Tensor, target: Tensor, weight: Tensor | None, curve: Curve, smoothing: float) -> SoftProblem:
    weight = None if weight is None else weight.detach().float().contiguous()
    return SoftProblem(logits, target, weight, constants(curve), float(smoothing))


def soft_loss_and_gradient_(logits: Tensor, target: Tensor, curve: Curve, weight: Tensor | None, smoothing: float,
                            denominator: Tensor | None, upstream: Tensor | None) -> Tensor:
    """``loss_and_gradient_`` of soft targets."""
    if denominator is not None:
        above = logits.new_ones(logits.shape[0], dtype=torch.float32) if upstream is None else upstream
        upstream = above / denominator
    upstream = None if upstream is None else upstream.contiguous()
    return soft_losses(_problem(logits, target, weight, curve, smoothing), grad=logits, upstream=upstream)


class _SoftAhead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, curve: Curve, smoothing: float,
                factor: float, divisor: Tensor | None, dtype: torch.dtype) -> Tensor:
        grad = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        by_target = torch.empty_like(target) if ctx.needs_input_grad[1] else None
        problem = SoftProblem(logits, _with_strides_of(target, by_target), weight, constants(curve), smoothing)
        ctx.save_for_backward(logits, target, weight, divisor, grad, by_target)
        ctx.arguments, ctx.factor = (curve, smoothing, "sum"), factor
        return soft_loss_sum(problem, factor, divisor, grad=grad, by_target=by_target, dtype=dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, divisor, *made = ctx.saved_tensors
        if torch.is_grad_enabled():
            above = scaled(upstream, ctx.factor, divisor)
            gradients = _differentiable(logits, target, weight, above, ctx.needs_input_grad, *ctx.arguments)
        else:
            gradients = [None if grad is None else times_upstream(grad, upstream) for grad in made]
        return *gradients, *_NONE


class _SoftLaterReduced(torch.autograd.Function):
    """The sum or the mean, whose gradients are made in the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, curve: Curve, smoothing: float,
                factor: float, divisor: Tensor | None, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(logits, target, weight, divisor)
        ctx.arguments, ctx.factor = (curve, smoothing, "sum"), factor
        return soft_loss_sum(SoftProblem(logits, target, weight, constants(curve), smoothing), factor, divisor,
                             dtype=dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, divisor = ctx.saved_tensors
        if torch.is_grad_enabled():
            above = scaled(upstream, ctx.factor, divisor)
            return *_differentiable(logits, target, weight, above, ctx.needs_input_grad, *ctx.arguments), *_NONE
        batched = is_batched(upstream)
        one = torch.ones((), device=logits.device) if batched else upstream
        curve, smoothing, _ = ctx.arguments
        gradients = _gradients(logits, target, weight, one, ctx.needs_input_grad, curve, smoothing, ctx.factor, divisor)
        if batched:
            gradients = [None if grad is None else (grad.float() * upstream).to(grad.dtype) for grad in gradients]
        return *gradients, *_NONE


class _SoftLater(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, curve: Curve,
                smoothing: float, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(logits, target, weight)
        ctx.arguments = curve, smoothing, "none"
        return soft_losses(SoftProblem(logits, target, weight, constants(curve), smoothing), dtype=dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight = ctx.saved_tensors
        if torch.is_grad_enabled():
            gradients = _differentiable(logits, target, weight, upstream.float(), ctx.needs_input_grad, *ctx.arguments)
        else:
            batched = is_batched(upstream)
            one = torch.ones(logits.shape[0], device=logits.device) if batched else upstream
            gradients = _gradients(logits, target, weight, one, ctx.needs_input_grad, *ctx.arguments[:2])
            if batched:
                gradients = [None if grad is None else (grad.float() * upstream[:, None]).to(grad.dtype)
                             for grad in gradients]
        return *gradients, None, None, None, None


def _gradients(logits: Tensor, target: Tensor, weight: Tensor | None, upstream: Tensor, needs: Any, curve: Curve,
               smoothing: float, factor: float = 1.0, divisor: Tensor | None = None) -> list[Tensor | None]:
    """The gradients on logits and target, where needed, of what :func:`soft_losses` writes."""
    grad = torch.empty_like(logits) if needs[0] else None
    by_target = torch.empty_like(target) if needs[1] else None
    problem = SoftProblem(logits, _with_strides_of(target, by_target), weight, constants(curve), smoothing)
    soft_losses(problem, upstream=upstream.contiguous(), grad=grad, by_target=by_target, factor=factor,
                divisor=divisor)
    return [grad, by_target]


def _with_strides_of(target: Tensor, by_target: Tensor | None) -> Tensor:
    """The target, laid out as its gradient: ``empty_like`` gives another layout to a target with gaps."""
    if by_target is None or by_target.stride() == target.stride():
        return target
    return torch.empty_like(by_target).copy_(target.detach())


def _differentiable(logits: Tensor, target: Tensor, weight: Tensor | None, upstream: Tensor, needs: Any, curve: Curve,
                    smoothing: float, reduction: str) -> list[Tensor | None]:
    """The gradients in operations that can be differentiated again: the reference's."""
    loss = reference.soft_loss(logits, target, curve, weight=weight, label_smoothing=smoothing, reduction=reduction)
    inputs = [tensor for tensor, need in zip((logits, target), needs, strict=False) if need]
    found = iter(torch.autograd.grad(loss, inputs, upstream, create_graph=True))
    return [next(found) if need else None for need in needs[:2]]
