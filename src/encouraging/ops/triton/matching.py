"""The factor of norm matching: the norm of cross-entropy's gradient over that of the curve's."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .cached_launch import Kept, Prepared, launch
from .finish import THE_LAST, arrives_last, group_of_shares, sum_of_shares
from .layout import pieces, power_of_two
from .rows import sum_of
from .sums import workspace


@triton.jit
def _leave_squares(lengths, squares, n_rows, N: tl.constexpr, BLOCK: tl.constexpr):
    """Sums of the rows' squared lengths, one pair per program. In float64: squares of what float32 can hold leave its
    range."""
    b_first = tl.zeros([BLOCK], tl.float64)
    b_second = tl.zeros([BLOCK], tl.float64)
    for start in tl.range(tl.program_id(0) * BLOCK, n_rows, N * BLOCK):
        o_r = start + tl.arange(0, BLOCK)
        first = tl.load(lengths + o_r, mask=o_r < n_rows, other=0.0).to(tl.float64)
        second = tl.load(lengths + n_rows + o_r, mask=o_r < n_rows, other=0.0).to(tl.float64)
        b_first += first * first
        b_second += second * second
    tl.store(squares + tl.program_id(0), tl.sum(b_first, axis=0))
    tl.store(squares + N + tl.program_id(0), tl.sum(b_second, axis=0))


@triton.jit
def _ratio_of(squares, N: tl.constexpr):
    """The factor, from what all programs have left."""
    first = tl.sum(tl.load(squares + tl.arange(0, N), cache_modifier=".cg"), axis=0)
    second = tl.sum(tl.load(squares + N + tl.arange(0, N), cache_modifier=".cg"), axis=0)
    ratio = tl.sqrt(first / tl.where(second == 0.0, 1.0, second))
    return tl.where(second == 0.0, 1.0, ratio).to(tl.float32)


# The last program to arrive makes the ratio.
@triton.jit(do_not_specialize=["n_rows"])
def ratio_kernel(lengths, squares, counter, out, n_rows, N: tl.constexpr, BLOCK: tl.constexpr):
    _leave_squares(lengths, squares, n_rows, N, BLOCK)
    if arrives_last(counter):
        tl.store(out, _ratio_of(squares, N))


# The same together with finish.total_kernel, whose sum is multiplied by the ratio.
@triton.jit(do_not_specialize=["n_rows", "n_shares", "scale_at"])
def matched_total_kernel(lengths, shares, partial_weights, squares, groups, counter, out, scale_out, n_rows, n_shares,
                         scale_at, N_PARTIAL: tl.constexpr, COUNT: tl.constexpr, KEEP: tl.constexpr, N: tl.constexpr,
                         BLOCK: tl.constexpr):
    _leave_squares(lengths, squares, n_rows, N, BLOCK)
    total, weights = group_of_shares(shares, n_shares, COUNT, BLOCK)
    tl.store(groups + tl.program_id(0), total)
    tl.store(groups + N + tl.program_id(0), weights)
    if arrives_last(counter):
        factor = _ratio_of(squares, N)
        total = sum_of_shares(groups, N, N)
        over = sum_of_shares(groups + N, N, N) if COUNT == THE_LAST else sum_of(partial_weights, N_PARTIAL)
        tl.store(out, total * factor / over)
        if KEEP:
            tl.store(scale_out + scale_at, factor / over)


def norm_ratio(lengths: Tensor) -> Tensor:
    """The norm of the first row of ``lengths`` (2, N) over that of the second; 1 where the second is 0."""
    rows = lengths.shape[1]
    programs, block = _division(rows)
    squares = torch.empty(2 * programs, dtype=torch.float64, device=lengths.device)
    out = torch.empty(size=(), dtype=torch.float32, device=lengths.device)
    launch(ratio_kernel, programs, (lengths, squares, workspace(lengths).counter, out), (rows,), N=programs,
           BLOCK=block, num_warps=4)
    return out


def _division(rows: int) -> tuple[int, int]:
    """How many programs there are, and how many rows each of them takes at a time."""
    block = min(1024, max(16, power_of_two(rows)))
    return min(256, power_of_two(pieces(max(1, rows), block))), block


_totals = Kept()


def matched_total_for(device: int, rows: int, n_shares: int, n_partial: int, count: int, scale_at: int | None,
                      dtype: torch.dtype) -> Prepared:
    """``sums.total_for`` where the sum is multiplied by :func:`norm_ratio`, remembered."""
    key = device, rows, n_shares, n_partial, count, scale_at, dtype
    prepared: Prepared | None = _totals.get(key)
    if prepared is None:
        programs, block = _division(rows)
        prepared = _totals.keep(key, Prepared(
            matched_total_kernel, programs, (rows, n_shares, scale_at or 0), N_PARTIAL=n_partial, COUNT=count,
            KEEP=scale_at is not None, N=programs, BLOCK=block, num_warps=4))
    return prepared


def launch_matched_total(prepared: Prepared, lengths: Tensor, shares: Tensor, partial_weights: Tensor | None,
                         state: Tensor | None, dtype: torch.dtype) -> Tensor:
    squares = torch.empty(2 * prepared.programs, dtype=torch.float64, device=shares.device)
    out = torch.empty(size=(), dtype=dtype, device=shares.device)
    prepared(shares.get_device(), lengths, shares, partial_weights, squares, *workspace(shares), out, state)
    return out
