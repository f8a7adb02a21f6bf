"""A classifier of images in [0, 1]: attacks perturb these, so the normalisation is a part of the model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Normalised(nn.Module):
    """``logit_scale * model(cut(x) * scale + shift)``; ``cut`` resizes and crops the images, if they do not have the
    size that the model takes.

    >>> Normalised(nn.Identity(), 2.0, -1.0)(torch.tensor([0.0, 0.5, 1.0]))
    tensor([-1.,  0.,  1.])
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, model: nn.Module, scale: Tensor | float, shift: Tensor | float,
                 logit_scale: float = 1.0, cut: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.model, self.logit_scale, self.cut = model, logit_scale, cut
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float32))
        self.register_buffer("shift", torch.as_tensor(shift, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.cut is None else self.cut(x)
        logits: Tensor = self.model(x * self.scale + self.shift)
        return logits if self.logit_scale == 1 else self.logit_scale * logits
