"""Batch norm over the whole batch of an update's part, however many processes share it.

On GPUs it is torch's own ``nn.SyncBatchNorm``. That one refuses the CPU, where this module's layer takes its place: two
sums that the processes add up, with gradients through both.
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
        if not self.training:  # without running statistics each process takes its own: their numbers of calls differ
            return super().forward(input)
        self._check_input_dim(input)
        over = [0, *range(2, input.dim())]
        shape = [1, -1, *(1 for _ in input.shape[2:])]
        x = input if input.dtype == torch.float64 else input.float()
        count = x.new_tensor([x.numel() // x.shape[1]])
        totals = _added(torch.cat([count, x.sum(over)]))
        whole, mean = totals[:1], totals[1:] / totals[:1]
        centred = x - mean.view(shape)
        variance = _added(centred.square().sum(over)) / whole
        self._track(mean.detach(), variance.detach(), whole.detach())
        scale = torch.rsqrt(variance + self.eps)
        scaled = centred * (scale if self.weight is None else scale * self.weight).view(shape)
        shifted: Tensor = scaled if self.bias is None else scaled + self.bias.view(shape)
        return shifted.to(input.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Running statistics as torch keeps them, the variance without bias."""
        if self.running_mean is None or self.running_var is None:
            return
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        share = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked or 1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        unbiased = variance * count / (count - 1).clamp(min=1)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)


class _Added(torch.autograd.Function):
    """The sum over the processes; its gradient is their gradients' sum."""

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


def _added(own: Tensor) -> Tensor:
    total: Tensor = _Added.apply(own)  # type: ignore[no-untyped-call]
    return total


def share_batch_norms(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with every batch norm replaced by one that all processes share; parameters, buffers and their names
    stay.

    Raises:
        RunError: A layer computes something of its own beside batch norm, which its replacement would not.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, ORDINARY) and type(layer).forward is not _BatchNorm.forward:
            raise RunError(f"train.sync_norm: the layer {name or 'itself'} of the model is a {type(layer).__name__}, a "
                           "batch norm with a forward of its own, which cannot be shared by processes. Set "
                           "train.sync_norm = false, or use a model with torch's own batch norm.")
    if device.type == "cuda":
        shared: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        return shared
    return _replaced(model)


def _replaced(model: nn.Module) -> nn.Module:
    if isinstance(model, ORDINARY):
        return _shared(model)
    for name, child in model.named_children():
        setattr(model, name, _replaced(child))
    return model


def _shared(norm: _BatchNorm) -> SharedBatchNorm:
    layer = SharedBatchNorm(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    layer._parameters, layer._buffers, layer.training = norm._parameters, norm._buffers, norm.training
    return layer
