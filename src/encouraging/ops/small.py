"""A batch that fits the cache, on the CPU in plain eager mode: one block, whose exponentials are saved for the backward
pass.

``rows.py`` computes them again in the backward pass, so that nothing of the logits' size is saved. Where that is a few
MiB the memory does not matter, and the second pass and the blocks are up to half of the time.

In a batch of some hundred KiB starting an operation takes many times longer than computing its numbers. There are
therefore few operations here: weights and mean are part of the Function, value and pull are computed together, and what
infinite logits need is computed only where there are any. :func:`plain_loss` is the shortest path, for calls with
nothing to convert.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..curves import Curve
from ..curves._together import constant, value_and_pull
from ..links import gap_and_rivals, label_gap, without
from ..targets import REDUCTIONS
from ..torch_state import PLAIN, backward_must_be_differentiable, in_forward_mode, values_are_readable
from .exponentials import exp_
from .labels import split_readable, zero_ignored, zero_ignored_
from .reduction import rows_of

LARGEST = 8 << 20  # bytes of logits; a few times as many are saved until the backward pass
_FLOATS = (torch.float32, torch.float64)


def is_small(logits: Tensor) -> bool:
    """Whether these logits are taken here: a few MiB of float32 or float64, with no transform around them."""
    return fits_cache(logits) and logits.dtype in _FLOATS and logits.is_contiguous()


def fits_cache(logits: Tensor) -> bool:
    """Whether these logits, of any type and order in memory, are :func:`is_small` once they are converted."""
    return (values_are_readable(logits) and not in_forward_mode()
            and logits.numel() * max(4, logits.itemsize) <= LARGEST)


def plain_loss(input: Tensor, target: Tensor, curve: Curve, weight: Tensor | None, ignore_index: int,
               reduction: str) -> Tensor | None:
    """The loss of a small batch (N, C) with labels, as most training loops call it; None for every other call, and for
    arguments that do not fit: the checks of ``targets.py`` then raise the error."""
    if not (fits_plainly(input, target, curve, ignore_index, reduction) and target.dtype is torch.int64
            and target.ndim == 1 and target.shape[0] == input.shape[0] and input.is_contiguous()):
        return None
    if not (weight is None or weight_fits(weight, input)):
        return None
    label, ignored = split_readable(input, target, ignore_index)
    return small_loss(input, label, ignored, curve, weight, reduction)


def fits_plainly(input: Tensor, target: Tensor, curve: Curve, ignore_index: int, reduction: str) -> bool:
    """Whether these can be taken as they are, for a target of a fitting type and shape."""
    return (type(input) in PLAIN and type(target) is Tensor and fits_cache(input) and input.dtype in _FLOATS
            and target.is_cpu and input.ndim == 2 and input.shape[1] > 0 and isinstance(curve, Curve)
            and type(ignore_index) is int and reduction in REDUCTIONS)


def weight_fits(weight: Tensor, input: Tensor) -> bool:
    """Whether these are class weights that can be taken as they are."""
    return (type(weight) in PLAIN and weight.dtype is input.dtype and weight.is_cpu and not weight.requires_grad
            and weight.shape == input.shape[1:] and weight.layout is torch.strided)


def small_loss(logits: Tensor, label: Tensor, ignored: Tensor | None, curve: Curve, weight: Tensor | None,
               reduction: str) -> Tensor:
    """The loss of logits that are :func:`is_small`, with labels as ``labels.py`` gives them. ``weight`` gets no
    gradient."""
    scale = None
    if weight is not None:
        scale = zero_ignored(weight.detach().to(logits.dtype).take(label), ignored)
    count = sum_divisor(logits, scale, ignored, reduction)
    if torch.is_grad_enabled():
        return _apply(logits, label, ignored, curve, scale, count)  # type: ignore[no-any-return, no-untyped-call]
    return reduced(curve.value(_rivals(logits, label)[0]), ignored, scale, count)


def sum_divisor(logits: Tensor, scale: Tensor | None, ignored: Tensor | None, reduction: str) -> Tensor | None:
    """What the sum of the rows is divided by, from the labels' weights (0 for ignored rows); None for no sum."""
    if reduction == "none":
        return None
    if reduction == "sum":
        return constant(1.0, logits.dtype)
    if scale is not None:
        return scale.sum()
    return constant(float(logits.shape[0]), logits.dtype) if ignored is None else (~ignored).sum()


def reduced(values: Tensor, ignored: Tensor | None, scale: Tensor | None, count: Tensor | None) -> Tensor:
    """The rows (N) of this column, or their sum over ``count``."""
    values = zero_ignored(values, ignored)
    if scale is not None:
        values = values * scale
    return rows_of(values) if count is None else values.sum().div_(count)


def _rivals(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gap, the rivals' exponentials relative to the highest of them, and their sum, or 1 where there are none."""
    weights = without(logits, label)
    highest = weights.amax(-1, True)
    total = exp_(weights.sub_(highest)).sum(-1, True)
    gap = logits.gather(-1, label).sub_(highest).sub_(total.log())
    # One number says that all gaps are finite: no logit is NaN or +inf, and every row has a rival above -inf.
    return (gap, weights, total) if math.isfinite(gap.sum().item()) else _rivals_with_infinities(logits, label)


def _rivals_with_infinities(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`_rivals` of any logits."""
    weights = without(logits, label)
    highest = weights.amax(-1, keepdim=True).clamp_(min=torch.finfo(logits.dtype).min)
    total = exp_(weights.sub_(highest)).sum(-1, keepdim=True)
    # The highest rival alone adds 1; a total below 1 means that there is no rival.
    return label_gap(logits, label, highest, total.log()), weights, total.clamp(min=1)


class _SmallLoss(torch.autograd.Function):
    """As ``rows._LabelRows`` with weights and a reduction after it, bit for bit. ``scale`` is the column of weights of
    the labels, ``count`` what the sum of the rows is divided by; without it the rows are the result."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, label: Tensor, ignored: Tensor | None, curve: Curve, scale: Tensor | None,
                count: Tensor | None) -> Tensor:
        gap, weights, total = _rivals(logits, label)
        values, pull = value_and_pull(curve, gap)
        ctx.save_for_backward(logits, label, ignored, pull, weights, total)
        ctx.curve, ctx.scale, ctx.count = curve, scale, count
        return reduced(values, ignored, scale, count)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, label, ignored, pull, weights, total = ctx.saved_tensors
        upstream = upstream[:, None] if ctx.count is None else upstream.div(ctx.count)
        if ctx.scale is not None:
            upstream = upstream * ctx.scale
        if backward_must_be_differentiable(upstream):
            # What an ignored row holds, such as NaN, must not reach a second derivative.
            gap, rivals = gap_and_rivals(zero_ignored(logits, ignored), label)
            pull = ctx.curve.pull(gap) * upstream
            gradient = zero_ignored((pull * rivals).scatter(-1, label, -pull), ignored)
        else:
            pull = pull.mul(upstream)
            gradient = zero_ignored_(weights.mul(pull.div(total)).scatter_(-1, label, pull.neg_()), ignored)
        return gradient, None, None, None, None, None


_apply = super(torch.autograd.Function, _SmallLoss).apply  # Function.apply binds arguments to a signature in every call
