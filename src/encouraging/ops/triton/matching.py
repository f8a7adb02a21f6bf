"""The factor of norm matching: the norm of cross-entropy's gradient over that of the curve's."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .cached_launch import launch
from .finish import arrives_last
from .layout import pieces, power_of_two
from .sums import workspace


# Sums of the rows' squared lengths, one pair per program, of which the last one to arrive makes the ratio. In float64:
# squares of what float32 can hold leave its range.
@triton.jit(do_not_specialize=["n_rows"])
def ratio_kernel(lengths, sums, counter, out, n_rows, N: tl.constexpr, BLOCK: tl.constexpr):
    b_first = tl.zeros([BLOCK], tl.float64)
    b_second = tl.zeros([BLOCK], tl.float64)
    for start in tl.range(tl.program_id(0) * BLOCK, n_rows, N * BLOCK):
        o_r = start + tl.arange(0, BLOCK)
        first = tl.load(lengths + o_r, mask=o_r < n_rows, other=0.0).to(tl.float64)
        second = tl.load(lengths + n_rows + o_r, mask=o_r < n_rows, other=0.0).to(tl.float64)
        b_first += first * first
        b_second += second * second
    tl.store(sums + tl.program_id(0), tl.sum(b_first, axis=0))
    tl.store(sums + N + tl.program_id(0), tl.sum(b_second, axis=0))
    if arrives_last(counter):
        first = tl.sum(tl.load(sums + tl.arange(0, N), cache_modifier=".cg"), axis=0)
        second = tl.sum(tl.load(sums + N + tl.arange(0, N), cache_modifier=".cg"), axis=0)
        ratio = tl.sqrt(first / tl.where(second == 0.0, 1.0, second))
        tl.store(out, tl.where(second == 0.0, 1.0, ratio).to(tl.float32))


def norm_ratio(lengths: Tensor) -> Tensor:
    """The norm of the first row of ``lengths`` (2, N) over that of the second; 1 where the second is 0."""
    rows = lengths.shape[1]
    block = min(1024, max(16, power_of_two(rows)))
    programs = min(256, power_of_two(pieces(max(1, rows), block)))
    sums = torch.empty(2 * programs, dtype=torch.float64, device=lengths.device)
    out = torch.empty((), dtype=torch.float32, device=lengths.device)
    launch(ratio_kernel, programs, (lengths, sums, workspace(lengths).counter, out), (rows,), N=programs, BLOCK=block,
           num_warps=4)
    return out
