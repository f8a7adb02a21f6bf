"""Tensors to kernels: layouts, grids, buffers. No autograd here, no host synchronisation, no copies of the logits."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .around import denominator_kernel, later_kernel, scale_kernel, total_kernel
from .cached_launch import Kept, Prepared
from .curves import LIKE_ITSELF, Constants
from .layout import ends_of, layout, on_device_of, pieces, power_of_two
from .resident import resident_kernel
from .resident_smooth import resident_smooth_kernel
from .streamed import streamed_kernel
from .streamed_smooth import streamed_smooth_kernel
from .tiling import as_streamed, ends_for, gradient_tile, piece_of, processors, tiling_for, tiling_override

# From here on the power series of the streamed kernel leave out less than rounding does, if every class has little.
_MANY_CLASSES = 16384
_LITTLE_WEIGHT = 1.6e-5
_NO_STATS = (None, None, None)


class Problem(NamedTuple):
    """A loss over rows of logits, as the kernels take it: the target is flat, the weight float32."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    curve: Constants
    ignore_index: int
    smoothing: float


_denominators, _totals, _losses, _laters, _scales = Kept(), Kept(), Kept(), Kept(), Kept()


def denominator(problem: Problem) -> Tensor:
    """The mean's denominator, the sum of the labels' weights, as a few partial sums."""
    target, weight, device = problem.target, problem.weight, problem.logits.get_device()
    classes = problem.logits.shape[1]
    key = device, target.shape, target.dtype, classes, problem.ignore_index, weight is None
    prepared = _denominators.get(key)
    if prepared is None:
        rows = target.shape[0]
        block = min(8192, max(16, power_of_two(rows)))
        prepared = _denominators.keep(key, Prepared(
            denominator_kernel, min(256, power_of_two(pieces(rows, block))), (rows, classes, problem.ignore_index),
            BLOCK=block, WEIGHTED=weight is not None, num_warps=8))
    partial_weights = torch.empty(prepared.programs, dtype=torch.float32, device=target.device)
    with on_device_of(target):
        prepared(device, target, weight, partial_weights)
    return partial_weights


def total(sums: Tensor, partial_weights: Tensor | None, factor: float = 1.0) -> Tensor:
    """The sum of the programs' losses, times ``factor``, over the denominator."""
    device, n_sums = sums.get_device(), sums.shape[0]
    n_partial = 0 if partial_weights is None else partial_weights.shape[0]
    prepared = _totals.get((device, n_sums, n_partial, factor))
    if prepared is None:
        block = min(8192, max(16, power_of_two(n_sums)))
        prepared = _totals.keep((device, n_sums, n_partial, factor), Prepared(
            total_kernel, 1, (n_sums, float(factor)), N_PARTIAL=n_partial, BLOCK=block,
            num_warps=8 if block >= 2048 else 4))
    out = torch.empty((), dtype=torch.float32, device=sums.device)
    with on_device_of(sums):
        prepared(device, sums, partial_weights, out)
    return out


def losses(problem: Problem, *, sums: bool = False, grad: Tensor | None = None, partial_weights: Tensor | None = None,
           upstream: Tensor | None = None, state: Tensor | None = None, lengths: Tensor | None = None,
           stats: tuple[Tensor, Tensor, Tensor] | None = None) -> Tensor:
    """The loss of every row (with ``sums`` of every program), and whatever there is a buffer for.

    ``grad`` (which may be the logits) receives the gradient of the rows' losses, each times its ``upstream``, over the
    sum of ``partial_weights``; ``state`` what :func:`gradient_later` needs; ``lengths``, without smoothing, those of
    the rows' gradients, cross-entropy's and the curve's; ``stats`` the by-products.
    """
    logits, target, weight, curve, ignore_index, smoothing = problem
    rows, device = target.shape[0], logits.get_device()
    if not rows:
        return torch.empty(0, dtype=torch.float32, device=logits.device)
    asked = Asked(sums, None if partial_weights is None else partial_weights.shape[0], upstream is not None,
                  grad is not None, state is not None, lengths is not None, stats is not None)
    where = logits.data_ptr()
    aligned = where % 16, None if grad is None else (grad.stride(), grad.data_ptr() % 16, grad.data_ptr() == where)
    key = (device, logits.dtype, logits.shape, logits.stride(), target.dtype, weight is None, curve, ignore_index,
           smoothing, asked, aligned, None if upstream is None else upstream.dtype, tiling_override())
    prepared = _losses.get(key)
    if prepared is None:
        prepared = _losses.keep(key, _prepare(problem, asked, grad))
    out = torch.empty(prepared.programs if sums else rows, dtype=torch.float32, device=logits.device)
    first = logits, target, weight, partial_weights, upstream, out, grad, state
    with on_device_of(logits):
        if smoothing > 0:
            prepared(device, *first, *(stats or _NO_STATS))
        else:
            prepared(device, *first, lengths, *(stats or _NO_STATS))
    return out


class Asked(NamedTuple):
    """What a pass over the logits reads and writes besides."""

    sums: bool
    n_partial: int | None
    upstream: bool
    grad: bool
    state: bool
    lengths: bool
    stats: bool


