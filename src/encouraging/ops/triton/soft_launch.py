"""Logits and soft targets to kernels: layouts, grids, buffers. No autograd here, no host synchronisation, no copies."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import sums
from .cached_launch import Kept, Prepared
from .curves import LIKE_CROSS_ENTROPY, LIKE_ITSELF, LIKE_NORMAL, Constants
from .finish import NOBODY
from .layout import layout, pieces, power_of_two
from .maths import EACH, ONE
from .soft import soft_kernel
from .soft_narrow import soft_narrow_kernel
from .soft_split import NUMBERS, soft_split_end_kernel, soft_split_kernel, soft_split_sums_kernel
from .soft_streamed import soft_streamed_kernel
from .tiling import (
    Tiling,
    division_key,
    ends_for,
    held_to,
    is_persistent,
    piece_of,
    processors,
    segments_of,
    soft_narrowed,
    soft_tiling_for,
    split,
    widened,
)


class SoftProblem(NamedTuple):
    """A loss over rows of logits and targets of the same shape, (N, C) or (N, C, d); the weight is float32."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    curve: Constants
    smoothing: float


def soft_losses(problem: SoftProblem, *, upstream: Tensor | None = None, grad: Tensor | None = None,
                by_target: Tensor | None = None, state: Tensor | None = None,
                dtype: torch.dtype = torch.float32) -> Tensor:
    """The loss of every row, in ``dtype``, and whatever there is a buffer for.

    ``grad`` (which may be the logits) receives the gradient of the rows' losses on the logits, ``by_target``, which has
    the target's strides, that on the targets: each row times its ``upstream``. ``state`` is for ``soft_later_launch``.
    """
    rows = layout(problem.logits).rows
    out = torch.empty(rows, dtype=dtype, device=problem.logits.device)
    if rows:
        asked = Asked(False, 1.0, False, dtype, 0 if upstream is None else EACH.value,
                      None if upstream is None else upstream.dtype, state is not None)
        launch = _launch_for(problem, asked, grad, by_target)
        launch(out.get_device(), *problem[:3], None, upstream, out, None, None, grad, by_target, state)
    return out


def soft_gradients(problem: SoftProblem, upstream: Tensor, grad: Tensor | None, by_target: Tensor | None,
                   factor: float = 1.0, divisor: Tensor | None = None) -> None:
    """The gradients alone, as :func:`soft_losses` writes them, with an upstream gradient per row or one for all, times
    ``factor`` over ``divisor``: everything is made again from logits and targets."""
    logits = problem.logits
    if layout(logits).rows:
        asked = Asked(False, float(factor), divisor is not None, torch.float32,
                      EACH.value if upstream.ndim else ONE.value, upstream.dtype, loss=False)
        launch = _launch_for(problem, asked, grad, by_target)
        out = None
        if isinstance(launch, SplitLaunch):  # which writes the losses in any case
            out = torch.empty(layout(logits).rows, dtype=torch.float32, device=logits.device)
        launch(logits.get_device(), *problem[:3], divisor, upstream, out, None, None, grad, by_target, None)


