"""Batch norm over the batches of all processes together.

On GPUs it is torch's own ``nn.SyncBatchNorm``, which does not support the CPU. There the layer of this module adds two
sums up over the processes, with gradients through both.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import RunError

ORDINARY = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class SharedBatchNorm(_BatchNorm):
    """``nn.BatchNorm``, whose mean and variance in training are those of all processes' inputs together."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected an input of at least 2 dimensions, got {tuple(input.shape)}.")

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:  # no communication here: processes evaluate different numbers of batches
            return super().forward(input)
        self._check_input_dim(input)
        reduced = [0, *range(2, input.dim())]
        shape = [1, -1, *(1 for _ in input.shape[2:])]
        x = input if input.dtype == torch.float64 else input.float()
        count = x.new_tensor([x.numel() // x.shape[1]])
        totals = _sum_over_processes(torch.cat([count, x.sum(reduced)]))
        total_count, mean = totals[:1], totals[1:] / totals[:1]
        centred = x - mean.view(shape)
        variance = _sum_over_processes(centred.square().sum(reduced)) / total_count
        self._track(mean.detach(), variance.detach(), total_count.detach())
        scale = torch.rsqrt(variance + self.eps)
        scaled = centred * (scale if self.weight is None else scale * self.weight).view(shape)
        shifted: Tensor = scaled if self.bias is None else scaled + self.bias.view(shape)
        return shifted.to(input.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Update the running statistics as torch does, with the unbiased variance."""
        if self.running_mean is None or self.running_var is None:
            return
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        momentum = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked or 1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        unbiased = variance * count / (count - 1).clamp(min=1)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)


class _SumOverProcesses(torch.autograd.Function):
    """The sum over the processes; its gradient is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        total = own.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total


def _sum_over_processes(own: Tensor) -> Tensor:
    total: Tensor = _SumOverProcesses.apply(own)  # type: ignore[no-untyped-call]
    return total


def share_batch_norms(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with every batch norm replaced by one that all processes share; parameters, buffers and their names
    stay.

    Raises:
        RunError: a layer overrides ``forward`` of batch norm, which its replacement would not.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, ORDINARY) and type(layer).forward is not _BatchNorm.forward:
            raise RunError(f"train.sync_norm: the layer {name or 'itself'} of the model is a {type(layer).__name__}, a "
                           "batch norm with a forward of its own, which cannot be shared by processes. Set "
                           "train.sync_norm = false, or use a model with torch's own batch norm.")
    if device.type == "cuda":
        shared: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        return shared
    return _replace_batch_norms(model)


def _replace_batch_norms(model: nn.Module) -> nn.Module:
    if isinstance(model, ORDINARY):
        return _as_shared(model)
    for name, child in model.named_children():
        setattr(model, name, _replace_batch_norms(child))
    return model


def _as_shared(norm: _BatchNorm) -> SharedBatchNorm:
    layer = SharedBatchNorm(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    layer._parameters, layer._buffers, layer.training = norm._parameters, norm._buffers, norm.training
    return layer
