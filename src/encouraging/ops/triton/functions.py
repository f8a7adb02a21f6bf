"""The kernels of labels as autograd Functions; ``autograd.py`` says which form serves whom."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...curves import Curve
from ...errors import DerivativeError
from ...torch_state import is_batched
from .. import reference
from ..reduction import Divisor
from .curves import constants
from .launch import Problem, denominator, empty_state, gradient_later, losses, total
from .matching import norm_ratio
from .stats import ByProducts
from .upstream import times_upstream


def denominator_of(problem: Problem, reduction: str, divisor: Divisor) -> Tensor | None:
    """What the sum is divided by, as partial sums."""
    if reduction != "mean":
        return None
    if divisor is None:
        return denominator(problem)
    if isinstance(divisor, Tensor):
        return divisor.detach().float().reshape(1)
    return torch.full((1,), float(divisor), device=problem.logits.device)


class Ahead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, problem: Problem, curve: Curve, reduction: str, inplace: bool,
                by_products: ByProducts | None, divisor: Divisor) -> Tensor:
        # .data: the buffer is ours from here on, and its version is not that of the logits.
        grad = logits.data if inplace else torch.empty_like(logits)
        parts = denominator_of(problem, reduction, divisor)
        loss = total(losses(problem, sums=True, grad=grad, partial_weights=parts, stats=by_products), parts)
        ctx.save_for_backward(None if inplace else logits, problem.target, problem.weight, grad, parts)
        ctx.arguments = curve, problem.ignore_index, problem.smoothing, "sum"
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, grad, parts = ctx.saved_tensors
        if torch.is_grad_enabled():
            above = upstream if parts is None else upstream / parts.sum()
            result = _differentiable(logits, target, weight, above, *ctx.arguments)
        else:
            result = times_upstream(grad, upstream)
        return result, None, None, None, None, None, None


class Later(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, problem: Problem, curve: Curve, by_products: ByProducts | None,
                lengths: Tensor | None = None) -> Tensor:
        state = empty_state(problem)
        rows = losses(problem, state=state, stats=by_products, lengths=lengths)
        ctx.save_for_backward(logits, problem.target, problem.weight, state)
        ctx.arguments = curve, problem.ignore_index, problem.smoothing
        return rows

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, state = ctx.saved_tensors
        curve, ignore_index, smoothing = ctx.arguments
        if torch.is_grad_enabled():
            result = _differentiable(logits, target, weight, upstream, *ctx.arguments)
        else:
            problem = Problem(logits, target, weight, constants(curve), ignore_index, smoothing)
            result = torch.empty_like(logits)
            batched = is_batched(upstream)
            gradient_later(problem, state, torch.ones_like(state[0]) if batched else upstream, result)
            if batched:
                above = upstream[:, None] if logits.ndim == 2 else upstream.unflatten(0, (-1, 1, logits.shape[2]))
                result = (result.float() * above).to(result.dtype)
        return result, None, None, None, None


class LaterReduced(torch.autograd.Function):
    """The mean or the sum; with ``lengths``, times the factor that they give."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, problem: Problem, curve: Curve, reduction: str,
                by_products: ByProducts | None, divisor: Divisor, lengths: Tensor | None) -> Tensor:
        state = empty_state(problem)
        parts = denominator_of(problem, reduction, divisor)
        loss = total(losses(problem, sums=True, state=state, stats=by_products, lengths=lengths), parts)
        factor = None if lengths is None else norm_ratio(lengths)
        ctx.save_for_backward(logits, problem.target, problem.weight, state, parts, factor)
        ctx.arguments = curve, problem.ignore_index, problem.smoothing
        return loss if factor is None else loss * factor

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, state, parts, factor = ctx.saved_tensors
        above = upstream if parts is None else upstream / parts.sum()
        above = above if factor is None else above * factor
        curve, ignore_index, smoothing = ctx.arguments
        if torch.is_grad_enabled():
            result = _differentiable(logits, target, weight, above, curve, ignore_index, smoothing, "sum")
        else:
            result = torch.empty_like(logits)
            batched = is_batched(upstream)
            each = torch.ones_like(state[0]) if batched else above.expand(state.shape[1])
            gradient_later(Problem(logits, target, weight, constants(curve), ignore_index, smoothing), state, each,
                           result)
            if batched:  # what is 0 stays 0 under an infinite factor: rows that teach nothing
                result = torch.where(result == 0, result, (result.float() * above).to(result.dtype))
        return result, None, None, None, None, None, None


class Overwritten(torch.autograd.Function):
    """Tells autograd that the logits hold something else now.

    Operations that saved them before fail in their backward pass by autograd's own check of versions. Operations that
    read them from now on lead their backward pass here.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        ctx.mark_dirty(logits)
        return logits

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> None:
        raise DerivativeError(
            "the logits were overwritten by their gradient (inplace=True) and then used by another differentiable "
            "operation. Use them before the loss and not after, or pass inplace=False.")


def _differentiable(logits: Tensor | None, target: Tensor, weight: Tensor | None, upstream: Tensor, curve: Curve,
                    ignore_index: int, smoothing: float, reduction: str = "none") -> Tensor:
    """The gradient in operations that can be differentiated again: the reference's."""
    if logits is None:
        raise DerivativeError(
            "create_graph=True asks for second derivatives, but the logits were overwritten by their gradient "
            "(inplace=True). Pass inplace=False.")
    flat = logits if logits.ndim == 2 else logits.movedim(1, -1).flatten(0, 1)
    loss = reference.hard_loss(flat, target, curve, weight=weight, ignore_index=ignore_index,
                               label_smoothing=smoothing, reduction=reduction)
    return torch.autograd.grad(loss, logits, upstream, create_graph=True)[0]
