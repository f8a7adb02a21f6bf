"""The upstream gradient, applied to a gradient that the forward pass has made, and the factor of a mean in that."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...torch_state import is_batched
from ..reduction import Divisor
from .later_launch import scale, scale_for
from .maths import EACH, ONE

# Whether the backward pass that runs leaves its graph for another one.
is_kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def times_upstream(grad: Tensor, upstream: Tensor) -> Tensor:
    """``grad * upstream``, in its own memory where nobody else needs it."""
    if is_batched(upstream):
        return (grad.float() * upstream).to(grad.dtype)
    # A graph that is kept needs the buffer as it is, and so does whoever was given it by an earlier pass.
    # With the strides of the gradient, gaps included, by which the kernel walks over both.
    result = torch.empty_strided(grad.shape, grad.stride(), dtype=grad.dtype, device=grad.device) if is_kept() else grad
    scale(grad, upstream, result)
    return result


def step_times_upstream(step: Any, grad: Tensor, upstream: Tensor) -> Tensor:
    """:func:`times_upstream` for a gradient that was made ahead; where calls repeat, by the ``scaled`` launch that was
    worked out for the first of them."""
    lies = upstream.dtype, grad.stride()
    if step.scaled is not None and step.scaled[0] == lies and not (is_batched(upstream) or is_kept()):
        step.scaled[1](grad.get_device(), grad, grad, upstream)
        return grad
    if step.repeats and grad.numel() and not is_batched(upstream):
        step.scaled = lies, scale_for(grad, upstream, grad)
    return times_upstream(grad, upstream)


def scaled(upstream: Tensor, factor: float, divisor: Tensor | None) -> Tensor:
    """What the losses' sum is multiplied by, where torch differentiates it: in float32, whatever the loss's type."""
    return upstream.float() * factor / (1.0 if divisor is None else divisor.reshape(()))


def one_or_each(upstream: Tensor) -> tuple[Tensor, int]:
    """The upstream gradient of a loss per element as the kernels read it: its one number where it is the same for all,
    which is how a sum or a mean hands it down, or contiguous."""
    if all(stride == 0 or size == 1 for size, stride in zip(upstream.shape, upstream.stride(), strict=True)):
        return upstream, ONE.value
    return upstream.contiguous(), EACH.value


def mean_factor(count: int, reduction: str, divisor: Divisor, device: torch.device) -> tuple[float, Tensor | None]:
    """What a sum is multiplied by, a number, and what it is divided by, on the device: for a mean over ``divisor``, or
    over so many. The mean of nothing is NaN, as torch's."""
    if reduction != "mean":
        return 1.0, None
    if isinstance(divisor, Tensor):
        return 1.0, divisor.detach().to(device, torch.float32).reshape(1)
    return (1 / divisor if divisor else 1 / count if count else math.nan), None
