"""A classifier of images in [0, 1]: attacks perturb those, so the normalisation belongs into the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Normalised(nn.Module):
    """``model(x * scale + shift)``, on the device of ``scale`` where that is a tensor.

    >>> Normalised(nn.Identity(), 2.0, -1.0)(torch.tensor([0.0, 0.5, 1.0]))
    tensor([-1.,  0.,  1.])
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, model: nn.Module, scale: Tensor | float, shift: Tensor | float) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float32))
        self.register_buffer("shift", torch.as_tensor(shift, dtype=torch.float32))

    def normalise(self, x: Tensor) -> Tensor:
        """What the classifier itself is given."""
        return x * self.scale + self.shift

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(self.normalise(x))
        return logits
