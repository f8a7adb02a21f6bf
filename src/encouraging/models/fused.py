"""A sequence of layers that fuses convolution, PReLU and batch norm if possible.

As separate operations these read and write their activations a dozen times per step, which takes most of a small
network's time on a GPU. Fused, they need six reads and two writes (see ``prelu_norm.py``).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..ops.dispatch import has_kernels

WIDEST = 1024


class Stack(nn.Sequential):
    """``nn.Sequential`` with the same parameters and results; only faster on a GPU."""

    def forward(self, input: Tensor) -> Tensor:
        layers = list(self)
        if not _may_fuse(input) or (torch.is_grad_enabled() and not self.training):
            unfused: Tensor = super().forward(input)  # type: ignore[no-untyped-call]
            return unfused
        from .prelu_norm import prelu_norm

        index = 0
        while index < len(layers):
            layer = layers[index]
            if (fusible := _fusible(layers[index : index + 3])) is not None:
                conv, prelu, norm = fusible
                without_bias = conv._conv_forward(input, conv.weight, None)
                input = prelu_norm(without_bias, norm, prelu.weight, conv.bias)
                index += 3
            elif isinstance(layer, nn.BatchNorm2d) and _fits(layer):
                input, index = prelu_norm(input, layer), index + 1
            else:
                input, index = layer(input), index + 1
        return input


def _may_fuse(input: Tensor) -> bool:
    """Whether these are images on a GPU, outside of a compiler, which fuses by itself."""
    return input.is_cuda and input.ndim == 4 and not torch.compiler.is_compiling() and has_kernels(input)


def _fusible(layers: list[nn.Module]) -> tuple[nn.Conv2d, nn.PReLU, nn.BatchNorm2d] | None:
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
