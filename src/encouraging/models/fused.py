"""A row of layers that runs convolution, PReLU and batch norm as one where it can.

Apart, the three read and write their activations a dozen times per step, and most of a small network's time on a GPU
goes there and not into the convolutions. Together they need six reads and two writes (see ``prelu_norm.py``).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..ops.dispatch import has_kernels

WIDEST = 1024


class Stack(nn.Sequential):
    """``nn.Sequential`` to the letter, parameters and all; only faster on a GPU."""

    def forward(self, input: Tensor) -> Tensor:
        layers = list(self)
        if not _may_fuse(input) or (torch.is_grad_enabled() and not self.training):
            plainly: Tensor = super().forward(input)  # type: ignore[no-untyped-call]
            return plainly
        from .prelu_norm import prelu_norm

        at = 0
        while at < len(layers):
            layer = layers[at]
            if (trio := _trio(layers[at : at + 3])) is not None:
                conv, prelu, norm = trio
                raw = conv._conv_forward(input, conv.weight, None)
                input = prelu_norm(raw, norm, prelu.weight, conv.bias)
                at += 3
            elif isinstance(layer, nn.BatchNorm2d) and _fits(layer):
                input, at = prelu_norm(input, layer), at + 1
            else:
                input, at = layer(input), at + 1
        return input


def _may_fuse(input: Tensor) -> bool:
    """Images on a GPU. Compilers fuse by themselves, and gradients through running averages are left to torch."""
    return input.is_cuda and input.ndim == 4 and not torch.compiler.is_compiling() and has_kernels(input)


def _trio(layers: list[nn.Module]) -> tuple[nn.Conv2d, nn.PReLU, nn.BatchNorm2d] | None:
    match layers:
        case [nn.Conv2d() as conv, nn.PReLU() as prelu, nn.BatchNorm2d() as norm]:
            return (conv, prelu, norm) if prelu.num_parameters == 1 and _fits(norm) else None
    return None


def _fits(norm: nn.BatchNorm2d) -> bool:
    return norm.affine and norm.track_running_stats and norm.momentum is not None and norm.num_features <= WIDEST


def plain(input: Tensor, norm: nn.BatchNorm2d, slope: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """What ``prelu_norm`` computes, in torch's own operations."""
    biased = input if bias is None else input + bias[:, None, None].to(input.dtype)
    return norm(biased if slope is None else F.prelu(biased, slope.to(input.dtype)))  # type: ignore[no-any-return]
