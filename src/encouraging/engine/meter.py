"""Sums over an epoch, and the first bad loss of it."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor


class Meter(Protocol):
    """Loss and gradient norm of the epoch's updates so far."""

    def add(self, mean: Tensor, size: int | Tensor, norm: Tensor | None) -> None:
        """One update: its mean loss, what it is the mean over, and the gradient's norm where it was taken."""
        ...

    def bad(self) -> int | None:
        """The first update of the epoch, counted from 0, whose mean loss was not finite or was above the limit."""
        ...

    def sums(self) -> Tensor:
        """Loss, size, norms, number of norms, number of updates: what a checkpoint keeps and ranks add up."""
        ...

    def load(self, sums: Tensor) -> None: ...


class HostMeter:
    """For the CPU, where reading a number costs nothing."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.first: int | None = None
        self.loss = self.size = self.norm = self.norms = self.updates = 0.0

    def add(self, mean: Tensor, size: int | Tensor, norm: Tensor | None) -> None:
        value, count = mean.item(), float(size)
        if self.first is None and not (math.isfinite(value) and value <= self.limit):
            self.first = int(self.updates)
        self.loss += value * count
        self.size += count
        self.updates += 1
        if norm is not None:
            self.norm += norm.item()
            self.norms += 1

    def bad(self) -> int | None:
        return self.first

    def sums(self) -> Tensor:
        return torch.tensor([self.loss, self.size, self.norm, self.norms, self.updates], dtype=torch.float64)

    def load(self, sums: Tensor) -> None:
        self.loss, self.size, self.norm, self.norms, self.updates = sums.tolist()
        self.first = None


class DeviceMeter:
    """For a GPU: every operation stays on it, in place, so that a CUDA graph can hold them; reading waits for it."""

    def __init__(self, limit: float, device: torch.device) -> None:
        self.limit = limit
        self.total = torch.zeros(5, dtype=torch.float64, device=device)
        self.first = torch.full((), -1.0, dtype=torch.float64, device=device)

    def add(self, mean: Tensor, size: int | Tensor, norm: Tensor | None) -> None:
        value = mean.detach().double()
        count = torch.as_tensor(size, dtype=torch.float64, device=value.device) if isinstance(size, Tensor) \
            else torch.full_like(value, size)
        fine = (value <= self.limit) & value.isfinite()
        self.first.copy_(torch.where(fine | (self.first >= 0), self.first, self.total[4]))
        zero, one = torch.zeros_like(value), torch.ones_like(value)
        taken = (zero, zero) if norm is None else (norm.detach().double(), one)
        self.total.add_(torch.stack([value * count, count, *taken, one]))

    def bad(self) -> int | None:
        first = int(self.first.item())
        return None if first < 0 else first

    def sums(self) -> Tensor:
        return self.total.cpu()

    def load(self, sums: Tensor) -> None:
        self.total.copy_(sums)
        self.first.fill_(-1)
