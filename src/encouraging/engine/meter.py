"""Sums over an epoch, and its first update with a bad loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

OWN = ("loss", "size", "norm_sum", "norm_count", "updates")  # sums of every task; the task's own sums follow
UPDATES = OWN.index("updates")


class Meter(Protocol):
    """Loss, gradient norm and the task's own sums over the epoch's updates so far.

    With ``skip_infinite``, gradient norms that are not finite do not count: a scaler (fp16) skips such updates.
    """

    def add(self, mean: Tensor, size: float | Tensor, norm: Tensor | None, sums: Mapping[str, Tensor | float]) -> None:
        """Add one update: its mean loss, the number that the mean is over, the gradient norm if measured, and sums."""
        ...

    def bad(self) -> int | None:
        """The first update of the epoch, counted from 0, whose mean loss was not finite or above the limit."""
        ...

    def sums(self) -> Tensor:
        """The sums of :data:`OWN`, then the task's. Checkpoints hold them, and ranks add them up."""
        ...

    def load(self, sums: Tensor) -> None: ...


class HostMeter:
    """For the CPU, where reading a number costs nothing."""

    def __init__(self, limit: float, names: Sequence[str] = (), *, skip_infinite: bool = False) -> None:
        self.limit, self.names, self.skip_infinite = limit, tuple(names), skip_infinite
        self.first: int | None = None
        self.loss = self.size = self.norm_sum = self.norm_count = self.updates = 0.0
        self.more = [0.0] * len(self.names)

    def add(self, mean: Tensor, size: float | Tensor, norm: Tensor | None, sums: Mapping[str, Tensor | float]) -> None:
        value, count = mean.item(), float(size)
        if self.first is None and not (math.isfinite(value) and value <= self.limit):
            self.first = int(self.updates)
        self.loss += value * count
        self.size += count
        self.updates += 1
        if norm is not None and (not self.skip_infinite or math.isfinite(norm)):
            self.norm_sum += norm.item()
            self.norm_count += 1
        for index, name in enumerate(self.names):
            self.more[index] += float(sums[name])

    def bad(self) -> int | None:
        return self.first

    def sums(self) -> Tensor:
        own = [self.loss, self.size, self.norm_sum, self.norm_count, self.updates]
        return torch.tensor([*own, *self.more], dtype=torch.float64)

    def load(self, sums: Tensor) -> None:
        self.loss, self.size, self.norm_sum, self.norm_count, self.updates, *self.more = sums.tolist()
        self.first = None


class DeviceMeter:
    """For a GPU: all sums stay there and are updated in place, so that a CUDA graph can record it; reading waits."""

    def __init__(self, limit: float, device: torch.device, names: Sequence[str] = (), *,
                 skip_infinite: bool = False) -> None:
        self.limit, self.names, self.skip_infinite = limit, tuple(names), skip_infinite
        self.total = torch.zeros(len(OWN) + len(self.names), dtype=torch.float64, device=device)
        self.first = torch.full((), -1.0, dtype=torch.float64, device=device)

    def add(self, mean: Tensor, size: float | Tensor, norm: Tensor | None, sums: Mapping[str, Tensor | float]) -> None:
        value = mean.detach().double()
        good = (value <= self.limit) & value.isfinite()
        self.first.copy_(torch.where(good | (self.first >= 0), self.first, self.total[UPDATES]))
        count = self._double(size, value)
        zero, one = torch.zeros_like(value), torch.ones_like(value)
        norm_and_count = [zero, zero] if norm is None else [norm.detach().double(), one]
        if self.skip_infinite and norm is not None:
            norm_and_count = [torch.where(norm.isfinite(), number, zero) for number in norm_and_count]
        more = [self._double(sums[name], value) for name in self.names]
        self.total.add_(torch.stack([value * count, count, *norm_and_count, one, *more]))

    @staticmethod
    def _double(number: float | Tensor, like: Tensor) -> Tensor:
        return number.detach().double() if isinstance(number, Tensor) else torch.full_like(like, number)

    def bad(self) -> int | None:
        first = int(self.first.item())
        return None if first < 0 else first

    def sums(self) -> Tensor:
        return self.total.cpu()

    def load(self, sums: Tensor) -> None:
        self.total.copy_(sums)
        self.first.fill_(-1)
