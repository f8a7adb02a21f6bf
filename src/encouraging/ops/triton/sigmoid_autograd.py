"""The kernel of the sigmoid link as a differentiable operation; its plain twin is ``elementwise.sigmoid_losses``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...curves import Curve
from ...torch_state import is_batched
from .. import elementwise
from ..reduction import Divisor
from .cached_launch import Kept, Prepared
from .curves import constants
from .finish import NOBODY
from .functions import bare_apply
from .layout import pieces
from .sigmoid import CLASS_INDEX, PRESENCE, PROBABILITY, sigmoid_kernel
from .sums import Sum, launch_total, sum_of, total_for, workspace
from .upstream import mean_factor, one_or_each, scaled, step_times_upstream

_BLOCK = 2048  # elements of a program
_SMALL_BLOCK = 1024
few_elements = 1 << 21  # up to so many, small blocks keep more of the GPU busy: 982 large ones are one round and a bit


class SigmoidStep:
    """What all calls of a loss with the same arguments share; ``factor`` multiplies the sum, ``dtype`` is the loss's.

    With ``repeats`` they also have the same shapes, types and layouts: the launches are worked out in the first of
    them. ``mse`` is for square curves alone: the squared error of probabilities as targets, with its mirror.
    """

    __slots__ = ("alpha", "backward", "curve", "dtype", "factor", "forward", "mse", "negative_curve", "repeats",
                 "scaled")

    def __init__(self, curve: Curve, negative_curve: Curve, alpha: float | None, mse: bool, factor: float,
                 dtype: torch.dtype, repeats: bool = False) -> None:
        self.curve, self.negative_curve, self.alpha, self.mse = curve, negative_curve, alpha, mse
        self.factor, self.dtype, self.repeats = factor, dtype, repeats
        self.forward: tuple[Prepared, Prepared | None] | None = None  # and another launch for the sum
        self.backward: tuple[Any, Prepared] | None = None  # and for which upstream gradients it was worked out
        self.scaled: tuple[Any, Prepared] | None = None  # the same for a gradient that was made ahead

    def sum(self, logits: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None,
            divisor: Tensor | None, grad: Tensor | None = None) -> Tensor:
        """The sum times the factor over the divisor, and its gradient where there is a buffer."""
        if self.forward is not None:
            device, (launch, by_another) = logits.get_device(), self.forward
            if by_another is None:
                out = torch.empty(size=(), dtype=self.dtype, device=logits.device)
                launch(device, logits, target, weight, pos_weight, divisor, None, out, *workspace(logits), grad)
                return out
            shares = torch.empty(launch.programs, dtype=torch.float32, device=logits.device)
            launch(device, logits, target, weight, pos_weight, divisor, None, None, shares, None, grad)
            return launch_total(by_another, shares, divisor, None, self.dtype)
        sums = sum_of(logits, pieces(logits.numel(), _block(logits)), dtype=self.dtype)
        launched = _launch(logits, target, weight, pos_weight, self, sums=sums, grad=grad, divisor=divisor)
        if self.repeats and launched is not None:
            by_another = None if sums.ending else total_for(
                logits.get_device(), sums.programs, 0 if divisor is None else 1, self.factor, NOBODY.value, None,
                self.dtype)
            self.forward = launched, by_another
        return sums.total(divisor, self.factor)

    def gradient(self, logits: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None,
                 divisor: Tensor | None, upstream: Tensor) -> Tensor:
        """The gradient of the sum times its upstream gradient, made in the backward pass."""
        result = torch.empty_like(logits)
        # Not always as in the forward pass: hooks on saved tensors give back copies.
        lie = logits.is_contiguous(), target.is_contiguous(), upstream.dtype
        if self.backward is not None and self.backward[0] == lie and not is_batched(upstream):
            self.backward[1](logits.get_device(), logits, target, weight, pos_weight, divisor, upstream, None, None,
                             None, result)
            return result
        batched = is_batched(upstream)
        launched = _launch(logits, target, weight, pos_weight, self, grad=result, divisor=divisor,
                           upstream=None if batched else upstream)
        if self.repeats and launched is not None and not batched and all(lie[:2]):
            self.backward = lie, launched
        return (result.float() * upstream).to(result.dtype) if batched else result


def sigmoid_loss(logits: Tensor, target: Tensor, curve: Curve, *, negative_curve: Curve | None = None,
                 weight: Tensor | None = None, pos_weight: Tensor | None = None, alpha: float | None = None,
                 reduction: str = "mean", divisor: Divisor = None, mse: bool = False,
                 dtype: torch.dtype = torch.float32) -> Tensor:
    """The sum, the mean or (``none``) the losses of logits of any shape, in ``dtype``.

    ``target`` has the logits' shape, or that of their rows: one class index for each, with the classes last. ``mse`` is
    for square curves alone: the squared error of probabilities as targets, with its mirror.
    """
    target = target.detach()
    if not _walk_alike(logits, target):
        logits, target = logits.contiguous(), target.contiguous()
    weight, pos_weight = (None if factor is None else factor.detach() for factor in (weight, pos_weight))
    factor, over = mean_factor(logits.numel(), reduction, divisor, logits.device)
    step = SigmoidStep(curve, negative_curve or curve, alpha, mse, factor, dtype)
    form = _SigmoidLater if reduction == "none" else (
        _SigmoidLaterReduced if logits.dtype == torch.float16 and logits.requires_grad else _SigmoidAhead)
    loss: Tensor = form.apply(logits, target, weight, pos_weight, over, step)
    return loss


def repeated_sigmoid_loss(curve: Curve, negative_curve: Curve, alpha: float | None,
                          reduction: str) -> Callable[..., Tensor]:
    """:func:`sigmoid_loss` for calls that repeat: of logits and targets of the same shapes and types, contiguous, in
    eager mode; ``weight`` and ``pos_weight`` :func:`lie_as_read`, and the ``divisor`` is float32."""
    steps: dict[tuple[bool, torch.dtype], tuple[Callable[..., Tensor], SigmoidStep]] = {}

    def loss(logits: Tensor, target: Tensor, dtype: torch.dtype, weight: Tensor | None, pos_weight: Tensor | None,
             divisor: Tensor | None) -> Tensor:
        learns = logits.requires_grad and torch.is_grad_enabled()
        found = steps.get((learns, dtype))
        if found is None:
            apply = _apply_none if reduction == "none" else (
                _apply_later if logits.dtype == torch.float16 and learns else _apply_ahead)
            factor, _ = mean_factor(logits.numel(), reduction, divisor, logits.device)
            found = steps[learns, dtype] = apply, SigmoidStep(curve, negative_curve, alpha, False, factor, dtype, True)
        apply, step = found
        # Without gradients the Function would still be asked for one by logits that require it.
        return apply(logits if learns else logits.detach(), target, weight, pos_weight, divisor, step)

    return loss


def _walk_alike(logits: Tensor, target: Tensor) -> bool:
    """Whether both lie in memory in the order of their elements."""
    return logits.is_contiguous() and target.is_contiguous()


class _SigmoidAhead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None,
                divisor: Tensor | None, step: SigmoidStep) -> Tensor:
        grad = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        ctx.save_for_backward(logits, target, weight, pos_weight, divisor, grad)
        ctx.step = step
        return step.sum(logits, target, weight, pos_weight, divisor, grad)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, pos_weight, divisor, grad = ctx.saved_tensors
        if torch.is_grad_enabled():
            above = scaled(upstream, ctx.step.factor, divisor).expand(logits.shape)
            return _differentiable(logits, target, weight, pos_weight, ctx.step, above), *_NONE
        if grad.ndim == 2:
            return step_times_upstream(ctx.step, grad, upstream), *_NONE
        return step_times_upstream(ctx.step, grad.view(-1, 1), upstream).view_as(grad), *_NONE


class _SigmoidLaterReduced(torch.autograd.Function):
    """The sum or the mean, whose gradient is made in the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None,
                divisor: Tensor | None, step: SigmoidStep) -> Tensor:
        ctx.save_for_backward(logits, target, weight, pos_weight, divisor)
        ctx.step = step
        return step.sum(logits, target, weight, pos_weight, divisor)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, pos_weight, divisor = ctx.saved_tensors
        if torch.is_grad_enabled():
            above = scaled(upstream, ctx.step.factor, divisor).expand(logits.shape)
            return _differentiable(logits, target, weight, pos_weight, ctx.step, above), *_NONE
        return ctx.step.gradient(logits, target, weight, pos_weight, divisor, upstream), *_NONE


