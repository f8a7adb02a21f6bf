"""Bias, PReLU and batch norm in one, forward and backward, as Triton kernels over channels-last activations.

    forward   1  read y                  -> moments of prelu(y + bias), one part per program
              2                          -> mean, 1/std, running averages
              3  read y, write out
    backward  1  read y, grad            -> four sums per channel, one part per program
              2                          -> gradients of all parameters, in closed form from the sums
              3  read y, grad, write the input's gradient

Only y, the convolution's output, is kept for the backward pass. Parts are combined in a fixed order, so equal inputs
give equal bits. Its plain twin is ``fused.plain``.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from ..errors import ShapeError

TILE = 2048  # activations that a program holds at once
PROGRAMS = 264  # at most, of those that sum: each ends with a costly reduction of its own
KEPT = 5  # numbers per channel that the backward pass needs: mean, 1/std, and what the PReLU did
SUMS = 4
FEW = tl.constexpr(16)


@triton.jit
def _load(y, bias, slope, o_row, o_channel, C: tl.constexpr, mask, PRELU: tl.constexpr, BIAS: tl.constexpr):
    """Activations before and after the PReLU, and the PReLU's own slope there."""
    b_u = tl.load(y + o_row[:, None].to(tl.int64) * C + o_channel[None, :], mask=mask, other=0.0).to(tl.float32)
    if BIAS:
        b_u += tl.load(bias + o_channel, mask=o_channel < C, other=0.0)[None, :]
    b_k = tl.full(b_u.shape, 1.0, tl.float32)
    if PRELU:
        b_k = tl.where(b_u > 0, 1.0, tl.load(slope))
    return b_u, b_u * b_k, b_k


