"""The common form of all networks: a body that computes features and a head that computes logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import RecipeError
from ..margins import LSoftmaxLinear
from .cosine import CosineLinear


class Classifier(nn.Module):
    """``head(body(x))``. Two-stage training resets the head; a large-margin head also takes the target.

    Under autocast the head still runs in float32: margins reach a hundred, where bfloat16 has steps of a half.
    """

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, input: Tensor, target: Tensor | None = None) -> Tensor:
        features = self.body(input)
        if torch.is_autocast_enabled(features.device.type):
            with torch.autocast(features.device.type, enabled=False):
                return self._logits(features.float(), target)
        return self._logits(features, target)

    def _logits(self, features: Tensor, target: Tensor | None) -> Tensor:
        logits: Tensor = self.head(features, target) if isinstance(self.head, LSoftmaxLinear) else self.head(features)
        return logits


def linear_head(width: int, classes: int, margin: int | None, bias: bool = True, cosine: bool = False) -> nn.Module:
    """A linear output layer, L-Softmax's if there is a margin, or LDAM's cosines."""
    if cosine and margin is not None:
        raise RecipeError(f"a cosine head with margin = {margin}: margin belongs to L-Softmax, which has its own head; "
                          "leave one of the two out.")
    if cosine:
        return CosineLinear(width, classes)
    return nn.Linear(width, classes, bias=bias) if margin is None else LSoftmaxLinear(width, classes, margin)
