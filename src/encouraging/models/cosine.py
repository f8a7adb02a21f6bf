"""An output layer whose logits are cosines, as LDAM uses it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CosineLinear(nn.Module):
    r"""Logits are the cosines of the angles between the features and a direction per class, between -1 and 1.

    .. math:: z_c = \frac{w_c^\top x}{\|w_c\| \, \|x\|}

    Rare classes cannot get smaller weights than frequent ones. A loss has to scale these logits up:
    :class:`~encouraging.LDAMLoss` multiplies them by 30.

    Args:
        in_features: Width of the features.
        out_features: Number of classes.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random directions of length 1."""
        nn.init.uniform_(self.weight, -1, 1)
        with torch.no_grad():
            self.weight.copy_(F.normalize(self.weight, dim=1))

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(F.normalize(input, dim=-1), F.normalize(self.weight, dim=1))

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"
