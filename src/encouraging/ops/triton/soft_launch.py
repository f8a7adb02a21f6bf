"""Logits and soft targets to kernels: layouts, grids, buffers. No autograd here, no host synchronisation, no copies."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .cached_launch import launch
from .curves import LIKE_CROSS_ENTROPY, LIKE_ITSELF, LIKE_NORMAL, Constants
from .layout import layout, pieces
from .soft import soft_kernel
from .soft_streamed import soft_streamed_kernel
from .sums import Sum, sum_of
from .tiling import Tiling, ends_for, piece_of, processors, soft_tiling_for


class SoftProblem(NamedTuple):
    """A loss over rows of logits and targets of the same shape, (N, C) or (N, C, d); the weight is float32."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    curve: Constants
    smoothing: float


def soft_losses(problem: SoftProblem, *, upstream: Tensor | None = None, grad: Tensor | None = None,
                by_target: Tensor | None = None) -> Tensor:
    """The loss of every row, and whatever there is a buffer for.

    ``grad`` (which may be the logits) receives the gradient of the rows' losses on the logits, ``by_target``, which has
    the target's strides, that on the targets: each row times its ``upstream``.
    """
    rows = layout(problem.logits).rows
    out = torch.empty(rows, dtype=torch.float32, device=problem.logits.device)
    if rows:
        tiling, programs = _division(problem, by_target)
        _launch(problem, tiling, programs, (out, None, None), upstream, grad, by_target)
    return out


def soft_loss_sum(problem: SoftProblem, factor: float, divisor: Tensor | None = None, *, grad: Tensor | None = None,
                  by_target: Tensor | None = None) -> Tensor:
    """The sum of the rows' losses, times ``factor`` over ``divisor``, and its gradients where there is a buffer."""
    if not layout(problem.logits).rows:
        return sum_of(problem.logits, 0).total(divisor, factor)
    tiling, programs = _division(problem, by_target)
    sums = sum_of(problem.logits, programs)
    _launch(problem, tiling, programs, sums[:3], None, grad, by_target, sums, factor, divisor)
    return sums.total(divisor, factor)


def _division(problem: SoftProblem, by_target: Tensor | None) -> tuple[Tiling, int]:
    """The tiling, and how many programs there are."""
    logits, _, weight, curve, smoothing = problem
    rows, classes = layout(logits)[:2]
    # Rows of 16 bits that are not aligned are better off in blocks, which are read in vectors.
    lean = (curve.tail != LIKE_ITSELF.value and weight is None and by_target is None and not smoothing
            and not (classes % 2 and logits.dtype.itemsize == 2))
    tiling = soft_tiling_for(classes, curve.tail == LIKE_CROSS_ENTROPY.value, lean)
    if tiling.streamed:
        return tiling, min(rows, tiling.per_processor * processors(logits.device))
    return tiling, pieces(rows, tiling.rows)


def _launch(problem: SoftProblem, tiling: Tiling, programs: int, where: tuple[Tensor | None, ...],
            upstream: Tensor | None, grad: Tensor | None, by_target: Tensor | None, sums: Sum | None = None,
            scale: float = 1.0, divisor: Tensor | None = None) -> None:
    """Launch the kernel, which writes losses or the shares of their sum to ``where``."""
    logits, target, weight, curve, smoothing = problem
    rows, classes, inner, outer, inner_stride, class_stride = layout(logits)
    of_target, to = layout(target), layout(logits if grad is None else grad)
    unit = math.gcd(16, classes, outer, of_target.outer_stride, to.outer_stride)
    tensors = (logits, target, weight, divisor, upstream, *where, grad, by_target)
    strides = (
        rows, classes // unit, inner, outer // unit, inner_stride, class_stride,
        of_target.outer_stride // unit, of_target.inner_stride, of_target.class_stride,
        to.outer_stride // unit, to.inner_stride, to.class_stride)
    factors = (float(scale), 1.0 - smoothing, smoothing / classes, *curve[2:])
    constants: dict[str, Any] = {
        "KIND": curve.kind, "TAIL": curve.tail, "UNBOUNDED": curve.unbounded, "UNIT": unit, "BLOCK": tiling.block,
        "WEIGHTED": weight is not None, "GRAD": grad is not None, "BY_TARGET": by_target is not None,
        "SUMS": sums is not None, "LAST": sums is not None and sums.last, "UPSTREAM": upstream is not None,
        "SMOOTH": smoothing > 0, "DIVIDED": divisor is not None,
        "num_warps": tiling.warps, "enable_fp_fusion": True,
    }
    if tiling.streamed:
        ends, phase = ends_for(tiling, logits, target, grad, by_target)
        # The ends take registers, with which fewer programs would fit.
        few = ends and curve.tail == LIKE_NORMAL.value and logits.dtype.itemsize == 2
        registers = 64 if few else tiling.registers or None
        launch(soft_streamed_kernel, programs, tensors, (*strides, phase, *factors), **constants, ENDS=ends,
               maxnreg=registers, VECTOR=ends or 16 // logits.dtype.itemsize, SIXTEEN_BIT=logits.dtype.itemsize == 2)
    else:
        launch(soft_kernel, programs, tensors, (*strides, *factors), **constants, ROWS=tiling.rows,
               maxnreg=tiling.registers or None, PIECE=piece_of(tiling, logits, unit, class_stride))
