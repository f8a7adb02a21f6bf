"""The kernels of soft targets as a differentiable operation; the two forms are those of ``autograd.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...curves import Curve
from ...torch_state import is_batched
from .. import reference
from ..dispatch import KERNEL_DTYPES
from ..reduction import Divisor, reduce
from . import soft_operators
from .cached_launch import Prepared
from .curves import constants
from .functions import bare_apply
from .soft_later_launch import empty_soft_state, soft_gradient_later
from .soft_launch import SoftPlan, SoftProblem, soft_gradients, soft_loss_sum, soft_losses, soft_plan_for
from .upstream import mean_factor, scaled, step_times_upstream, times_upstream

_NONE = (None,) * 3  # for everything but logits and target


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
    weight = _plain(weight)
    factor, over = mean_factor(logits.shape[0], reduction, divisor, logits.device)
    step = SoftStep(curve, float(label_smoothing), factor, dtype)
    if not (torch.is_grad_enabled() and (logits.requires_grad or target.requires_grad)):
        if reduction == "none":
            return soft_losses(step.problem(logits, target, weight), dtype=dtype)
        return step.loss(logits, target, weight, over)
    if reduction == "none":
        losses: Tensor = _SoftLater.apply(logits, target, weight, over, step)
        return losses
    form = _SoftLaterReduced if torch.float16 in (logits.dtype, target.dtype) else _SoftAhead
    loss: Tensor = form.apply(logits, target, weight, over, step)
    return loss


class SoftStep:
    """What all calls of a loss over soft targets with the same arguments share.

    With ``repeats`` they also have the same shapes, types and layouts, and the same of them need gradients: the
    launches are worked out in the first of them. ``dtype`` is that of the loss.
    """

    __slots__ = ("curve", "dtype", "factor", "forward", "numbers", "repeats", "scaled", "smoothing")

    def __init__(self, curve: Curve, smoothing: float, factor: float, dtype: torch.dtype,
                 repeats: bool = False) -> None:
        self.curve, self.numbers, self.smoothing = curve, constants(curve), smoothing
        self.factor, self.dtype, self.repeats = factor, dtype, repeats
        self.forward: SoftPlan | None = None
        self.scaled: tuple[Any, Prepared] | None = None  # and how the gradient lay for which it was worked out

    def problem(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> SoftProblem:
        return SoftProblem(logits, target, weight, self.numbers, self.smoothing)

    def empty_state(self, logits: Tensor, target: Tensor, weight: Tensor | None, needs: Any) -> Tensor | None:
        """Room for what makes a later gradient cheap, where only the logits have one."""
        return empty_soft_state(self.problem(logits, target, weight)) if needs[0] and not needs[1] else None

    def loss(self, logits: Tensor, target: Tensor, weight: Tensor | None, divisor: Tensor | None,
             grad: Tensor | None = None, by_target: Tensor | None = None, state: Tensor | None = None) -> Tensor:
        """The sum or the mean, and whatever there is a buffer for."""
        plan = self.forward
        if plan is None:
            target = _with_strides_of(target, by_target)
            problem = self.problem(logits, target, weight)
            if not (self.repeats and logits.shape[0]) and state is None:
                return soft_loss_sum(problem, self.factor, divisor, grad=grad, by_target=by_target, dtype=self.dtype)
            plan = soft_plan_for(problem, self.factor, divisor, grad, by_target, self.dtype, state is not None)
            if by_target is None and self.repeats:  # else the target may have been copied
                self.forward = plan
        return plan.run(logits, target, weight, divisor, grad, by_target, state)


def repeated_soft_loss(curve: Curve, smoothing: float, reduction: str) -> Callable[..., Tensor]:
    """:func:`soft_loss` for calls that repeat, see ``autograd.repeated_loss``."""
    steps: dict[tuple[bool, bool, torch.dtype, int], tuple[Callable[..., Tensor] | None, SoftStep]] = {}

    def loss(logits: Tensor, target: Tensor, dtype: torch.dtype, weight: Tensor | None = None,
             divisor: Tensor | None = None, curve: Curve = curve) -> Tensor:
        if reduction == "none":
            return soft_loss(logits, target, curve, weight=weight, label_smoothing=smoothing, reduction=reduction,
                             dtype=dtype)
        learns = torch.is_grad_enabled()
        by_logits, by_target = learns and logits.requires_grad, learns and target.requires_grad
        key = by_logits, by_target, dtype, target.data_ptr() & 15  # the ends of rows depend on where the target begins
        made = steps.get(key)
        if made is None:
            half = torch.float16 in (logits.dtype, target.dtype)
            apply = None if not (by_logits or by_target) else _apply_later if half else _apply_ahead
            factor, _ = mean_factor(logits.shape[0], reduction, divisor, logits.device)
            made = steps[key] = apply, SoftStep(curve, smoothing, factor, dtype, repeats=True)
        apply, step = made
        if apply is None:
            return step.loss(logits, target, weight, divisor)
        return apply(logits, target, weight, divisor, step)

    return loss


def _plain(weight: Tensor | None) -> Tensor | None:
    """Class weights as the kernels read them."""
    if weight is None:
        return None
    weight = weight.detach()
    return (weight if weight.dtype in KERNEL_DTYPES else weight.float()).contiguous()


def _problem(logits: Tensor, target: Tensor, weight: Tensor | None, curve: Curve, smoothing: float) -> SoftProblem:
    return SoftProblem(logits, target, _plain(weight), constants(curve), float(smoothing))


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
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, divisor: Tensor | None,
                step: SoftStep) -> Tensor:
        needs = ctx.needs_input_grad
        grad = torch.empty_like(logits) if needs[0] else None
        by_target = torch.empty_like(target) if needs[1] else None
        ctx.save_for_backward(logits, target, weight, divisor, grad, by_target)
        ctx.step = step
        return step.loss(logits, target, weight, divisor, grad, by_target)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, divisor, grad, by_target = ctx.saved_tensors
        step = ctx.step
        if torch.is_grad_enabled():
            above = scaled(upstream, step.factor, divisor)
            return *_differentiable(logits, target, weight, above, ctx.needs_input_grad, step, "sum"), *_NONE
        if by_target is None and grad is not None:
            return step_times_upstream(step, grad, upstream), None, *_NONE
        return *(None if made is None else times_upstream(made, upstream) for made in (grad, by_target)), *_NONE


class _SoftLaterReduced(torch.autograd.Function):
    """The sum or the mean, whose gradients are made in the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, divisor: Tensor | None,
                step: SoftStep) -> Tensor:
        state = step.empty_state(logits, target, weight, ctx.needs_input_grad)
        ctx.save_for_backward(logits, target, weight, divisor, state)
        ctx.step = step
        return step.loss(logits, target, weight, divisor, state=state)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, divisor, state = ctx.saved_tensors
        step = ctx.step
        if torch.is_grad_enabled():
            above = scaled(upstream, step.factor, divisor)
            return *_differentiable(logits, target, weight, above, ctx.needs_input_grad, step, "sum"), *_NONE
        batched = is_batched(upstream)
        one = torch.ones((), dtype=torch.float32, device=logits.device) if batched else upstream
        gradients = _gradients(logits, target, weight, one, ctx.needs_input_grad, step, state, step.factor, divisor)
        if batched:
            gradients = [None if grad is None else (grad.float() * upstream).to(grad.dtype) for grad in gradients]
        return *gradients, *_NONE