class _SigmoidLater(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None,
                divisor: None, step: SigmoidStep) -> Tensor:
        losses = torch.empty_like(logits, dtype=step.dtype)
        _launch(logits, target, weight, pos_weight, step, losses=losses)
        ctx.save_for_backward(logits, target, weight, pos_weight)
        ctx.step = step
        return losses

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, pos_weight = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable(logits, target, weight, pos_weight, ctx.step, upstream), *_NONE
        result, batched = torch.empty_like(logits), is_batched(upstream)
        _launch(logits, target, weight, pos_weight, ctx.step, grad=result, upstream=None if batched else upstream)
        return (result.float() * upstream).to(result.dtype) if batched else result, *_NONE


_NONE = (None,) * 5  # for everything but the logits
_apply_ahead, _apply_later, _apply_none = map(bare_apply, (_SigmoidAhead, _SigmoidLaterReduced, _SigmoidLater))


def _differentiable(logits: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None,
                    step: SigmoidStep, upstream: Tensor) -> Tensor:
    """The gradient in operations that can be differentiated again: the plain ones."""
    losses = elementwise.sigmoid_losses(logits, target, step.curve, step.negative_curve, weight, pos_weight, step.alpha,
                                        step.mse)
    return torch.autograd.grad(losses, logits, upstream.to(losses.dtype), create_graph=True)[0]


