"""Cross-entropy: what every other curve is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ._curve import Curve, nll


@dataclass(frozen=True, repr=False)
class CrossEntropy(Curve):
    r"""No bonus: the pull goes to 0 as the example is learned.

    .. math:: \varphi(p) = -\log p

    >>> CrossEntropy().pull(torch.tensor([0.0, 10.0]))
    tensor([5.0000e-01, 4.5398e-05])
    """

    name: ClassVar[str] = "cross_entropy"

    @property
    def form_below_half(self) -> str:
        return "nll"

    def value(self, gap: Tensor) -> Tensor:
        return nll(gap)

    def pull(self, gap: Tensor) -> Tensor:
        return torch.sigmoid(-gap)
