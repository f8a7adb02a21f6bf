"""The exponential moving average of the weights; with ``train.ema`` it is the model that is evaluated."""

from __future__ import annotations

import copy

import torch
from torch import nn


class Average:
    """A second model whose weights and statistics follow the first one's: ``old * decay + new * (1 - decay)``."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay
        new_tensors = model.state_dict(keep_vars=True).values()  # the parameters themselves, not new views of them
        averages = self.model.state_dict(keep_vars=True).values()
        by_tensor = {id(new): (average, new) for average, new in zip(averages, new_tensors, strict=True)}
        pairs = list(by_tensor.values())  # a tied tensor has several names and is averaged once
        self.averages = [average for average, _ in pairs if average.is_floating_point()]
        self.current = [new for average, new in pairs if average.is_floating_point()]
        self.counters = [(old, new) for old, new in pairs if not old.is_floating_point()]  # of batch norm

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(self.averages, self.current, 1 - self.decay)
        for old, new in self.counters:
            old.copy_(new)
