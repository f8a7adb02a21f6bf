"""The gradient norms of other objectives at the same weights on the same batch.

The paper compares the gradient norms of the encouraging loss and of cross-entropy. A probe has no side effects: buffers
(batch norm's statistics, a margin's schedule) and random states are restored, and no gradient is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from . import random_state
from .distributed import World
from .task import Task


class Probe:
    """Called with the batches of an update and objectives by name; returns the gradient norm of each objective."""

    def __init__(self, task: Task[Any], model: nn.Module, autocast: Callable[[], AbstractContextManager[Any]],
                 world: World, device: torch.device) -> None:
        self.task, self.model, self.autocast, self.world, self.device = task, model, autocast, world, device

    def __call__(self, group: Sequence[Any], objectives: Mapping[str, Hashable]) -> dict[str, float]:
        buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        tensors, numbers = random_state.random_tensors(self.device), random_state.random_json()
        norms = {}
        for name, objective in objectives.items():
            norms[name] = self._norm(group, objective)
            for buffer, before in buffers:
                buffer.copy_(before)
            random_state.restore(tensors, numbers, self.device)
        return norms

    def _norm(self, group: Sequence[Any], objective: Hashable) -> float:
        params = [param for param in self.model.parameters() if param.requires_grad]
        total: list[Tensor] = [torch.zeros_like(param) for param in params]
        size = torch.zeros((), device=self.device)
        least = torch.finfo(size.dtype).tiny
        for batch in group:
            with self.autocast():
                loss = self.task.loss(self.model, batch, objective)
            gradients = torch.autograd.grad(loss.sum(), params, allow_unused=True)
            for sums, gradient in zip(total, gradients, strict=True):
                if gradient is not None:
                    sums += gradient
            size += loss.count
            least = max(least, loss.least)
        for sums in total:
            self.world.sum(sums)
        return float(get_total_norm(total) / self.world.sum(size).clamp(min=least))
