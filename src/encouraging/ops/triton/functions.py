"""The kernels of labels as autograd Functions; ``autograd.py`` says which form serves whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...curves import Curve
from ...errors import DerivativeError
from ...torch_state import is_batched
from .. import reference
from ..reduction import Divisor
from .cached_launch import Prepared
from .curves import constants
from .later_launch import gradient_later, later_for
from .launch import NO_STATS, Asked, Plan, kept_in, loss_sum, losses, losses_for, plan_for
from .problem import Problem, empty_state
from .short_launch import gradient_again, is_made_again
from .stats import ByProducts
from .upstream import step_times_upstream


def divisor_of(divisor: Divisor, device: torch.device) -> Tensor | None:
    """What a mean is divided by as the kernels take it, partial sums: here one."""
    if divisor is None:
        return None
    if isinstance(divisor, Tensor):
        return divisor.detach().to(device, torch.float32).reshape(1)
    return torch.full((1,), float(divisor), dtype=torch.float32, device=device)


class Step:
    """What all calls of a loss over labels with the same arguments share.

    With ``repeats`` they also have the same shapes, types and layouts, as the steps of a training have: the launches
    are worked out in the first of them. ``dtype`` is that of the loss.
    """

    __slots__ = ("backward", "curve", "dtype", "forward", "ignore_index", "mean", "numbers", "of_rows", "repeats",
                 "scaled", "smoothing")

    def __init__(self, curve: Curve, ignore_index: int, smoothing: float, mean: bool, repeats: bool = False,
                 dtype: torch.dtype = torch.float32) -> None:
        self.curve, self.numbers, self.ignore_index, self.smoothing = curve, constants(curve), ignore_index, smoothing
        self.mean, self.repeats, self.dtype = mean, repeats, dtype
        self.forward: Plan | None = None
        self.of_rows: Prepared | None = None  # the same for a loss per row
        self.backward: tuple[Any, Prepared] | None = None  # and how the logits lay for which it was worked out
        self.scaled: tuple[Any, Prepared] | None = None  # the same for a gradient that was made ahead

    def problem(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Problem:
        return Problem(logits, target, weight, self.numbers, self.ignore_index, self.smoothing)

    def loss(self, logits: Tensor, target: Tensor, weight: Tensor | None, extras: Extras, grad: Tensor | None,
             state: Tensor | None) -> Tensor:
        """The sum or the mean, and whatever there is a buffer for."""
        if self.forward is not None:
            return self.forward.run(logits, target, weight, extras.divisor, grad, state, extras.lengths)
        problem = self.problem(logits, target, weight)
        if self.repeats and target.shape[0]:
            n_partial = 0 if extras.divisor is None else 1
            asked = Asked(True, n_partial, False, grad is not None, kept_in(state), extras.lengths is not None,
                          False)
            self.forward = plan_for(problem, asked, self.mean, grad, self.dtype)
            return self.forward.run(logits, target, weight, extras.divisor, grad, state, extras.lengths)
        loss = loss_sum(problem, self.mean, extras.divisor, grad=grad, state=state, lengths=extras.lengths,
                        stats=extras.by_products)
        return loss if loss.dtype == self.dtype else loss.to(self.dtype)

    def losses(self, logits: Tensor, target: Tensor, weight: Tensor | None, extras: Extras,
               state: Tensor | None) -> Tensor:
        """The loss of every row, and whatever there is a buffer for."""
        if self.of_rows is not None:
            out = torch.empty(target.shape[0], dtype=self.dtype, device=logits.device)
            between = () if self.smoothing else (None,)
            self.of_rows(logits.get_device(), logits, target, weight, None, None, out, None, None, None, state,
                         *between, *NO_STATS)
            return out
        problem = self.problem(logits, target, weight)
        if self.repeats and target.shape[0]:
            asked = Asked(False, 0, False, False, state is not None, False, False)
            self.of_rows = losses_for(problem, asked, None, None, self.dtype)
        return losses(problem, state=state, stats=extras.by_products, lengths=extras.lengths, dtype=self.dtype)

    def differentiable(self, logits: Tensor | None, target: Tensor, weight: Tensor | None, upstream: Tensor,
                       reduction: str) -> Tensor:
        return differentiable(logits, target, weight, upstream, self.curve, self.ignore_index, self.smoothing,
                               reduction)


class Extras(NamedTuple):
    """What few calls ask for: buffers for by-products, a divisor of the mean, lengths for norm matching."""

    by_products: ByProducts | None = None
    divisor: Tensor | None = None
    lengths: Tensor | None = None
    inplace: bool = False


NO_EXTRAS = Extras()


def bare_apply(function: type[torch.autograd.Function]) -> Callable[..., Tensor]:
    """``function.apply`` for callers that know that no transform of ``torch.func`` surrounds them: torch looks through
    all arguments for what is left of one, which takes as long as a launch."""
    apply: Callable[..., Tensor] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply


class Ahead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, step: Step, extras: Extras) -> Tensor:
        # .data: the buffer is ours from here on, and its version is not that of the logits.
        grad = logits.data if extras.inplace else torch.empty_like(logits)
        ctx.save_for_backward(None if extras.inplace else logits, target, weight, grad)
        ctx.step, ctx.divisor = step, extras.divisor
        return step.loss(logits, target, weight, extras, grad, None)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, grad = ctx.saved_tensors
        if torch.is_grad_enabled():
            above = upstream if ctx.divisor is None else upstream / ctx.divisor.reshape(())
            reduction = "mean" if ctx.step.mean and ctx.divisor is None else "sum"
            return ctx.step.differentiable(logits, target, weight, above, reduction), None, None, None, None
        return step_times_upstream(ctx.step, grad, upstream), None, None, None, None


class Later(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, step: Step, extras: Extras) -> Tensor:
        state = None if is_made_again(logits, step.smoothing) else empty_state(target, step.smoothing)
        ctx.save_for_backward(logits, target, weight, state)
        ctx.step = step
        return step.losses(logits, target, weight, extras, state)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, state = ctx.saved_tensors
        step = ctx.step
        if torch.is_grad_enabled():
            return step.differentiable(logits, target, weight, upstream.float(), "none"), None, None, None, None
        result = torch.empty_like(logits)
        batched = is_batched(upstream)
        # Not always as in the forward pass: hooks on saved tensors give back copies.
        lie = logits.dtype, logits.stride(), logits.data_ptr() & 15, upstream.stride()
        above = upstream
        if batched:
            above = torch.ones(target.shape[0], dtype=torch.float32, device=logits.device)
        elif state is None and upstream.stride(0) not in (0, 1):
            above = upstream.contiguous()
        if step.backward is not None and step.backward[0] == lie and not batched:
            if state is None:
                step.backward[1](logits.get_device(), logits, target, weight, None, above, None, None, None, result,
                                 None, None, *NO_STATS)
            else:
                step.backward[1](logits.get_device(), logits, target, weight, state, above, None, result)
            return result, None, None, None, None
        problem = step.problem(logits, target, weight)
        launch = write_later(problem, state, above, result)
        if step.repeats and launch is not None and not batched:
            step.backward = lie, launch
        if batched:
            each = upstream[:, None] if logits.ndim == 2 else upstream.unflatten(0, (-1, 1, logits.shape[2]))
            result = (result.float() * each).to(result.dtype)
        return result, None, None, None, None


class LaterReduced(torch.autograd.Function):
    """The mean or the sum; with ``lengths``, times the factor that they give."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, step: Step, extras: Extras) -> Tensor:
        if extras.lengths is None and is_made_again(logits, step.smoothing):
            state = torch.empty(1, dtype=torch.float32, device=logits.device)
        else:
            state = empty_state(target, step.smoothing, reduced=True)
        ctx.save_for_backward(logits, target, weight, state)
        ctx.step = step
        return step.loss(logits, target, weight, extras, None, state)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, state = ctx.saved_tensors
        step = ctx.step
        if torch.is_grad_enabled():
            return step.differentiable(logits, target, weight, upstream * state[-1], "sum"), None, None, None, None
        result = torch.empty_like(logits)
        batched = is_batched(upstream)
        # Not always as in the forward pass: hooks on saved tensors give back copies.
        lie = logits.dtype, logits.stride(), logits.data_ptr() & 15
        if step.backward is not None and step.backward[0] == lie and not batched:
            if state.numel() == 1:
                step.backward[1](logits.get_device(), logits, target, weight, None, upstream, None, None, None, result,
                                 state, None, *NO_STATS)
            else:
                step.backward[1](logits.get_device(), logits, target, weight, state, upstream, None, result)
            return result, None, None, None, None
        above = torch.ones((), dtype=torch.float32, device=logits.device) if batched else upstream
        problem = step.problem(logits, target, weight)
        launch = write_later(problem, state, above, result)
        if step.repeats and launch is not None and not batched:
            step.backward = lie, launch
        if batched:  # what is 0 stays 0 under an infinite factor: rows that teach nothing
            result = torch.where(result == 0, result, (result.float() * upstream).to(result.dtype))
        return result, None, None, None, None


def write_later(problem: Problem, state: Tensor | None, upstream: Tensor, grad: Tensor) -> Prepared | None:
    """Write the gradient that was left to the backward pass, and return the launch; None where there is no row. Without
    the rows' states it is made again from the logits, ``state`` then having the factor of a sum at most."""
    if not problem.target.shape[0]:
        return None
    if state is None or state.numel() == 1:
        return gradient_again(problem, state, upstream, grad)
    gradient_later(problem, state, upstream, grad)
    return later_for(problem, upstream, grad)


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


def differentiable(logits: Tensor | None, target: Tensor, weight: Tensor | None, upstream: Tensor, curve: Curve,
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
