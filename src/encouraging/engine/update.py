"""One update of the weights: forward, backward, clip, step. The same code runs eagerly and inside a CUDA graph."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from .compiled import Compiled
from .distributed import World
from .ema import Average
from .meter import Meter
from .settings import Train
from .task import Loss, Task

SMALLEST_DIVISOR = 1e-30  # avoids 0/0 in an update whose count is 0
_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Update:
    """Called with the batches of one update (several if gradients accumulate) and the objective."""

    def __init__(self, task: Task[Any], model: nn.Module, optimizer: torch.optim.Optimizer, train: Train, meter: Meter,
                 average: Average | None, world: World, device: torch.device) -> None:
        self.task, self.model, self.optimizer, self.train = task, model, optimizer, train
        self.meter, self.average, self.world, self.device = meter, average, world, device
        self.params = [param for group in optimizer.param_groups for param in group["params"]]
        self.scaler = torch.amp.GradScaler(device.type, enabled=train.precision == "fp16")
        self.scaled = self.scaler.is_enabled()
        self.alone = world.size == 1

    def __call__(self, group: Sequence[Any], objective: Hashable, measure: bool) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        single = self.alone and len(group) == 1
        loss = self._single_batch(group[0], objective) if single else self._many_batches(group, objective)
        norm = self._norm() if measure or self.train.clip_norm is not None else None
        if self.scaled:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        if self.average is not None:
            self.average.update()
        self.meter.add(loss.mean, loss.size(), norm, loss.sums)

    def _single_batch(self, batch: Any, objective: Hashable) -> Loss:
        if self.train.precision in _AUTOCAST:
            with self.autocast():
                loss = self.task.loss(self.model, batch, objective)
        else:
            loss = self.task.loss(self.model, batch, objective)
        self._backward(loss.mean)
        return loss

    def _backward(self, loss: Tensor) -> None:
        (self.scaler.scale(loss) if self.scaled else loss).backward()  # type: ignore[no-untyped-call]

    def _many_batches(self, group: Sequence[Any], objective: Hashable) -> Loss:
        """The mean over all batches and ranks, also for batches of unequal size: sums first, one division at the end.
        """
        total = torch.zeros((), device=self.device)
        size = torch.zeros((), device=self.device)
        least, sums = 0.0, []
        for number, batch in enumerate(group):
            with self._no_sync(number < len(group) - 1), self.autocast():
                loss = self.task.loss(self.model, batch, objective)
                batch_total = loss.sum()
                self._backward(batch_total)
            total += batch_total.detach()
            size += loss.count
            least = max(least, loss.least)
            sums.append(loss.sums)
        divisor = self.world.sum(size.clone()).clamp(min=max(SMALLEST_DIVISOR, least))
        # DDP has already divided by the number of ranks.
        torch._foreach_mul_([param.grad for param in self.params if param.grad is not None], self.world.size / divisor)
        summed = {name: sum(batch_sums[name] for batch_sums in sums) for name in self.task.sums}
        own_size = divisor / self.world.size if least else size  # with least, a rank of count 0 can have a loss
        return Loss(total / own_size.clamp(min=SMALLEST_DIVISOR), own_size, summed)

    def _norm(self) -> Tensor:
        self.scaler.unscale_(self.optimizer)
        gradients = [param.grad for param in self.params if param.grad is not None]
        norm = get_total_norm(gradients)
        if self.train.clip_norm is not None:
            clip_grads_with_norm_(self.params, self.train.clip_norm, norm)
        return norm

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision of the forward pass."""
        if self.train.precision not in _AUTOCAST:
            return nullcontext()
        # The cache of cast weights would outlive the recording of a CUDA graph.
        return torch.autocast(self.device.type, _AUTOCAST[self.train.precision], cache_enabled=False)

    def _no_sync(self, more_batches: bool) -> AbstractContextManager[Any]:
        """Ranks exchange gradients once per update, after its last batch."""
        model = self.model.model if isinstance(self.model, Compiled) else self.model
        if more_batches and isinstance(model, nn.parallel.DistributedDataParallel):
            return model.no_sync()
        return nullcontext()
