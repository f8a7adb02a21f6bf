"""Cross-entropy plus a polynomial of p: a power as bonus, and the first term of PolyLoss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ._curve import Curve, check_parameter, nll


@dataclass(frozen=True, repr=False)
class Power(Curve):
    r"""A power of p as bonus.

    .. math:: \varphi(p) = -\log p - w\,p^{k}

    Args:
        exponent: The power :math:`k`, at least 0.
        weight: The size of the bonus :math:`w`, at least 0.

    Raises:
        CurveError: A parameter is outside its range.

    >>> Power(1).pull(torch.tensor(0.0)).item()  # (1 - p)(1 + p) at p = 1/2
    0.75
    """

    name: ClassVar[str] = "power"
    exponent: float = 1.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_parameter(self.name, "exponent", self.exponent, low=0, meaning="the power of p that is the bonus")
        check_parameter(self.name, "weight", self.weight, low=0, meaning="the size of the bonus")

    def _power(self, gap: Tensor) -> Tensor:
        return torch.exp(-self.exponent * nll(gap)) if self.exponent else torch.ones_like(gap)

    def value(self, gap: Tensor) -> Tensor:
        return nll(gap) - self.weight * self._power(gap)

    def pull(self, gap: Tensor) -> Tensor:
        return torch.sigmoid(-gap) * (1 + self.weight * self.exponent * self._power(gap))


@dataclass(frozen=True, repr=False)
class Poly(Curve):
    r"""PolyLoss's first term: cross-entropy with its leading polynomial coefficient changed by ``epsilon``.

    .. math:: \varphi(p) = -\log p + \epsilon\,(1-p)

    Args:
        epsilon: The change of the coefficient, at least -1; below, the loss would push labels down.

    Raises:
        CurveError: ``epsilon`` is outside its range.

    >>> Poly(1.0).pull(torch.tensor(0.0)).item()
    0.75
    """

    name: ClassVar[str] = "poly"
    epsilon: float = 1.0

    def __post_init__(self) -> None:
        check_parameter(self.name, "epsilon", self.epsilon, low=-1,
                        meaning="the change of the first polynomial coefficient (below -1 the loss would push labels "
                                "down)")

    def value(self, gap: Tensor) -> Tensor:
        return nll(gap) + self.epsilon * torch.sigmoid(-gap)

    def pull(self, gap: Tensor) -> Tensor:
        q = torch.sigmoid(-gap)
        # 1 + epsilon p. For a negative epsilon it is written in q: near epsilon = -1 and p = 1 the terms would cancel.
        factor = 1 + self.epsilon * torch.sigmoid(gap) if self.epsilon >= 0 else (1 + self.epsilon) - self.epsilon * q
        return q * factor