_launches = Kept()


def _launch(logits: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None, step: SigmoidStep, *,
            sums: Sum | None = None, losses: Tensor | None = None, grad: Tensor | None = None,
            upstream: Tensor | None = None, divisor: Tensor | None = None) -> Prepared | None:
    """Write whatever there is a buffer for; ``grad`` of the sum times the factor over ``divisor``, and times an
    upstream gradient, one for all or one for each. What was launched, if there is any element."""
    upstream, how = (None, 0) if upstream is None else one_or_each(upstream)
    elements, block, scale = logits.numel(), _block(logits), step.factor
    if not elements:
        return None
    weight, *of_weight = _factor(weight, logits)
    pos_weight, *of_pos_weight = _factor(pos_weight, logits)
    out, shares, counter = (losses, None, None) if sums is None else sums[:3]
    key = (logits.get_device(), logits.dtype, logits.shape, target.dtype, target.ndim, step.curve, step.negative_curve,
           step.alpha, step.mse, scale, None if weight is None else weight.dtype, *of_weight,
           None if pos_weight is None else pos_weight.dtype, *of_pos_weight, divisor is None, how,
           None if upstream is None else upstream.dtype, None if out is None else out.dtype,
           None if sums is None else sums.ending, grad is None, block)
    prepared: Prepared | None = _launches.get(key)
    if prepared is None:
        kind = PROBABILITY if target.is_floating_point() else PRESENCE if target.shape == logits.shape else CLASS_INDEX
        positive, negative = constants(step.curve), constants(step.negative_curve)
        classes, alpha = logits.shape[-1] if logits.ndim else 1, step.alpha
        unit = math.gcd(16, elements)
        numbers = (elements // unit, classes, *of_weight, *of_pos_weight, 1.0 if alpha is None else float(alpha),
                   1.0 if alpha is None else 1.0 - alpha, float(scale), *positive[2:], *negative[2:])
        prepared = _launches.keep(key, Prepared(
            sigmoid_kernel, pieces(elements, block), numbers, KIND=positive.kind, NEGATIVE_KIND=negative.kind,
            TWO_CURVES=positive != negative, TARGET=kind.value, MSE=step.mse, WEIGHTED=weight is not None,
            POS_WEIGHTED=pos_weight is not None, DIVIDED=divisor is not None, GRAD=grad is not None,
            SUMS=sums is not None, VALUES=losses is not None, UPSTREAM=how, LARGE=elements >= 2**31 - block,
            WIDE=classes >= block, UNIT=unit, BLOCK=block, LAST=0 if sums is None else sums.ending, num_warps=4,
            enable_fp_fusion=True))
    prepared(logits.get_device(), logits, target, weight, pos_weight, divisor, upstream, out, shares, counter, grad)
    return prepared


def _block(logits: Tensor) -> int:
    return _SMALL_BLOCK if logits.numel() <= few_elements else _BLOCK


def lie_as_read(logits: Tensor, *factors: Tensor | None) -> bool:
    """Whether the kernels read these factors where they lie, without a copy."""
    return all(factor is None or _factor(factor, logits)[0].data_ptr() == factor.data_ptr()  # type: ignore[union-attr]
               for factor in factors)


def _factor(factor: Tensor | None, logits: Tensor) -> tuple[Tensor | None, int, int]:
    """A factor that broadcasts to the logits, the size of the dimensions after its own, and its own size. Its own
    dimensions are neighbours, or it is written out."""
    if factor is None:
        return None, 1, 1
    sizes = (1,) * (logits.ndim - factor.ndim) + tuple(factor.shape)
    own = [axis for axis, size in enumerate(sizes) if size > 1]
    if not own:
        return factor.contiguous(), 1, 1
    inside = range(own[0], own[-1] + 1)
    if any(sizes[axis] != logits.shape[axis] for axis in inside):
        return factor.expand(logits.shape).contiguous(), 1, logits.numel()
    after = math.prod(logits.shape[own[-1] + 1:])
    return factor.contiguous(), after, math.prod(logits.shape[axis] for axis in inside)
