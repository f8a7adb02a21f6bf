"""Tensors to kernels: layouts, grids, buffers. No autograd here, no host synchronisation, no copies of the logits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import sums
from .cached_launch import Kept, Prepared
from .curves import LIKE_CROSS_ENTROPY, LIKE_ITSELF
from .finish import BY_ARRIVAL, EVERYONE, IN_ORDER, NOBODY, SCALE, THE_FIRST, THE_LAST
from .in_order import MOST_WARPS
from .labels_split_launch import SplitLabels
from .later_launch import gradient_later
from .layout import layout, pieces
from .matching import launch_matched_total, matched_total_for
from .narrow import narrow_kernel
from .problem import Problem
from .resident import resident_kernel
from .resident_smooth import resident_smooth_kernel
from .streamed import streamed_kernel
from .streamed_smooth import streamed_smooth_kernel
from .sums import denominator, denominator_for, launch_total, n_partial_weights, total, total_for
from .tiling import (
    Tiling,
    as_streamed,
    division_key,
    ends_for,
    held_to,
    is_persistent,
    narrowed,
    piece_of,
    processors,
    split,
    tiling_for,
)

# From here on the power series of the streamed kernel leave out less than rounding does, if every class has little.
_MANY_CLASSES = 16384
_LITTLE_WEIGHT = 1.6e-5
_MOST_LABEL_READS = 1 << 23  # by all programs together, where every one counts the labels for itself
NO_STATS = (None, None, None)


_losses, _sums = Kept(), Kept()


def losses(problem: Problem, *, grad: Tensor | None = None, partial_weights: Tensor | None = None,
           upstream: Tensor | None = None, state: Tensor | None = None, lengths: Tensor | None = None,
           stats: tuple[Tensor, Tensor, Tensor] | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """The loss of every row, in ``dtype``, and whatever there is a buffer for.

    ``grad`` (which may be the logits) receives the gradient of the rows' losses, each times its ``upstream``, over the
    sum of ``partial_weights``; ``state`` what :func:`gradient_later` needs; ``lengths``, without smoothing, those of
    the rows' gradients, cross-entropy's and the curve's; ``stats`` the by-products.
    """
    rows = problem.target.shape[0]
    out = torch.empty(rows, dtype=dtype, device=problem.logits.device)
    if rows:
        asked = Asked(False, 0 if partial_weights is None else partial_weights.shape[0], upstream is not None,
                      grad is not None, state is not None, lengths is not None, stats is not None)
        launch = losses_for(problem, asked, grad, None if upstream is None else upstream.dtype, dtype)
        between = () if problem.smoothing > 0 else (lengths,)
        launch(problem.logits.get_device(), *problem[:3], partial_weights, upstream, out, None, None, grad, state,
               *between, *(stats or NO_STATS))
    return out


def losses_for(problem: Problem, asked: Asked, grad: Tensor | None, upstream: torch.dtype | None,
               dtype: torch.dtype) -> Prepared:
    """The launch of :func:`losses`, remembered: it takes logits, target, weight, partial weights, upstream, the losses,
    None, None, grad, state, without smoothing the lengths, and three by-products."""
    key = *key_of(problem, grad), asked, upstream, dtype
    prepared: Prepared | None = _losses.get(key)
    if prepared is None:
        tiling, programs = division(problem, asked)
        prepared = _losses.keep(key, prepare(problem, asked, grad, tiling, programs))
    return prepared


def loss_sum(problem: Problem, mean: bool, divisor: Tensor | None = None, *, grad: Tensor | None = None,
             state: Tensor | None = None, lengths: Tensor | None = None,
             stats: tuple[Tensor, Tensor, Tensor] | None = None) -> Tensor:
    """The sum of the rows' losses or their ``mean``, which is over ``divisor``, partial sums, where that is given; and
    whatever there is a buffer for, as in :func:`losses`. ``grad`` is that of the sum or mean. ``state`` has one number
    more, what the gradient of the sum is multiplied by, or is that alone. Given ``lengths``, all is multiplied by the
    factor of norm matching, for which the gradient must be made later.
    """
    logits, target, weight = problem[:3]
    if not target.shape[0]:
        if mean and divisor is None:
            divisor = denominator(target, weight, logits.shape[1], problem.ignore_index)
        return total(torch.empty(1, dtype=torch.float32, device=logits.device), 0, divisor)
    n_partial = 0 if divisor is None else divisor.shape[0]
    asked = Asked(True, n_partial, False, grad is not None, kept_in(state), lengths is not None, stats is not None)
    plan = plan_for(problem, asked, mean, grad)
    return plan.run(logits, target, weight, divisor, grad, state, lengths, stats)


def plan_for(problem: Problem, asked: Asked, mean: bool, grad: Tensor | None,
             dtype: torch.dtype = torch.float32) -> Plan:
    """How such a sum, of this type, is made, remembered."""
    key = *key_of(problem, grad), asked, mean, dtype
    plan: Plan | None = _sums.get(key)
    if plan is None:
        plan = _sums.keep(key, _plan(problem, asked, mean, grad, dtype))
    return plan


def kept_in(state: Tensor | None) -> int:
    """``Asked.state`` for the sum of at least one row and this buffer."""
    return 0 if state is None else SCALE.value if state.numel() == 1 else 1


class Asked(NamedTuple):
    """What a pass over the logits reads and writes besides."""

    sums: bool
    n_partial: int
    upstream: int  # one number per row: 1, or what short_launch.py asks for
    grad: bool
    state: int  # 1, or finish.SCALE for nothing but what the gradient of the sum is multiplied by
    lengths: bool
    stats: bool


class Plan(NamedTuple):
    """How a sum over the rows is made: by whom the labels are counted, and who makes the sum, see ``finish.py``."""

    launch: Prepared | SplitLabels
    device: int
    count_first: Prepared | None  # by a launch of its own
    ending: int
    total: Prepared | None  # another launch for the sum
    smooth: bool
    dtype: torch.dtype  # of the sum

    def run(self, logits: Tensor, target: Tensor, weight: Tensor | None, divisor: Tensor | None = None,
            grad: Tensor | None = None, state: Tensor | None = None, lengths: Tensor | None = None,
            stats: tuple[Tensor, Tensor, Tensor] | None = None) -> Tensor:
        """The sum, see :func:`loss_sum`, of at least one row."""
        launch, device, count_first, ending, by_another, smooth, dtype = self
        if count_first is not None:
            divisor = torch.empty(count_first.programs, dtype=torch.float32, device=logits.device)
            count_first(device, target, weight, divisor)
        out = counter = None
        if by_another is None:  # size=: half a microsecond less than without the name
            out = torch.empty(size=(), dtype=dtype, device=logits.device)
            shares, counter = sums.room_for(ending, logits, launch.programs)
        else:
            shares = torch.empty(2 * launch.programs, dtype=torch.float32, device=logits.device)
        if smooth:
            launch(device, logits, target, weight, divisor, None, out, shares, counter, grad, state,
                   *(stats or NO_STATS))
        else:
            launch(device, logits, target, weight, divisor, None, out, shares, counter, grad, state, lengths,
                   *(stats or NO_STATS))
        if by_another is None:
            return out  # type: ignore[return-value]
        if lengths is not None:
            return launch_matched_total(by_another, lengths, shares, divisor, state, dtype)
        return launch_total(by_another, shares, divisor, state, dtype)


def key_of(problem: Problem, grad: Tensor | None) -> tuple[Any, ...]:
    """All that a launch over the logits depends on, but for what it is asked."""
    logits, target, weight, curve, ignore_index, smoothing = problem
    where = logits.data_ptr()
    of_grad = None if grad is None else (grad.stride(), grad.data_ptr() & 15, grad.data_ptr() == where)
    return (logits.get_device(), logits.dtype, logits.shape, logits.stride(), where & 15, of_grad, target.dtype,
            None if weight is None else weight.dtype, curve, ignore_index, smoothing, division_key(),
            sums.in_order_from, sums.in_order_rows, sums.counted_rows)


def _plan(problem: Problem, asked: Asked, mean: bool, grad: Tensor | None, dtype: torch.dtype) -> Plan:
    (tiling, programs), rows = division(problem, asked), problem.target.shape[0]
    is_split = tiling.segments > 1  # then no gradient is written before the sum is known
    # Smoothed rows in blocks have few programs, and a kernel without registers for more.
    in_order = not is_split and tiling.warps <= MOST_WARPS and not (problem.smoothing and tiling.streamed)
    ending = 0 if asked.lengths else sums.ending(programs, rows, in_order)
    count, count_first = NOBODY.value, None
    if mean and not asked.n_partial:
        counting = sums.n_counting(rows) if ending == IN_ORDER.value else 0
        if counting:
            count, asked = THE_FIRST.value, asked._replace(n_partial=counting)
        elif (not asked.grad or is_split) and ending != IN_ORDER.value:
            count = THE_LAST.value
        elif ending == BY_ARRIVAL.value and programs * rows <= _MOST_LABEL_READS:
            count = EVERYONE.value
        else:
            count_first = denominator_for(problem.target, problem.weight, problem.logits.shape[1],
                                          problem.ignore_index)
            asked = asked._replace(n_partial=n_partial_weights(rows))
    programs += asked.n_partial if count == THE_FIRST.value else 0
    launch, device = prepare(problem, asked, grad, tiling, programs, count, ending), problem.logits.get_device()
    by_another = None
    if not ending:
        of_rows = 0 if asked.state == SCALE.value else 7 if problem.smoothing else 4  # numbers before the scale
        scale_at = of_rows * rows if asked.state else None
        by_another = (matched_total_for(device, rows, programs, asked.n_partial, count, scale_at, dtype)
                      if asked.lengths else total_for(device, programs, asked.n_partial, 1.0, count, scale_at, dtype))
    return Plan(launch, device, count_first, ending, by_another, problem.smoothing > 0, dtype)


def division(problem: Problem, asked: Asked) -> tuple[Tiling, int]:
    """The tiling, and how many programs there are."""
    logits = problem.logits
    rows, classes, _, outer, inner_stride, class_stride = layout(logits)
    tiling = tiling_for(classes, problem.smoothing > 0, planes=inner_stride == 1 != class_stride,
                        weighted=problem.weight is not None)
    if problem.smoothing > 0 and problem.curve.unbounded:
        tiling = as_streamed(tiling)
    if class_stride == 1 and not (problem.smoothing or asked.grad or asked.lengths or asked.stats):
        tiling = narrowed(tiling, classes, math.gcd(16 // logits.dtype.itemsize, classes, outer))
    tiling = split(tiling, rows, classes, logits.device)
    if tiling.segments > 1 and rows <= sums.MOST_ARRIVALS:  # whose sum needs no launch of its own
        return tiling, rows
    tiling = replace(tiling, segments=1) if tiling.segments > 1 else tiling
    if tiling.streamed:
        return tiling, min(rows, tiling.per_processor * processors(logits.device))
    return tiling, pieces(rows, tiling.rows)


def prepare(problem: Problem, asked: Asked, grad: Tensor | None, tiling: Tiling, programs: int,
             count: int = NOBODY.value, ending: int = 0) -> Prepared | SplitLabels:
    """The launch for such a problem."""
    logits = problem.logits
    rows, classes, inner, outer, inner_stride, class_stride = layout(logits)
    weighted, smooth = problem.weight is not None, problem.smoothing > 0
    to = layout(logits if grad is None else grad)
    unit = math.gcd(16, classes, outer, to.outer_stride)
    ends, phase = ends_for(tiling, logits, grad)
    sizes = rows, classes // unit, inner, outer // unit, inner_stride, class_stride
    numbers: tuple[int | float, ...] = (
        *sizes, to.outer_stride // unit, to.inner_stride, to.class_stride, problem.ignore_index)
    constants: dict[str, Any] = {
        "KIND": problem.curve.kind, "UNIT": unit, "BLOCK": tiling.block, "N_PARTIAL": asked.n_partial,
        "WEIGHTED": weighted, "GRAD": asked.grad, "STATE": asked.state, "SUMS": asked.sums, "STATS": asked.stats,
        "UPSTREAM": asked.upstream, "INPLACE": grad is not None and grad.data_ptr() == logits.data_ptr(),
        "COUNT": count, "LAST": ending, "num_warps": tiling.warps,
        "enable_fp_fusion": True,  # multiply and add in one instruction and one rounding
    }
    if tiling.segments > 1:
        return _prepare_split(problem, asked, tiling, sizes, phase, ends, constants)
    if tiling.repeat > 1:
        known = {name: value for name, value in constants.items()
                 if name.islower() or name in narrow_kernel.arg_names}
        return Prepared(narrow_kernel, programs, (*sizes, problem.ignore_index, *problem.curve[2:]), **known,
                        ROWS=tiling.rows, REPEAT=tiling.repeat)
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
            if weighted:  # some curves would take 184 to 226: two programs of 8 warps fit instead of one
                constants["maxnreg"] = held_to(128)
            constants["MOMENTS"] = (closed and classes >= _MANY_CLASSES
                                    and problem.smoothing <= _LITTLE_WEIGHT * classes)
        else:
            constants |= {"SIXTEEN_BIT": logits.dtype.itemsize == 2,
                          "TOGETHER": tiling.warps > 1 and logits.is_cuda}
    persistent = is_persistent(tiling, ending if asked.sums else None)
    return Prepared(kernel, programs, (*numbers, *problem.curve[2:]), persistent, **constants)


def _prepare_split(problem: Problem, asked: Asked, tiling: Tiling, sizes: tuple[int, ...], phase: int, ends: int,
                   constants: dict[str, Any]) -> SplitLabels:
    logits, _, weight, curve, ignore_index, smoothing = problem
    sixteen_bit = logits.dtype.itemsize == 2
    # The series of float32 would need a second look at some rows.
    closed = weight is None and (curve.tail == LIKE_CROSS_ENTROPY.value or (
        sixteen_bit and curve.tail != LIKE_ITSELF.value and smoothing <= _LITTLE_WEIGHT * logits.shape[1]))
    constants |= {
        "TAIL": curve.tail, "ENDS": ends, "VECTOR": ends or 16 // logits.dtype.itemsize, "SIXTEEN_BIT": sixteen_bit,
        "SMOOTH": smoothing > 0, "LENGTHS": asked.lengths, "STATE": asked.state or asked.grad,
        "N_PARTIAL": asked.n_partial if asked.sums else 0,
        "MOMENTS": smoothing > 0 and closed and logits.shape[1] >= _MANY_CLASSES}

    def gradient(logits: Tensor, target: Tensor, weight: Tensor | None, state: Tensor, above: Tensor,
                 grad: Tensor) -> None:
        gradient_later(Problem(logits, target, weight, curve, ignore_index, smoothing), state, above, grad)

    factors = float(smoothing), 1.0 - smoothing
    return SplitLabels(tiling, sizes, ignore_index, phase, factors, curve[2:], constants, gradient)
