"""The kernels of the squared error of a softmax as a differentiable operation; the plain twin is
``squares.squared_errors``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...curves import square
from ...torch_state import is_batched
from .. import repeat
from ..reduction import Divisor
from ..squares import squared_errors
from .autograd import repeated_loss
from .cached_launch import launch
from .curves import Mirror
from .in_order import MOST_WARPS
from .layout import ends_of, pieces, power_of_two
from .maths import EACH
from .mse import STATE_NUMBERS, mse_kernel
from .mse_later import mse_later_kernel
from .mse_split import NUMBERS, mse_split_end_kernel, mse_split_kernel, mse_split_sums_kernel
from .mse_streamed import mse_streamed_kernel
from .sigmoid_autograd import sigmoid_loss
from .soft_later_launch import is_short, later_tile
from .sums import Sum, sum_of
from .tiling import (
    Tiling,
    ends_for,
    held_to,
    is_persistent,
    piece_of,
    processors,
    segments_of,
    soft_tiling_for,
    split,
    widened,
)
from .upstream import mean_factor, one_or_each, scaled, times_upstream


def mse_loss(logits: Tensor, target: Tensor, *, bonus: bool, link: str = "softmax", reduction: str = "mean",
             divisor: Divisor = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """The sum, the mean over all elements, or (``none``) the losses (N, C), in ``dtype``, for logits (N, C) with labels
    (N) or probabilities (N, C). A label that names no class gives NaN."""
    if link == "sigmoid":
        return sigmoid_loss(logits, target, square(bonus=bonus), reduction=reduction, divisor=divisor, mse=True,
                            dtype=dtype)
    if bonus and reduction != "none" and logits.numel() and not target.is_floating_point():
        return _of_labels(logits, target, reduction, divisor, dtype)
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    target = target.detach()
    target = target.contiguous() if not target.is_floating_point() or target.stride(1) != 1 else target
    if reduction == "none":
        losses: Tensor = _MseLater.apply(logits, target, bonus, dtype)
        return losses
    factor, over = mean_factor(logits.numel(), reduction, divisor, logits.device)
    form = _MseLaterReduced if logits.dtype == torch.float16 and logits.requires_grad else _MseAhead
    loss: Tensor = form.apply(logits, target, bonus, factor, over, dtype)
    return loss


def _of_labels(logits: Tensor, target: Tensor, reduction: str, divisor: Divisor, dtype: torch.dtype) -> Tensor:
    """With the bonus, labels make a loss of the label's probability alone: a curve, whose kernels need fewer sums."""
    factor, over = mean_factor(logits.numel(), reduction, divisor, logits.device)
    target = target if target.is_contiguous() else target.contiguous()
    key = (Mirror, logits.get_device(), logits.shape, logits.stride(), logits.dtype, logits.data_ptr() & 15,
           target.dtype, factor, over is None)
    loss = repeat.find(key)
    if loss is None:
        loss = _repeated(logits, factor, over)
        repeat.remember(key, loss)
    return loss(logits, target, dtype, None, over)


def repeated_mse_loss(logits: Tensor, reduction: str, divisor: Tensor | None) -> Callable[..., Tensor]:
    """:func:`mse_loss` with the bonus for calls that repeat, see ``autograd.repeated_loss``: for labels and a mean or a
    sum."""
    return _repeated(logits, *mean_factor(logits.numel(), reduction, divisor, logits.device))


def _repeated(logits: Tensor, factor: float, over: Tensor | None) -> Callable[..., Tensor]:
    curve = Mirror(4 * factor, logits.shape[1] * factor)
    return repeated_loss(curve, _NO_LABEL, 0.0, "sum" if over is None else "mean")


_NO_LABEL = -(1 << 62)  # nothing is ignored
_NONE = (None,) * 5  # for everything but the logits


class _MseAhead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, bonus: bool, factor: float,
                divisor: Tensor | None, dtype: torch.dtype) -> Tensor:
        grad = None
        if ctx.needs_input_grad[0]:
            grad = torch.empty_like(logits, memory_format=torch.contiguous_format)
        ctx.save_for_backward(logits, target, grad, divisor)
        ctx.bonus, ctx.factor = bonus, factor
        return _sum(logits, target, bonus, factor, divisor, dtype, grad)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, grad, divisor = ctx.saved_tensors
        if torch.is_grad_enabled():
            above = scaled(upstream, ctx.factor, divisor)
            return _differentiable(logits, target, ctx.bonus, above.expand(logits.shape)), *_NONE
        return times_upstream(grad, upstream), *_NONE


