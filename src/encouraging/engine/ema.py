"""The exponential moving average of the weights, which is what is evaluated where a recipe asks for it."""

from __future__ import annotations

import copy

import torch
from torch import nn


class Average:
    """A second model whose weights and statistics trail the first: ``old * decay + new * (1 - decay)``."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay
        pairs = list(zip(self.model.state_dict().values(), model.state_dict().values(), strict=True))
        self.moving = [(old, new) for old, new in pairs if old.is_floating_point()]
        self.copied = [(old, new) for old, new in pairs if not old.is_floating_point()]

    @torch.no_grad()
    def update(self) -> None:
        old, new = ([pair[side] for pair in self.moving] for side in (0, 1))
        torch._foreach_lerp_(old, new, 1 - self.decay)
        for before, now in self.copied:  # counters of batch norm
            before.copy_(now)