class _SoftLater(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, divisor: None,
                step: SoftStep) -> Tensor:
        state = step.empty_state(logits, target, weight, ctx.needs_input_grad)
        ctx.save_for_backward(logits, target, weight, state)
        ctx.step = step
        return soft_losses(step.problem(logits, target, weight), state=state, dtype=step.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, state = ctx.saved_tensors
        needs, step = ctx.needs_input_grad, ctx.step
        if torch.is_grad_enabled():
            gradients = _differentiable(logits, target, weight, upstream.float(), needs, step, "none")
        else:
            batched = is_batched(upstream)
            one = torch.ones(logits.shape[0], dtype=torch.float32, device=logits.device) if batched else upstream
            gradients = _gradients(logits, target, weight, one, needs, step, state)
            if batched:
                gradients = [None if grad is None else (grad.float() * upstream[:, None]).to(grad.dtype)
                             for grad in gradients]
        return *gradients, *_NONE


_apply_later, _apply_ahead = bare_apply(_SoftLaterReduced), bare_apply(_SoftAhead)


def _gradients(logits: Tensor, target: Tensor, weight: Tensor | None, upstream: Tensor, needs: Any, step: SoftStep,
               state: Tensor | None, factor: float = 1.0, divisor: Tensor | None = None) -> list[Tensor | None]:
    """The gradients on logits and target, where needed, of what :func:`soft_losses` writes."""
    upstream = upstream.contiguous()
    if state is not None:
        result = torch.empty_like(logits)
        soft_gradient_later(step.problem(logits, target, weight), state, upstream, result, factor, divisor)
        return [result, None]
    grad = torch.empty_like(logits) if needs[0] else None
    by_target = torch.empty_like(target) if needs[1] else None
    problem = step.problem(logits, _with_strides_of(target, by_target), weight)
    soft_gradients(problem, upstream, grad, by_target, factor, divisor)
    return [grad, by_target]


def _with_strides_of(target: Tensor, by_target: Tensor | None) -> Tensor:
    """The target, laid out as its gradient: ``empty_like`` gives another layout to a target with gaps."""
    if by_target is None or by_target.stride() == target.stride():
        return target
    return torch.empty_like(by_target).copy_(target.detach())


def _differentiable(logits: Tensor, target: Tensor, weight: Tensor | None, upstream: Tensor, needs: Any,
                    step: SoftStep, reduction: str) -> list[Tensor | None]:
    """The gradients in operations that can be differentiated again: the reference's."""
    loss = reference.soft_loss(logits, target, step.curve, weight=weight, label_smoothing=step.smoothing,
                               reduction=reduction)
    inputs = [tensor for tensor, need in zip((logits, target), needs, strict=False) if need]
    found = iter(torch.autograd.grad(loss, inputs, upstream, create_graph=True))
    return [next(found) if need else None for need in needs[:2]]