@triton.jit
def _moments_kernel(y, bias, slope, parts, kept, rows, programs, C: tl.constexpr, CP: tl.constexpr,
                    R: tl.constexpr, PRELU: tl.constexpr, BIAS: tl.constexpr):
    """Sums of the activation and its square, measured from the mean of a few rows so that little cancels, which is put
    where the mean will be; and, for the backward pass, of its negative part, that part's square, and how often it was
    positive."""
    i_part = tl.program_id(0)
    o_channel = tl.arange(0, CP)
    m_channel = o_channel < C
    # Spread over the batch: neighbouring rows are neighbouring pixels.
    o_few = tl.arange(0, FEW)
    m_few = (o_few < rows)[:, None] & m_channel[None, :]
    few = _load(y, bias, slope, o_few * (tl.maximum(rows, FEW) // FEW), o_channel, C, m_few, PRELU, BIAS)[1]
    b_from = tl.sum(tl.where(m_few, few, 0.0), 0) / tl.minimum(rows, FEW)
    if i_part == 0:
        tl.store(kept + o_channel, b_from, mask=m_channel)
    b_from = b_from[None, :]
    s_a = tl.zeros([R, CP], tl.float32)
    s_aa = tl.zeros([R, CP], tl.float32)
    s_n = tl.zeros([R, CP], tl.float32)
    s_nn = tl.zeros([R, CP], tl.float32)
    s_pos = tl.zeros([R, CP], tl.float32)
    for first in range(i_part * R, rows, programs * R):
        o_row = first + tl.arange(0, R)
        mask = (o_row < rows)[:, None] & m_channel[None, :]
        b_u, b_a, b_k = _load(y, bias, slope, o_row, o_channel, C, mask, PRELU, BIAS)
        b_off = tl.where(mask, b_a - b_from, 0.0)
        s_a += b_off
        s_aa += b_off * b_off
        if PRELU:
            b_n = tl.where(mask, tl.minimum(b_u, 0.0), 0.0)
            s_n += b_n
            s_nn += b_n * b_n
            s_pos += tl.where(mask & (b_u > 0), 1.0, 0.0)
    here = parts + o_channel * programs + i_part
    step = C * programs
    tl.store(here, tl.sum(s_a, 0), mask=m_channel)
    tl.store(here + step, tl.sum(s_aa, 0), mask=m_channel)
    if PRELU:
        tl.store(here + 2 * step, tl.sum(s_n, 0), mask=m_channel)
        tl.store(here + 3 * step, tl.sum(s_nn, 0), mask=m_channel)
        tl.store(here + 4 * step, tl.sum(s_pos, 0), mask=m_channel)


@triton.jit
def _total(parts, which, i_channel, programs, C: tl.constexpr, P: tl.constexpr):
    o_part = tl.arange(0, P)
    return tl.sum(tl.load(parts + (which * C + i_channel) * programs + o_part, mask=o_part < programs, other=0.0))


@triton.jit
def _settle_kernel(parts, kept, running_mean, running_var, tracked, rows, programs, eps, momentum, C: tl.constexpr,
                   P: tl.constexpr, PRELU: tl.constexpr):
    i_channel = tl.program_id(0)
    b_from = tl.load(kept + i_channel)
    b_old = tl.load(running_mean + i_channel)
    b_shift = _total(parts, 0, i_channel, programs, C, P) / rows
    b_var = tl.maximum(_total(parts, 1, i_channel, programs, C, P) / rows - b_shift * b_shift, 0.0)
    tl.store(kept + i_channel, b_from + b_shift)
    tl.store(kept + C + i_channel, 1 / tl.sqrt(b_var + eps))
    if PRELU:
        tl.store(kept + 2 * C + i_channel, _total(parts, 2, i_channel, programs, C, P))
        tl.store(kept + 3 * C + i_channel, _total(parts, 3, i_channel, programs, C, P))
        tl.store(kept + 4 * C + i_channel, _total(parts, 4, i_channel, programs, C, P))
    tl.store(running_mean + i_channel, b_old + momentum * ((b_from - b_old) + b_shift))
    b_old = tl.load(running_var + i_channel)
    tl.store(running_var + i_channel, b_old + momentum * (b_var * rows / (rows - 1) - b_old))
    if i_channel == 0:
        tl.store(tracked, tl.load(tracked) + 1)


@triton.jit
def _normalise_kernel(y, bias, slope, mean, rstd, weight, offset, out, rows, eps, C: tl.constexpr, CP: tl.constexpr,
                      R: tl.constexpr, PRELU: tl.constexpr, BIAS: tl.constexpr, RUNNING: tl.constexpr):
    o_row = tl.program_id(0) * R + tl.arange(0, R)
    o_channel = tl.arange(0, CP)
    m_channel = o_channel < C
    mask = (o_row < rows)[:, None] & m_channel[None, :]
    b_u, b_a, b_k = _load(y, bias, slope, o_row, o_channel, C, mask, PRELU, BIAS)
    b_scale = tl.load(rstd + o_channel, mask=m_channel, other=1.0)
    if RUNNING:  # then it is the running variance
        b_scale = 1 / tl.sqrt(b_scale + eps)
    b_scale *= tl.load(weight + o_channel, mask=m_channel, other=0.0)
    b_a -= tl.load(mean + o_channel, mask=m_channel, other=0.0)[None, :]
    b_out = b_a * b_scale[None, :] + tl.load(offset + o_channel, mask=m_channel, other=0.0)[None, :]
    o_out = o_row[:, None].to(tl.int64) * C + o_channel[None, :]
    tl.store(out + o_out, b_out.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _sums_kernel(y, grad, bias, slope, mean, parts, rows, programs, C: tl.constexpr, CP: tl.constexpr,
                 R: tl.constexpr, PRELU: tl.constexpr, BIAS: tl.constexpr):
    i_part = tl.program_id(0)
    o_channel = tl.arange(0, CP)
    m_channel = o_channel < C
    b_mean = tl.load(mean + o_channel, mask=m_channel, other=0.0)[None, :]
    s_g = tl.zeros([R, CP], tl.float32)
    s_ga = tl.zeros([R, CP], tl.float32)
    s_gn = tl.zeros([R, CP], tl.float32)
    s_gk = tl.zeros([R, CP], tl.float32)
    for first in range(i_part * R, rows, programs * R):
        o_row = first + tl.arange(0, R)
        mask = (o_row < rows)[:, None] & m_channel[None, :]
        b_u, b_a, b_k = _load(y, bias, slope, o_row, o_channel, C, mask, PRELU, BIAS)
        o_grad = o_row[:, None].to(tl.int64) * C + o_channel[None, :]
        b_g = tl.load(grad + o_grad, mask=mask, other=0.0).to(tl.float32)
        s_g += b_g
        s_ga += b_g * (b_a - b_mean)
        if PRELU:
            s_gn += b_g * tl.minimum(b_u, 0.0)
            s_gk += b_g * b_k
    here = parts + o_channel * programs + i_part
    step = C * programs
    tl.store(here, tl.sum(s_g, 0), mask=m_channel)
    tl.store(here + step, tl.sum(s_ga, 0), mask=m_channel)
    if PRELU:
        tl.store(here + 2 * step, tl.sum(s_gn, 0), mask=m_channel)
        tl.store(here + 3 * step, tl.sum(s_gk, 0), mask=m_channel)


@triton.jit
def _parameters_kernel(parts, kept, slope, weight, grads, rows, programs, C: tl.constexpr, P: tl.constexpr,
                       PRELU: tl.constexpr, BIAS: tl.constexpr):
    """Gradients from sums. With x the normalised activation the gradient before the norm is
    ``weight rstd (g - mean g - x mean gx)``; summed against the PReLU's negative part n (for its slope) and against the
    slope k at every place (for the bias) it needs nothing but sums over g, n and how often n is 0."""
    i_channel = tl.program_id(0)
    mean = tl.load(kept + i_channel)
    rstd = tl.load(kept + C + i_channel)
    b_g = _total(parts, 0, i_channel, programs, C, P)
    b_gx = rstd * _total(parts, 1, i_channel, programs, C, P)
    here = grads + i_channel
    tl.store(here, b_g)
    tl.store(here + C, b_gx)
    scale = tl.load(weight + i_channel) * rstd
    if PRELU:
        k = tl.load(slope)
        b_n = tl.load(kept + 2 * C + i_channel)
        b_nn = tl.load(kept + 3 * C + i_channel)
        b_pos = tl.load(kept + 4 * C + i_channel)
        b_xn = rstd * (k * b_nn - mean * b_n)
        b_gn = _total(parts, 2, i_channel, programs, C, P)
        tl.store(here + 2 * C, scale * (b_gn - b_g / rows * b_n - b_gx / rows * b_xn))
        if BIAS:
            b_k = b_pos + k * (rows - b_pos)
            b_ak = rows * mean - k * b_n + k * k * b_n  # positive activations, and negative ones times k once more
            b_xk = rstd * (b_ak - mean * b_k)
            b_gk = _total(parts, 3, i_channel, programs, C, P)
            tl.store(here + 3 * C, scale * (b_gk - b_g / rows * b_k - b_gx / rows * b_xk))
    elif BIAS:
        tl.store(here + 3 * C, 0.0)  # the norm takes away what a bias adds


@triton.jit
def _backward_kernel(y, grad, bias, slope, mean, rstd, weight, grads, out, of_slope, rows, C: tl.constexpr,
                     CP: tl.constexpr, R: tl.constexpr, PRELU: tl.constexpr, BIAS: tl.constexpr):
    o_row = tl.program_id(0) * R + tl.arange(0, R)
    o_channel = tl.arange(0, CP)
    m_channel = o_channel < C
    mask = (o_row < rows)[:, None] & m_channel[None, :]
    b_u, b_a, b_k = _load(y, bias, slope, o_row, o_channel, C, mask, PRELU, BIAS)
    o_grad = o_row[:, None].to(tl.int64) * C + o_channel[None, :]
    b_g = tl.load(grad + o_grad, mask=mask, other=0.0).to(tl.float32)
    b_rstd = tl.load(rstd + o_channel, mask=m_channel, other=0.0)
    b_x = (b_a - tl.load(mean + o_channel, mask=m_channel, other=0.0)[None, :]) * b_rstd[None, :]
    b_scale = b_rstd * tl.load(weight + o_channel, mask=m_channel, other=0.0)
    b_mean_g = tl.load(grads + o_channel, mask=m_channel, other=0.0) / rows
    b_mean_gx = tl.load(grads + C + o_channel, mask=m_channel, other=0.0) / rows
    b_out = b_scale[None, :] * (b_g - b_mean_g[None, :] - b_x * b_mean_gx[None, :]) * b_k
    tl.store(out + o_grad, b_out.to(out.dtype.element_ty), mask=mask)
    if PRELU and tl.program_id(0) == 0:  # one slope for all channels
        tl.store(of_slope, tl.sum(tl.load(grads + 2 * C + o_channel, mask=m_channel, other=0.0)))


class _Sizes:
    """Grids and blocks for activations (N, C, H, W)."""

    def __init__(self, y: Tensor) -> None:
        self.channels = y.shape[1]
        self.rows = y.numel() // self.channels
        self.padded = triton.next_power_of_2(self.channels)
        self.block = max(1, TILE // self.padded)
        self.tiles = triton.cdiv(self.rows, self.block)
        self.programs = min(self.tiles, PROGRAMS)
        self.parts = triton.next_power_of_2(self.programs)
        self.tile = {"C": self.channels, "CP": self.padded, "R": self.block}


class _PReLUNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor | None, slope: Tensor | None, weight: Tensor, offset: Tensor,
                norm: nn.BatchNorm2d) -> Tensor:
        size = _Sizes(y)
        kinds = {"PRELU": slope is not None, "BIAS": bias is not None}
        parts = y.new_empty(KEPT * size.channels * size.programs, dtype=torch.float32)
        kept = y.new_empty(KEPT, size.channels, dtype=torch.float32)
        _moments_kernel[(size.programs,)](y, bias, slope, parts, kept, size.rows, size.programs, **size.tile, **kinds)
        _settle_kernel[(size.channels,)](
            parts, kept, norm.running_mean, norm.running_var, norm.num_batches_tracked, size.rows, size.programs,
            norm.eps, norm.momentum, C=size.channels, P=size.parts, PRELU=slope is not None)
        out = _like(y)
        _normalise_kernel[(size.tiles,)](y, bias, slope, kept[0], kept[1], weight, offset, out, size.rows, norm.eps,
                                         **size.tile, **kinds, RUNNING=False)
        ctx.save_for_backward(y, bias, slope, weight, kept)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, bias, slope, weight, kept = ctx.saved_tensors
        size = _Sizes(y)
        kinds = {"PRELU": slope is not None, "BIAS": bias is not None}
        grad = grad.contiguous(memory_format=torch.channels_last)
        parts = y.new_empty(SUMS * size.channels * size.programs, dtype=torch.float32)
        grads = y.new_empty(SUMS, size.channels, dtype=torch.float32)
        _sums_kernel[(size.programs,)](y, grad, bias, slope, kept[0], parts, size.rows, size.programs, **size.tile,
                                       **kinds)
        _parameters_kernel[(size.channels,)](parts, kept, slope, weight, grads, size.rows, size.programs,
                                             C=size.channels, P=size.parts, **kinds)
        of_slope = y.new_empty(1, dtype=torch.float32)
        out = _like(y)
        _backward_kernel[(size.tiles,)](y, grad, bias, slope, kept[0], kept[1], weight, grads, out, of_slope, size.rows,
                                        **size.tile, **kinds)
        return (out, grads[3] if bias is not None else None, of_slope if slope is not None else None, grads[1],
                grads[0], None)


def _like(y: Tensor) -> Tensor:
    """Channels last in its strides too: for one channel ``empty_like`` would leave a convolution to guess."""
    return torch.empty(y.shape, dtype=y.dtype, device=y.device, memory_format=torch.channels_last)


def prelu_norm(y: Tensor, norm: nn.BatchNorm2d, slope: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Batch norm of the PReLU of ``y + bias``; without slope and bias, batch norm alone. Updates running averages."""
    y = y.contiguous(memory_format=torch.channels_last)
    if norm.training:
        if y.numel() <= y.shape[1]:
            raise ShapeError(f"batch norm: expected more than one value per channel in training, got the shape "
                             f"{tuple(y.shape)}.")
        out: Tensor = _PReLUNorm.apply(y, bias, slope, norm.weight, norm.bias, norm)
        return out
    if torch.is_grad_enabled():
        from .fused import plain

        return plain(y, norm, slope, bias)
    size, out = _Sizes(y), _like(y)
    _normalise_kernel[(size.tiles,)](y, bias, slope, norm.running_mean, norm.running_var, norm.weight, norm.bias, out,
                                     size.rows, norm.eps, **size.tile, PRELU=slope is not None, BIAS=bias is not None,
                                     RUNNING=True)
    return out