class _MseLaterReduced(torch.autograd.Function):
    """The sum or the mean, whose gradient is made in the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, bonus: bool, factor: float,
                divisor: Tensor | None, dtype: torch.dtype) -> Tensor:
        state = None
        if not is_short(logits) and logits.shape[0]:
            state = torch.empty(STATE_NUMBERS * logits.shape[0], dtype=torch.float32, device=logits.device)
        ctx.save_for_backward(logits, target, divisor, state)
        ctx.bonus, ctx.factor = bonus, factor
        return _sum(logits, target, bonus, factor, divisor, dtype, state=state)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, divisor, state = ctx.saved_tensors
        if torch.is_grad_enabled():
            above = scaled(upstream, ctx.factor, divisor)
            result = _differentiable(logits, target, ctx.bonus, above.expand(logits.shape))
        else:
            result = torch.empty_like(logits, memory_format=torch.contiguous_format)
            batched = is_batched(upstream)
            one = None if batched else upstream
            if state is not None:
                _launch_later(logits, target, ctx.bonus, state, result, ctx.factor, divisor, one)
            else:
                _launch(logits, target, ctx.bonus, grad=result, scale=ctx.factor, divisor=divisor, upstream=one)
            result = (result.float() * upstream).to(result.dtype) if batched else result
        return result, *_NONE


class _MseLater(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, bonus: bool, dtype: torch.dtype) -> Tensor:
        losses = torch.empty_like(logits, dtype=dtype, memory_format=torch.contiguous_format)
        _launch(logits, target, bonus, losses=losses)
        ctx.save_for_backward(logits, target)
        ctx.bonus = bonus
        return losses

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target = ctx.saved_tensors
        # The sum over a row has the upstream gradient inside: a batch of them has nothing in common to start from.
        if torch.is_grad_enabled() or is_batched(upstream):
            with torch.enable_grad():
                leaf = logits if torch.is_grad_enabled() and logits.requires_grad else logits.detach().requires_grad_()
                result = _differentiable(leaf, target, ctx.bonus, upstream)
            return result, None, None, None
        grad = torch.empty_like(logits, memory_format=torch.contiguous_format)
        _launch(logits, target, ctx.bonus, grad=grad, upstream=upstream)
        return grad, None, None, None


def _differentiable(logits: Tensor, target: Tensor, bonus: bool, upstream: Tensor) -> Tensor:
    """The gradient in operations that can be differentiated again: the plain ones."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    truth = target.to(wide.dtype) if target.is_floating_point() else (
        torch.zeros_like(wide).scatter(-1, target.long()[:, None], 1.0))
    losses = squared_errors(wide, truth, bonus)
    return torch.autograd.grad(losses, logits, upstream.to(losses.dtype), create_graph=True)[0]


def _sum(logits: Tensor, target: Tensor, bonus: bool, factor: float, divisor: Tensor | None,
         dtype: torch.dtype, grad: Tensor | None = None, state: Tensor | None = None) -> Tensor:
    """The sum of all losses times ``factor`` over ``divisor``, and its gradient or what :func:`_launch_later` needs."""
    sums = sum_of(logits, _programs(logits, grad), logits.shape[0], _tiling(logits).warps <= MOST_WARPS, dtype)
    _launch(logits, target, bonus, sums=sums, grad=grad, scale=factor, divisor=divisor, state=state)
    return sums.total(divisor, factor)


