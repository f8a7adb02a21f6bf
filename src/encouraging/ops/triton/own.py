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
from ...torch_state import is_batched
from .cached_launch import launch
from .curves import Gap, constants
from .finish import NOBODY, THE_LAST, finish_mean
from .functions import differentiable
from .launch import Problem, are_short, empty_state, gradient_of_pulls, later_for, losses
from .layout import pieces
from .rows import read_label, sum_of
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


class OwnCurve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, curve: Curve, ignore_index: int,
                mean: bool, divisor: Tensor | None) -> Tensor:
        problem = Problem(logits, target, weight, constants(Gap()), ignore_index, 0.0)
        short = are_short(logits)
        state = torch.empty(1, device=logits.device) if short else empty_state(target, 0.0, reduced=True)
        gaps = losses(problem._replace(weight=None), state=None if short else state)
        ctx.save_for_backward(logits, target, weight, state, gaps)
        ctx.curve, ctx.ignore_index = curve, ignore_index
        values = curve.value(gaps).float().contiguous()
        out = torch.empty((), dtype=torch.float32, device=logits.device)
        rows = target.shape[0]
        launch(own_total_kernel, min(_MOST_PROGRAMS, max(1, pieces(rows, _BLOCK))),
               (values, target, weight, divisor, out, *workspace(logits), state),
               (rows, logits.shape[1], ignore_index), N_PARTIAL=0 if divisor is None else 1,
               COUNT=(THE_LAST if mean and divisor is None else NOBODY).value, WEIGHTED=weight is not None,
               KEPT=not short, BLOCK=_BLOCK, num_warps=4)
        return out

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, state, gaps = ctx.saved_tensors
        nothing = (None,) * 6
        if torch.is_grad_enabled():
            above = upstream * state[-1]
            return differentiable(logits, target, weight, above, ctx.curve, ctx.ignore_index, 0.0, "sum"), *nothing
        result, batched = torch.empty_like(logits), is_batched(upstream)
        if target.shape[0]:
            pulls = ctx.curve.pull(gaps).float().contiguous()
            above = torch.ones((), dtype=torch.float32, device=logits.device) if batched else upstream
            problem = Problem(logits, target, weight, constants(Gap()), ctx.ignore_index, 0.0)
            if state.shape[0] == 1:
                gradient_of_pulls(problem, pulls, above, state, result)
            else:
                pass_over = later_for(problem, pulls, result, own=True)
                pass_over(logits.get_device(), logits, target, weight, state, pulls, above, result)
        if batched:  # what is 0 stays 0 under an infinite factor: rows that teach nothing
            result = torch.where(result == 0, result, (result.float() * upstream).to(result.dtype))
        return result, *nothing
