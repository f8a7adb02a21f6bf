"""The squared error of a sigmoid probability, and its mirror bonus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import CurveError
from ._curve import Curve


@dataclass(frozen=True, repr=False)
class Square(Curve):
    r"""The squared error of p; with its mirror ``bonus`` it is linear in p.

    .. math:: \varphi(p) = (1-p)^2 \qquad\text{with bonus}\qquad (1-p)^2 - p^2 = 1 - 2p

    Args:
        bonus: Whether the mirror bonus is added.

    Raises:
        CurveError: ``bonus`` is not True or False.

    >>> Square().pull(torch.tensor(3.0)), Square(bonus=True).pull(torch.tensor(3.0))
    (tensor(0.0043), tensor(0.0904))
    """

    name: ClassVar[str] = "square"
    bonus: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.bonus, bool):
            raise CurveError(f"square(bonus={self.bonus!r}): expected True or False, with or without the mirror bonus.")

    def value(self, gap: Tensor) -> Tensor:
        q = torch.sigmoid(-gap)
        return q - torch.sigmoid(gap) if self.bonus else q * q

    def pull(self, gap: Tensor) -> Tensor:
        p, q = torch.sigmoid(gap), torch.sigmoid(-gap)
        return 2 * p * q if self.bonus else 2 * p * q * q