def soft_loss_sum(problem: SoftProblem, factor: float, divisor: Tensor | None = None, *, grad: Tensor | None = None,
                  by_target: Tensor | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """The sum of the rows' losses, times ``factor`` over ``divisor``, in ``dtype``, and its gradients where there is a
    buffer."""
    if not layout(problem.logits).rows:
        return sums.sum_of(problem.logits, 0, dtype=dtype).total(divisor, factor)
    plan = soft_plan_for(problem, factor, divisor, grad, by_target, dtype)
    return plan.run(*problem[:3], divisor, grad, by_target)


class SoftPlan(NamedTuple):
    """How a sum over the rows is made."""

    launch: Prepared | SplitLaunch
    device: int
    total: Prepared | None  # another launch for the sum
    dtype: torch.dtype  # of the sum

    def run(self, logits: Tensor, target: Tensor, weight: Tensor | None, divisor: Tensor | None, grad: Tensor | None,
            by_target: Tensor | None, state: Tensor | None = None) -> Tensor:
        """The sum, see :func:`soft_loss_sum`, of at least one row."""
        launch, device, by_another, dtype = self
        if by_another is None:
            out = torch.empty(size=(), dtype=dtype, device=logits.device)
            launch(device, logits, target, weight, divisor, None, out, *sums.workspace(logits), grad, by_target,
                   state)
            return out
        shares = torch.empty(launch.programs, dtype=torch.float32, device=logits.device)
        launch(device, logits, target, weight, divisor, None, None, shares, None, grad, by_target, state)
        return sums.launch_total(by_another, shares, divisor, None, dtype)


def soft_plan_for(problem: SoftProblem, factor: float, divisor: Tensor | None, grad: Tensor | None,
                  by_target: Tensor | None, dtype: torch.dtype, state: bool = False) -> SoftPlan:
    """How such a sum is made, of at least one row; with a ``state`` for ``soft_later_launch``."""
    launch = _launch_for(problem, Asked(True, float(factor), divisor is not None, dtype, state=state), grad, by_target)
    device, by_another = problem.logits.get_device(), None
    if not sums.ending(launch.programs, 0, in_order=False):
        by_another = sums.total_for(device, launch.programs, 0 if divisor is None else divisor.numel(), factor,
                                    NOBODY.value, None, dtype)
    return SoftPlan(launch, device, by_another, dtype)


class Asked(NamedTuple):
    """What a pass over logits and targets is asked for, beside its buffers."""

    sums: bool
    scale: float
    divided: bool
    dtype: torch.dtype  # of the losses or their sum
    how: int = 0  # the upstream gradient, maths.ONE or EACH row's
    upstream: torch.dtype | None = None
    state: bool = False
    loss: bool = True


class SplitLaunch:
    """The launches over rows that are split into segments, called as the one launch of the others is."""

    __slots__ = ("_end", "_passes", "_size", "programs")

    def __init__(self, passes: list[Prepared], end: Prepared, size: int) -> None:
        self._passes, self._end, self._size = passes, end, size
        self.programs = end.programs

    def __call__(self, device: int, logits: Tensor, target: Tensor, weight: Tensor | None,
                 *others: Tensor | None) -> None:
        partials = torch.empty(self._size, dtype=torch.float32, device=logits.device)
        for one in self._passes:
            one(device, logits, target, weight, partials)
        self._end(device, logits, target, weight, partials, *others)


_launches = Kept()


def _launch_for(problem: SoftProblem, asked: Asked, grad: Tensor | None,
                by_target: Tensor | None) -> Prepared | SplitLaunch:
    """The launch, remembered: it takes logits, target, weight, divisor, upstream, the losses or their sum, shares,
    counter, grad, by_target and state."""
    logits, target, weight, curve, smoothing = problem
    key = (logits.get_device(), logits.dtype, logits.shape, logits.stride(), logits.data_ptr() & 15, target.dtype,
           target.stride(), target.data_ptr() & 15, None if grad is None else (grad.stride(), grad.data_ptr() & 15),
           None if by_target is None else by_target.data_ptr() & 15, None if weight is None else weight.dtype, curve,
           smoothing, asked, division_key(), sums.MOST_ARRIVALS)
    prepared: Prepared | SplitLaunch | None = _launches.get(key)
    if prepared is None:
        prepared = _launches.keep(key, _prepare(problem, asked, grad, by_target))
    return prepared


def _division(problem: SoftProblem, by_target: Tensor | None = None,
              grad: Tensor | None = None) -> tuple[Tiling, int]:
    """The tiling, and how many programs there are."""
    logits, target, weight, curve, smoothing = problem
    rows, classes = layout(logits)[:2]
    # Rows of 16 bits that are not aligned are better off in blocks, which are read in vectors.
    lean = (curve.below_largest != LIKE_ITSELF.value and weight is None and by_target is None and not smoothing
            and not (classes % 2 and logits.dtype.itemsize == 2))
    tiling = soft_tiling_for(classes, curve.below_largest == LIKE_CROSS_ENTROPY.value, lean)
    tiling = split(widened(tiling, rows, logits.device), rows, classes, logits.device)
    laid_out = [layout(tensor) for tensor in (logits, target, grad) if tensor is not None]
    if by_target is None and not curve.unbounded and all(each.class_stride == 1 for each in laid_out):
        vector = math.gcd(16 // logits.dtype.itemsize, classes, *(each.outer_stride for each in laid_out))
        tiling = soft_narrowed(tiling, classes, vector, grad is not None)
    if tiling.segments > 1:
        return tiling, rows * segments_of(tiling, classes)[0]
    if tiling.streamed:
        return tiling, min(rows, tiling.per_processor * processors(logits.device))
    return tiling, pieces(rows, tiling.rows)


def _prepare(problem: SoftProblem, asked: Asked, grad: Tensor | None,
             by_target: Tensor | None) -> Prepared | SplitLaunch:
    logits, target, weight, curve, smoothing = problem
    tiling, programs = _division(problem, by_target, grad)
    if tiling.segments > 1 and grad is None and by_target is None:
        programs = layout(logits).rows  # the last launch then has only the losses to write
    rows, classes, inner, outer, inner_stride, class_stride = layout(logits)
    of_target, to = layout(target), layout(logits if grad is None else grad)
    unit = math.gcd(16, classes, outer, of_target.outer_stride, to.outer_stride)
    sizes = (
        rows, classes // unit, inner, outer // unit, inner_stride, class_stride,
        of_target.outer_stride // unit, of_target.inner_stride, of_target.class_stride)
    grad_sizes = to.outer_stride // unit, to.inner_stride, to.class_stride
    factors = (asked.scale, 1.0 - smoothing, smoothing / classes, *curve[2:])
    constants: dict[str, Any] = {
        "KIND": curve.kind, "TAIL": curve.below_largest, "UNBOUNDED": curve.unbounded, "UNIT": unit,
        "BLOCK": tiling.block,
        "WEIGHTED": weight is not None, "GRAD": grad is not None, "BY_TARGET": by_target is not None,
        "SUMS": asked.sums, "LAST": sums.ending(programs, 0, in_order=False) if asked.sums else 0,
        "UPSTREAM": asked.how, "SMOOTH": smoothing > 0, "DIVIDED": asked.divided, "STATE": asked.state,
        "num_warps": tiling.warps, "enable_fp_fusion": True,
    }
    if tiling.segments == 1:
        constants["LOSS"] = asked.loss
    if tiling.repeat > 1:
        known = {name: value for name, value in constants.items()
                 if name.islower() or name in soft_narrow_kernel.arg_names}
        return Prepared(soft_narrow_kernel, programs, (*sizes, *grad_sizes, *factors), **known, ROWS=tiling.rows,
                        REPEAT=tiling.repeat, maxnreg=held_to(96) if grad is not None else None)
    if not tiling.streamed:
        registers: int | None = tiling.registers or None
        if not registers and tiling.warps == 8 and grad is not None and curve.below_largest == LIKE_ITSELF.value:
            registers = held_to(128)  # so that two programs fit on a multiprocessor, with every such curve
        return Prepared(soft_kernel, programs, (*sizes, *grad_sizes, *factors), **constants, ROWS=tiling.rows,
                        maxnreg=registers, PIECE=piece_of(tiling, logits, unit, class_stride))
    ends, phase = ends_for(tiling, logits, target, grad, by_target)
    if tiling.segments > 1:
        constants |= {"VECTOR": ends or 16 // logits.dtype.itemsize, "ENDS": ends,
                      "SIXTEEN_BIT": logits.dtype.itemsize == 2}
        return _prepare_split(tiling, programs, sizes, grad_sizes, phase, factors, curve, constants)
    return Prepared(soft_streamed_kernel, programs, (*sizes, *grad_sizes, phase, *factors),
                    is_persistent(tiling, constants["LAST"] if asked.sums else None), **constants, ENDS=ends,
                    maxnreg=_most_registers(problem, by_target is not None, ends) or tiling.registers or None,
                    VECTOR=ends or 16 // logits.dtype.itemsize, SIXTEEN_BIT=logits.dtype.itemsize == 2)


def _most_registers(problem: SoftProblem, by_target: bool, ends: int) -> int | None:
    """How many registers per thread of a streamed kernel let more programs fit, with few loads or stores that spill: 64
    for four programs of 8 warps on a multiprocessor, 80 for three."""
    _, _, weight, curve, smoothing = problem
    plain, sixteen_bit = weight is None and not smoothing, problem.logits.dtype.itemsize == 2
    is_cross_entropy = curve.below_largest == LIKE_CROSS_ENTROPY.value
    if (is_cross_entropy or not plain or by_target) if sixteen_bit else (is_cross_entropy and plain):
        three = held_to(80)
        if three:
            return three
    # The ends take registers.
    return 64 if sixteen_bit and ends and curve.below_largest == LIKE_NORMAL.value else None


def _prepare_split(tiling: Tiling, programs: int, sizes: tuple[int, ...], grad_sizes: tuple[int, ...], phase: int,
                   factors: tuple[float, ...], curve: Constants, constants: dict[str, Any]) -> SplitLaunch:
    """The launches of ``soft_split.py``, of which the last has so many programs."""
    rows, class_units = sizes[:2]
    scale, masses = factors[0], factors[1:3]
    n_segments, segment_blocks = segments_of(tiling, class_units * constants["UNIT"])
    constants["SEGMENTS"] = max(16, power_of_two(n_segments))

    def launch(kernel: Any, grid: int, *others: float) -> Prepared:
        known = {name: value for name, value in constants.items() if name.islower() or name in kernel.arg_names}
        return Prepared(kernel, grid, (rows, n_segments, segment_blocks, *sizes[1:], *others), **known)

    every = rows * n_segments
    passes = [launch(soft_split_kernel, every, phase, *masses)]
    if curve.below_largest != LIKE_CROSS_ENTROPY.value:
        passes.append(launch(soft_split_sums_kernel, every, phase, *masses, *curve[2:]))
    end = launch(soft_split_end_kernel, programs, *grad_sizes, phase, scale, *masses, *curve[2:])
    return SplitLaunch(passes, end, NUMBERS * every)
