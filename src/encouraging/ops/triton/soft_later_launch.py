"""Launches of the backward pass of soft targets, whose gradient is made from what the forward pass has kept."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .cached_launch import Kept, Prepared
from .layout import ends_of, layout, pieces
from .maths import EACH, ONE
from .soft_later import soft_later_kernel
from .soft_launch import SoftProblem
from .soft_rows import STATE_NUMBERS
from .tiling import division_key, gradient_tile

# Rows of at most so many bytes are read and added up again, which takes less time than to write and read their states.
# math.inf makes every gradient so. The number follows from the bytes of both; it was not measured.
short_row: float = 256

_laters = Kept()


def is_short(logits: Tensor) -> bool:
    """Whether the rows are read and added up again."""
    return logits.shape[1] * logits.element_size() <= short_row


def empty_soft_state(problem: SoftProblem) -> Tensor | None:
    """Room for what :func:`soft_gradient_later` needs of every row; None where the gradient is made again from logits
    and targets: for short rows, and for curves that measure the rivals of the largest class from their own maximum."""
    logits, curve = problem.logits, problem.curve
    rows = layout(logits).rows
    if not rows or is_short(logits) or curve.unbounded:
        return None
    return torch.empty(STATE_NUMBERS * rows, dtype=torch.float32, device=logits.device)


def soft_gradient_later(problem: SoftProblem, state: Tensor, upstream: Tensor, grad: Tensor, factor: float,
                        divisor: Tensor | None) -> None:
    """The gradient on the logits as ``soft_launch.soft_gradients`` writes it."""
    launch = _later_for(problem, upstream, grad, factor, divisor)
    launch(grad.get_device(), *problem[:3], state, divisor, upstream, grad)


def _later_for(problem: SoftProblem, upstream: Tensor, grad: Tensor, factor: float,
               divisor: Tensor | None) -> Prepared:
    """The launch, remembered: it takes logits, target, weight, state, divisor, upstream and grad."""
    logits, target, weight, curve, smoothing = problem
    key = (logits.get_device(), logits.dtype, logits.shape, logits.stride(), logits.data_ptr() & 15, target.dtype,
           target.stride(), target.data_ptr() & 15, grad.stride(), grad.data_ptr() & 15,
           None if weight is None else weight.dtype, curve, smoothing, upstream.dtype, upstream.ndim, factor,
           divisor is None, division_key())
    prepared: Prepared | None = _laters.get(key)
    if prepared is None:
        rows, classes, inner, outer, inner_stride, class_stride = layout(logits)
        of_target, to = layout(target), layout(grad)
        unit = math.gcd(16, classes, outer, of_target.outer_stride, to.outer_stride)
        tile_rows, block, repeat = later_tile(
            classes, min(unit, 16 // logits.dtype.itemsize) if class_stride == 1 else 0)
        ends, phase = ends_of(logits, target, grad) if tile_rows == 1 else (0, 0)
        numbers = (
            rows, classes // unit, inner, outer // unit, inner_stride, class_stride,
            of_target.outer_stride // unit, of_target.inner_stride, of_target.class_stride,
            to.outer_stride // unit, to.inner_stride, to.class_stride, phase,
            float(factor), 1.0 - smoothing, smoothing / classes, *curve[2:],
        )
        prepared = _laters.keep(key, Prepared(
            soft_later_kernel, pieces(rows, tile_rows) * pieces(classes, block * repeat), numbers,
            KIND=curve.kind, TAIL=curve.below_largest, UNIT=unit, ROWS=tile_rows, BLOCK=block, REPEAT=repeat,
            ENDS=ends, WEIGHTED=weight is not None, SMOOTH=smoothing > 0,
            UPSTREAM=EACH.value if upstream.ndim else ONE.value, DIVIDED=divisor is not None, num_warps=4,
            enable_fp_fusion=True))
    return prepared


def later_tile(classes: int, vector: int) -> tuple[int, int, int]:
    """``gradient_tile`` where logits and targets are read: half as many elements at a time."""
    tile_rows, block, repeat = gradient_tile(classes, vector)
    return (max(1, tile_rows // 2), min(block, 2048), 1) if repeat == 1 else (tile_rows, block, repeat)
