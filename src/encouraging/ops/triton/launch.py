"""Tensors to kernels: layouts, grids, buffers. No autograd here, no host synchronisation, no copies of the logits."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .around import denominator_kernel, later_kernel, scale_kernel, total_kernel
from .cached_launch import launch
from .curves import LIKE_ITSELF, Constants
from .layout import ends_of, layout, on_device_of, pieces, power_of_two
from .resident import resident_kernel
from .resident_smooth import resident_smooth_kernel
from .streamed import streamed_kernel
from .streamed_smooth import streamed_smooth_kernel
from .tiling import as_streamed, ends_for, gradient_tile, piece_of, processors, tiling_for

# From here on the power series of the streamed kernel leave out less than rounding does, if every class has little.
_MANY_CLASSES = 16384
_LITTLE_WEIGHT = 1.6e-5


class Problem(NamedTuple):
    """A loss over rows of logits, as the kernels take it: the target is flat, the weight float32."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    curve: Constants
    ignore_index: int
    smoothing: float


def denominator(problem: Problem) -> Tensor:
    """The mean's denominator, the sum of the labels' weights, as a few partial sums."""
    rows, classes = layout(problem.logits)[:2]
    block = min(8192, max(16, power_of_two(rows)))
    programs = min(256, power_of_two(pieces(rows, block)))
    partial_weights = torch.empty(programs, dtype=torch.float32, device=problem.logits.device)
    with on_device_of(partial_weights):
        launch(denominator_kernel, programs, (problem.target, problem.weight, partial_weights),
               (rows, classes, problem.ignore_index), BLOCK=block, WEIGHTED=problem.weight is not None, num_warps=8)
    return partial_weights


def total(sums: Tensor, partial_weights: Tensor | None, factor: float = 1.0) -> Tensor:
    """The sum of the programs' losses, times ``factor``, over the denominator."""
    out = torch.empty((), dtype=torch.float32, device=sums.device)
    block = min(8192, max(16, power_of_two(sums.numel())))
    with on_device_of(sums):
        launch(total_kernel, 1, (sums, partial_weights, out), (sums.numel(), float(factor)),
               N_PARTIAL=0 if partial_weights is None else partial_weights.numel(), BLOCK=block,
               num_warps=8 if block >= 2048 else 4)
    return out