def _prepare(problem: Problem, asked: Asked, grad: Tensor | None) -> Prepared:
    """The launch for such a problem."""
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
    to = layout(logits if grad is None else grad)
    unit = math.gcd(16, classes, outer, to.outer_stride)
    ends, phase = ends_for(tiling, logits, grad)
    numbers: tuple[int | float, ...] = (
        rows, classes // unit, inner, outer // unit, inner_stride, class_stride,
        to.outer_stride // unit, to.inner_stride, to.class_stride, problem.ignore_index)
    constants: dict[str, Any] = {
        "KIND": problem.curve.kind, "UNIT": unit, "BLOCK": tiling.block, "N_PARTIAL": asked.n_partial or 0,
        "WEIGHTED": weighted, "GRAD": asked.grad, "STATE": asked.state, "SUMS": asked.sums, "STATS": asked.stats,
        "UPSTREAM": asked.upstream, "INPLACE": grad is not None and grad.data_ptr() == logits.data_ptr(),
        "num_warps": tiling.warps,
        "enable_fp_fusion": True,  # multiply and add in one instruction and one rounding
    }
    if tiling.streamed:
        constants |= {"VECTOR": ends or 16 // logits.dtype.itemsize, "SIXTEEN_BIT": logits.dtype.itemsize == 2}
        kernel = streamed_smooth_kernel if smooth else streamed_kernel
    else:
        constants |= {"ROWS": tiling.rows, "PIECE": piece_of(tiling, logits, unit, class_stride),
                      "SKIP": tiling.skip and not asked.stats}
        kernel = resident_smooth_kernel if smooth else resident_kernel
    if kernel is not resident_smooth_kernel:
        numbers += (phase,)
        constants["ENDS"] = ends
        # The ends take registers, with which fewer programs would fit.
        constants["maxnreg"] = 64 if ends and tiling.streamed and logits.dtype.itemsize == 2 else None
    if not smooth:
        constants["LENGTHS"] = asked.lengths
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
    return Prepared(kernel, programs, (*numbers, *problem.curve[2:]), **constants)


def empty_state(problem: Problem) -> Tensor:
    """Room for what :func:`gradient_later` needs of every row."""
    rows = layout(problem.logits).rows
    return torch.empty((7 if problem.smoothing else 4, rows), dtype=torch.float32, device=problem.logits.device)


def empty_lengths(problem: Problem) -> Tensor:
    """Room for the lengths of the rows' gradients."""
    return torch.empty((2, layout(problem.logits).rows), dtype=torch.float32, device=problem.logits.device)


def gradient_later(problem: Problem, state: Tensor, upstream: Tensor, grad: Tensor) -> None:
    """Write the gradient of the rows' losses, each times its ``upstream``."""
    logits, target, weight, curve, _, smoothing = problem
    device = logits.get_device()
    if not target.shape[0]:
        return
    key = (device, logits.dtype, logits.shape, logits.stride(), logits.data_ptr() % 16, grad.stride(),
           grad.data_ptr() % 16, target.dtype, weight is None, curve, smoothing, upstream.dtype, upstream.stride())
    prepared = _laters.get(key)
    if prepared is None:
        rows, classes, inner, outer, inner_stride, class_stride = layout(logits)
        to = layout(grad)
        unit = math.gcd(16, classes, outer, to.outer_stride)
        tile_rows, block = gradient_tile(classes)
        ends, phase = ends_of(logits, grad) if tile_rows == 1 else (0, 0)
        numbers = (
            rows, classes // unit, inner, outer // unit, inner_stride, class_stride,
            to.outer_stride // unit, to.inner_stride, to.class_stride, upstream.stride(0), phase,
            float(smoothing), *curve[2:],
        )
        prepared = _laters.keep(key, Prepared(
            later_kernel, pieces(rows, tile_rows) * pieces(classes, block), numbers,
            KIND=curve.kind, TAIL=curve.tail, UNIT=unit, ROWS=tile_rows, BLOCK=block, ENDS=ends,
            WEIGHTED=weight is not None, SMOOTH=smoothing > 0, SIXTEEN_BIT=logits.dtype.itemsize == 2, num_warps=4))
    with on_device_of(logits):
        prepared(device, logits, target, weight, state, upstream, grad)


def scale(source: Tensor, upstream: Tensor, out: Tensor) -> None:
    """``out = source * upstream``; where ``out`` is ``source`` and ``upstream`` is 1, nothing is touched."""
    device = source.get_device()
    key = device, source.dtype, source.shape, source.stride(), out.dtype, upstream.dtype, out is source
    prepared = _scales.get(key)
    if prepared is None:
        rows, classes, inner, outer, inner_stride, class_stride = layout(source)
        elements = source.numel()
        if not elements:
            return
        block = 4096
        dense = elements == 1 + sum(
            (size - 1) * stride for size, stride in zip(source.shape, source.stride(), strict=True))
        prepared = _scales.keep(key, Prepared(
            scale_kernel, min(pieces(elements, block), 8 * processors(source.device)),
            (elements, classes, inner, outer, inner_stride, class_stride),
            COPY=out is not source, DENSE=dense, BLOCK=block, num_warps=8))
    with on_device_of(source):
        prepared(device, source, out, upstream)