def _launch(logits: Tensor, target: Tensor, bonus: bool, *, sums: Sum | None = None, losses: Tensor | None = None,
            grad: Tensor | None = None, upstream: Tensor | None = None, scale: float = 1.0,
            divisor: Tensor | None = None, state: Tensor | None = None) -> None:
    """The sum, or the losses themselves; ``grad`` of the sum times ``scale`` over ``divisor``, and times an upstream
    gradient, one for all or one for each."""
    upstream, how = (None, 0) if upstream is None else one_or_each(upstream)
    rows, classes = logits.shape
    if not rows:
        return
    soft = target.is_floating_point()
    tiling, programs = _tiling(logits), _programs(logits, grad)
    if sums is None and losses is None:  # the gradient alone: the kernel still has a place for the shares
        sums = sum_of(logits, programs, logits.shape[0], tiling.warps <= MOST_WARPS)
    out, shares, counter = (losses, None, None) if sums is None else sums[:3]
    unit = math.gcd(16, classes, logits.stride(0), target.stride(0) if soft else 16)
    tensors = (logits, target, divisor, upstream, out, shares, counter, grad)
    numbers: tuple[int | float, ...] = (
        rows, classes // unit, logits.stride(0) // unit, target.stride(0) // unit if soft else 0)
    shared: dict[str, Any] = {
        "SOFT": soft, "BONUS": bonus, "UNIT": unit, "BLOCK": tiling.block, "DIVIDED": divisor is not None,
        "GRAD": grad is not None, "VALUES": losses is not None, "UPSTREAM": how,
        "LAST": 0 if sums is None else sums.ending, "num_warps": tiling.warps, "enable_fp_fusion": True}
    if tiling.streamed:
        ends, phase = ends_for(tiling, logits, target if soft else None, losses, grad,
                               upstream if how == EACH.value else None)
        numbers += phase,
        shared |= {"VECTOR": ends or 16 // logits.dtype.itemsize, "ENDS": ends,
                   "SIXTEEN_BIT": logits.dtype.itemsize == 2}
    numbers += float(scale),
    if tiling.segments > 1:
        _launch_split(tiling, programs, (*tensors, state), numbers, shared | {"STATE": state is not None})
    elif tiling.streamed:
        # So that three programs fit on a multiprocessor, or four.
        most = held_to(80) if grad is not None else None
        if state is not None:
            most = 80 if programs <= 3 * processors(logits.device) else 64
        persistent = is_persistent(tiling, None if sums is None else sums.ending)
        launch(mse_streamed_kernel, programs, (*tensors, state), numbers, persistent, **shared, STATE=state is not None,
               maxnreg=most)
    else:
        # So that two programs of 8 warps fit on a multiprocessor instead of one. Where fewer registers would do, the
        # compiler takes more of them when it is told how many there are.
        many = soft and grad is not None and tiling.warps == 8
        launch(mse_kernel, programs, (*tensors, state), numbers, **shared, STATE=state is not None, ROWS=tiling.rows,
               PIECE=piece_of(tiling, logits, unit, 1), maxnreg=held_to(128) if many else None)


def _launch_later(logits: Tensor, target: Tensor, bonus: bool, state: Tensor, grad: Tensor, scale: float,
                  divisor: Tensor | None, upstream: Tensor | None) -> None:
    """The gradient of the sum from what the forward pass has kept of every row."""
    rows, classes = logits.shape
    if not rows:
        return
    soft = target.is_floating_point()
    unit = math.gcd(16, classes, logits.stride(0), target.stride(0) if soft else 16)
    tile_rows, block, repeat = later_tile(classes, min(unit, 16 // logits.dtype.itemsize))
    ends, phase = ends_of(logits, target if soft else None, grad) if tile_rows == 1 else (0, 0)
    numbers = (rows, classes // unit, logits.stride(0) // unit, target.stride(0) // unit if soft else 0, phase,
               float(scale))
    launch(mse_later_kernel, pieces(rows, tile_rows) * pieces(classes, block * repeat),
           (logits, target, state, divisor, upstream, grad), numbers, SOFT=soft, BONUS=bonus, UNIT=unit, ROWS=tile_rows,
           BLOCK=block, REPEAT=repeat, ENDS=ends, DIVIDED=divisor is not None, UPSTREAM=upstream is not None,
           num_warps=4, enable_fp_fusion=True)


def _launch_split(tiling: Tiling, programs: int, tensors: tuple[Tensor | None, ...],
                  numbers: tuple[int | float, ...], constants: dict[str, Any]) -> None:
    """The launches of ``mse_split.py`` from what one launch would be given."""
    logits, target, _, upstream, out = tensors[:5]
    assert logits is not None
    rows, classes = logits.shape
    n_segments, segment_blocks = segments_of(tiling, classes)
    constants["SEGMENTS"] = max(16, power_of_two(n_segments))
    every = rows * n_segments
    partials = torch.empty(NUMBERS * every, dtype=torch.float32, device=logits.device)
    sizes = (rows, n_segments, segment_blocks, *numbers[1:])
    phase = numbers[-2]

    def one(kernel: Any, grid: int, given: tuple[Tensor | None, ...], numbers: tuple[int | float, ...]) -> None:
        known = {name: value for name, value in constants.items() if name.islower() or name in kernel.arg_names}
        launch(kernel, grid, (*given, partials), numbers, **known)

    one(mse_split_kernel, every, (logits,), (*sizes[:5], phase))
    one(mse_split_sums_kernel, every, (logits, target, upstream, out if constants["VALUES"] else None), sizes[:7])
    if not constants["VALUES"]:
        one(mse_split_end_kernel, programs, tensors, sizes)


def _tiling(logits: Tensor) -> Tiling:
    rows, classes = logits.shape
    tiling = widened(soft_tiling_for(classes, cross_entropy=False), rows, logits.device)
    return split(tiling, rows, classes, logits.device)


def _programs(logits: Tensor, grad: Tensor | None) -> int:
    """Of the launch that makes the sum."""
    (rows, classes), tiling = logits.shape, _tiling(logits)
    if tiling.segments > 1:
        return rows if grad is None else rows * segments_of(tiling, classes)[0]
    return min(rows, tiling.per_processor * processors(logits.device)) if tiling.streamed else pieces(rows, tiling.rows)