def losses(problem: Problem, *, sums: bool = False, grad: Tensor | None = None, partial_weights: Tensor | None = None,
           upstream: Tensor | None = None, state: Tensor | None = None, lengths: Tensor | None = None,
           stats: tuple[Tensor, Tensor, Tensor] | None = None) -> Tensor:
    """The loss of every row (with ``sums`` of every program), and whatever there is a buffer for.

    ``grad`` (which may be the logits) receives the gradient of the rows' losses, each times its ``upstream``, over the
    sum of ``partial_weights``; ``state`` what :func:`gradient_later` needs; ``lengths``, without smoothing, those of
    the rows' gradients, cross-entropy's and the curve's; ``stats`` the by-products.
    """
    logits = problem.logits
    rows, classes, inner, outer, inner_stride, class_stride = layout(logits)
    weighted, smooth = problem.weight is not None, problem.smoothing > 0
    tiling = tiling_for(classes, smooth, planes=inner_stride == 1 != class_stride)
    if smooth and problem.curve.unbounded:
        tiling = as_streamed(tiling)
    if tiling.streamed:
        programs = min(rows, tiling.per_processor * processors(logits.device))
    else:
        programs = pieces(rows, tiling.rows)
    out = torch.empty(programs if sums else rows, dtype=torch.float32, device=logits.device)
    if not rows:
        return out
    to = layout(logits if grad is None else grad)
    unit = math.gcd(16, classes, outer, to.outer_stride)
    ends, phase = ends_for(tiling, logits, grad)
    p, lse, argmax = stats or (None, None, None)
    first = (logits, problem.target, problem.weight, partial_weights, upstream, out, grad, state)
    numbers: tuple[int | float, ...] = (
        rows, classes // unit, inner, outer // unit, inner_stride, class_stride,
        to.outer_stride // unit, to.inner_stride, to.class_stride, problem.ignore_index)
    constants: dict[str, Any] = {
        "KIND": problem.curve.kind, "UNIT": unit, "BLOCK": tiling.block,
        "N_PARTIAL": 0 if partial_weights is None else partial_weights.numel(), "WEIGHTED": weighted,
        "GRAD": grad is not None, "STATE": state is not None, "SUMS": sums, "STATS": stats is not None,
        "UPSTREAM": upstream is not None, "INPLACE": grad is not None and grad.data_ptr() == logits.data_ptr(),
        "num_warps": tiling.warps,
        "enable_fp_fusion": True,  # multiply and add in one instruction and one rounding
    }
    if tiling.streamed:
        constants |= {"VECTOR": ends or 16 // logits.dtype.itemsize, "SIXTEEN_BIT": logits.dtype.itemsize == 2}
        kernel = streamed_smooth_kernel if smooth else streamed_kernel
    else:
        constants |= {"ROWS": tiling.rows, "PIECE": piece_of(tiling, logits, unit, class_stride),
                      "SKIP": tiling.skip and stats is None}
        kernel = resident_smooth_kernel if smooth else resident_kernel
    if kernel is not resident_smooth_kernel:
        numbers += (phase,)
        constants["ENDS"] = ends
        # The ends take registers, with which fewer programs would fit.
        constants["maxnreg"] = 64 if ends and tiling.streamed and logits.dtype.itemsize == 2 else None
    tensors: tuple[Tensor | None, ...] = (*first, p, lse, argmax)
    if not smooth:
        tensors = (*first, lengths, p, lse, argmax)
        constants["LENGTHS"] = lengths is not None
    else:
        closed = not weighted and problem.curve.tail != LIKE_ITSELF.value  # sums with closed forms, in few registers
        numbers += float(problem.smoothing), 1.0 - problem.smoothing
        constants |= {"TAIL": problem.curve.tail, "maxnreg": (tiling.registers or None) if closed else None}
        if tiling.streamed:
            constants["MOMENTS"] = (closed and classes >= _MANY_CLASSES
                                    and problem.smoothing <= _LITTLE_WEIGHT * classes)
        else:
            constants |= {"SIXTEEN_BIT": logits.dtype.itemsize == 2,
                          "TOGETHER": tiling.warps > 1 and logits.is_cuda}
    with on_device_of(logits):
        launch(kernel, programs, tensors, (*numbers, *problem.curve[2:]), **constants)
    return out


def empty_state(problem: Problem) -> Tensor:
    """Room for what :func:`gradient_later` needs of every row."""
    rows = layout(problem.logits).rows
    return torch.empty((7 if problem.smoothing else 4, rows), dtype=torch.float32, device=problem.logits.device)


def empty_lengths(problem: Problem) -> Tensor:
    """Room for the lengths of the rows' gradients."""
    return torch.empty((2, layout(problem.logits).rows), dtype=torch.float32, device=problem.logits.device)


def gradient_later(problem: Problem, state: Tensor, upstream: Tensor, grad: Tensor) -> None:
    """Write the gradient of the rows' losses, each times its ``upstream``."""
    logits = problem.logits
    rows, classes, inner, outer, inner_stride, class_stride = layout(logits)
    if not rows:
        return
    to = layout(grad)
    unit = math.gcd(16, classes, outer, to.outer_stride)
    tile_rows, block = gradient_tile(classes)
    ends, phase = ends_of(logits, grad) if tile_rows == 1 else (0, 0)
    with on_device_of(logits):
        tensors = (logits, problem.target, problem.weight, state, upstream, grad)
        numbers = (
            rows, classes // unit, inner, outer // unit, inner_stride, class_stride,
            to.outer_stride // unit, to.inner_stride, to.class_stride, upstream.stride(0), phase,
            float(problem.smoothing), *problem.curve[2:],
        )
        launch(
            later_kernel, pieces(rows, tile_rows) * pieces(classes, block), tensors, numbers,
            KIND=problem.curve.kind, TAIL=problem.curve.tail, UNIT=unit, ROWS=tile_rows, BLOCK=block, ENDS=ends,
            WEIGHTED=problem.weight is not None, SMOOTH=problem.smoothing > 0, SIXTEEN_BIT=logits.dtype.itemsize == 2,
            num_warps=4)


def scale(source: Tensor, upstream: Tensor, out: Tensor) -> None:
    """``out = source * upstream``; where ``out`` is ``source`` and ``upstream`` is 1, nothing is touched."""
    rows, classes, inner, outer, inner_stride, class_stride = layout(source)
    elements = source.numel()
    if not elements:
        return
    block = 4096
    dense = elements == 1 + sum((size - 1) * stride for size, stride in zip(source.shape, source.stride(), strict=True))
    programs = min(pieces(elements, block), 8 * processors(source.device))
    with on_device_of(source):
        launch(scale_kernel, programs,
               (source, out, upstream), (elements, classes, inner, outer, inner_stride, class_stride),
               COPY=out is not source, DENSE=dense, BLOCK=block, num_warps=8)
