"""The mean or sum of a curve that has no kernel: its functions are evaluated by torch, on one number per row.

Forward: a pass over the logits gives the gaps, the curve's values of them are torch's, and a small kernel adds them up.
Backward: the curve's pulls are torch's, and a pass over the logits writes the gradient, from what the first has kept of
every row; or, where rows are short, from the logits alone.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...curves import Curve
from ...errors import CurveError
from ...torch_state import is_batched
from .cached_launch import Kept, Prepared
from .curves import Gap, constants
from .finish import NOBODY, THE_LAST, finish_mean
from .functions import differentiable
from .later_launch import later_for
from .launch import NO_STATS, Asked, losses_for
from .layout import pieces
from .problem import Problem, empty_state
from .rows import read_label, sum_of
from .short_launch import are_short, of_pulls_for
from .sums import workspace

_BLOCK = 1024
_MOST_PROGRAMS = 256


@triton.jit(do_not_specialize=["n_rows", "ignore_index"])
def own_total_kernel(values, target, weight, partial_weights, out, shares, counter, state, n_rows, n_classes,
                     ignore_index, N_PARTIAL: tl.constexpr, COUNT: tl.constexpr, WEIGHTED: tl.constexpr,
                     KEPT: tl.constexpr, BLOCK: tl.constexpr):
    b_total, b_weights = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for first in tl.range(tl.program_id(0) * BLOCK, n_rows, tl.num_programs(0) * BLOCK):
        o_r = first + tl.arange(0, BLOCK)
        m_r = o_r < n_rows
        y, taught, w, fill = read_label(target, weight, o_r, m_r, n_classes, ignore_index, WEIGHTED)
        value = tl.load(values + o_r, mask=m_r, other=0.0)
        # An ignored row's gap is 0, and whatever the curve is there must not reach the sum.
        b_total += tl.where(taught, w * value, tl.where(m_r, fill, 0.0))
        b_weights += w
    finish_mean(shares, counter, out, state, n_rows if KEPT else 0, tl.sum(b_total, axis=0), tl.sum(b_weights, axis=0),
                sum_of(partial_weights, N_PARTIAL), COUNT, N_PARTIAL, 4, True)


class OwnStep:
    """What all calls with the same arguments share, whatever their curves.

    With ``repeats`` they also have the same shapes, types and layouts: the launches are worked out in the first of
    them. ``dtype`` is that of the loss.
    """

    __slots__ = ("backward", "dtype", "forward", "ignore_index", "mean", "repeats")

    def __init__(self, ignore_index: int, mean: bool, repeats: bool = False,
                 dtype: torch.dtype = torch.float32) -> None:
        self.ignore_index, self.mean, self.repeats, self.dtype = ignore_index, mean, repeats, dtype
        self.forward: tuple[bool, Prepared | None, Prepared] | None = None
        self.backward: tuple[Any, Prepared] | None = None  # and how the logits lay for which it was worked out

    def problem(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Problem:
        return Problem(logits, target, weight, constants(Gap()), self.ignore_index, 0.0)

    def launches(self, logits: Tensor, target: Tensor, weight: Tensor | None,
                 divisor: Tensor | None) -> tuple[bool, Prepared | None, Prepared]:
        """Whether rows are short, the launch that gives the gaps, if there are any, and the one that adds up."""
        if self.forward is not None:
            return self.forward
        rows, short, gaps = target.shape[0], are_short(logits), None
        if rows:
            asked = Asked(False, 0, False, False, not short, False, False)
            gaps = losses_for(self.problem(logits, target, None), asked, None, None, torch.float32)
        key = (logits.get_device(), rows, logits.shape[1], target.dtype, None if weight is None else weight.dtype,
               divisor is None, self.ignore_index, self.mean, short, self.dtype)
        total = _totals.get(key)
        if total is None:
            total = _totals.keep(key, Prepared(
                own_total_kernel, min(_MOST_PROGRAMS, max(1, pieces(rows, _BLOCK))),
                (rows, logits.shape[1], self.ignore_index), N_PARTIAL=0 if divisor is None else 1,
                COUNT=(THE_LAST if self.mean and divisor is None else NOBODY).value, WEIGHTED=weight is not None,
                KEPT=not short, BLOCK=_BLOCK, num_warps=4))
        found = short, gaps, total
        if self.repeats:
            self.forward = found
        return found


_totals = Kept()


class OwnCurve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, curve: Curve, step: OwnStep,
                divisor: Tensor | None) -> Tensor:
        device = logits.get_device()
        short, first, total = step.launches(logits, target, weight, divisor)
        state = torch.empty(1, dtype=torch.float32, device=logits.device) if short else (
            empty_state(target, 0.0, reduced=True))
        gaps = torch.empty(target.shape[0], dtype=torch.float32, device=logits.device)
        if first is not None:
            first(device, logits, target, None, None, None, gaps, None, None, None, None if short else state, None,
                  *NO_STATS)
        ctx.save_for_backward(logits, target, weight, state, gaps)
        ctx.curve, ctx.step = curve, step
        values = _one_per_row(curve, curve.value(gaps), gaps)
        out = torch.empty(size=(), dtype=step.dtype, device=logits.device)
        total(device, values, target, weight, divisor, out, *workspace(logits), state)
        return out

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, state, gaps = ctx.saved_tensors
        curve, step = ctx.curve, ctx.step
        if torch.is_grad_enabled():
            above = upstream * state[-1]
            return differentiable(logits, target, weight, above, curve, step.ignore_index, 0.0, "sum"), *_NONE
        result, batched = torch.empty_like(logits), is_batched(upstream)
        if target.shape[0]:
            pulls = _one_per_row(curve, curve.pull(gaps), gaps)
            above = torch.ones((), dtype=torch.float32, device=logits.device) if batched else upstream
            short = state.shape[0] == 1
            # Not always as in the forward pass: hooks on saved tensors give back copies.
            lie = logits.dtype, logits.stride(), logits.data_ptr() & 15, above.dtype
            if step.backward is not None and step.backward[0] == lie:
                write = step.backward[1]
            else:
                problem = step.problem(logits, target, weight)
                write = of_pulls_for(problem, above, result) if short else later_for(problem, pulls, result, above)
                if step.repeats:
                    step.backward = lie, write
            if short:
                write(logits.get_device(), logits, target, weight, above, pulls, None, None, None, result, state, None,
                      *NO_STATS)
            else:
                write(logits.get_device(), logits, target, weight, state, pulls, above, result)
        if batched:  # what is 0 stays 0 under an infinite factor: rows that teach nothing
            result = torch.where(result == 0, result, (result.float() * upstream).to(result.dtype))
        return result, *_NONE


_NONE = (None,) * 5  # for everything but the logits


def _one_per_row(curve: Curve, numbers: Tensor, gaps: Tensor) -> Tensor:
    """What a curve made of the gaps as the kernels read it: float32, one after the other."""
    if numbers.device != gaps.device:
        if numbers.ndim:  # a kernel takes its address as one of the GPU, where nothing would catch that
            raise CurveError(f"{curve!r}: of gaps on {gaps.device} it made numbers on {numbers.device}: expected the "
                             "gaps' device. Make new tensors like the gaps, as torch.full_like(gap, 0.5) does.")
        numbers = numbers.to(gaps.device)
    if numbers.shape != gaps.shape:  # a constant
        numbers = numbers.expand(gaps.shape)
    if numbers.dtype is torch.float32 and numbers.is_contiguous():
        return numbers
    return numbers.float().contiguous()
