"""Launches of the backward pass: gradients that are made later, and the upstream gradient of those that exist."""

from __future__ import annotations

import math

from torch import Tensor

from .around import later_kernel, scale_kernel
from .cached_launch import Kept, Prepared
from .layout import ends_of, layout, pieces
from .problem import Problem
from .tiling import division_key, gradient_tile, processors

_laters, _scales = Kept(), Kept()


def gradient_later(problem: Problem, state: Tensor, upstream: Tensor, grad: Tensor) -> None:
    """Write the gradient of the rows' losses, each times its ``upstream``; or, where that is one number, the gradient
    of what :func:`loss_sum` has returned."""
    if problem.target.shape[0]:
        launch = later_for(problem, upstream, grad)
        launch(problem.logits.get_device(), *problem[:3], state, upstream, None, grad)


def later_for(problem: Problem, upstream: Tensor, grad: Tensor, above: Tensor | None = None) -> Prepared:
    """The launch of :func:`gradient_later`, remembered: it takes logits, target, weight, state, upstream, None and
    grad. For a curve of one's own it takes the pulls, and then what is ``above``, the upstream gradient of the sum."""
    logits, target, weight, curve, _, smoothing = problem
    reduced, own = upstream.ndim == 0, above is not None
    key = (logits.get_device(), logits.dtype, logits.shape, logits.stride(), logits.data_ptr() & 15, grad.stride(),
           grad.data_ptr() & 15, target.dtype, None if weight is None else weight.dtype, curve, smoothing,
           upstream.dtype, None if reduced else upstream.stride(),
           None if above is None else above.dtype, division_key())
    prepared: Prepared | None = _laters.get(key)
    if prepared is None:
        rows, classes, inner, outer, inner_stride, class_stride = layout(logits)
        to = layout(grad)
        unit = math.gcd(16, classes, outer, to.outer_stride)
        tile_rows, block, repeat = gradient_tile(
            classes, min(unit, 16 // logits.dtype.itemsize) if class_stride == 1 else 0)
        if smoothing and unit == 1 and 4 < classes <= 16:
            tile_rows //= 2  # of 32 elements and their rows' seven numbers a thread spills what 16 have room for
        ends, phase = ends_of(logits, grad) if tile_rows == 1 else (0, 0)
        numbers = (
            rows, classes // unit, inner, outer // unit, inner_stride, class_stride,
            to.outer_stride // unit, to.inner_stride, to.class_stride, 0 if reduced else upstream.stride(0), phase,
            float(smoothing), *curve[2:],
        )
        prepared = _laters.keep(key, Prepared(
            later_kernel, pieces(rows, tile_rows) * pieces(classes, block * repeat), numbers,
            KIND=curve.kind, TAIL=curve.tail, UNIT=unit, ROWS=tile_rows, BLOCK=block, REPEAT=repeat,
            ENDS=ends, WEIGHTED=weight is not None, SMOOTH=smoothing > 0, SCALED=reduced or own, OWN=own,
            SIXTEEN_BIT=logits.dtype.itemsize == 2, num_warps=4))
    return prepared


def scale(source: Tensor, upstream: Tensor, out: Tensor) -> None:
    """``out = source * upstream``; where ``out`` is ``source`` and ``upstream`` is 1, nothing is touched."""
    if source.numel():
        scale_for(source, upstream, out)(source.get_device(), source, out, upstream)


def scale_for(source: Tensor, upstream: Tensor, out: Tensor) -> Prepared:
    """The launch of :func:`scale`, remembered."""
    key = (source.get_device(), source.dtype, source.shape, source.stride(), out.dtype, upstream.dtype, out is source)
    prepared: Prepared | None = _scales.get(key)
    if prepared is None:
        rows, classes, inner, outer, inner_stride, class_stride = layout(source)
        elements, block = source.numel(), 4096
        unit = math.gcd(16, elements)
        dense = elements == 1 + sum(
            (size - 1) * stride for size, stride in zip(source.shape, source.stride(), strict=True))
        prepared = _scales.keep(key, Prepared(
            scale_kernel, min(pieces(elements, block), 8 * processors(source.device)),
            (elements // unit, classes, inner, outer, inner_stride, class_stride),
            COPY=out is not source, DENSE=dense, LARGE=elements >= 2**31 - block, UNIT=unit, BLOCK=block, num_warps=8))
    return prepared
