"""Focal loss, which teaches well-classified examples even less than cross-entropy, and its halted form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ._curve import Curve, check_parameter, logit, nll

_GAMMA = "how strongly well-classified examples are down-weighted"


@dataclass(frozen=True, repr=False)
class Focal(Curve):
    r"""Focal loss.

    .. math:: \varphi(p) = -(1-p)^{\gamma}\log p

    Args:
        gamma: How strongly well-classified examples are down-weighted, at least 0; 0 is cross-entropy.

    Raises:
        CurveError: ``gamma`` is outside its range.

    >>> Focal(2.0).pull(torch.tensor([0.0, 5.0]))
    tensor([2.9829e-01, 8.9739e-07])
    """

    name: ClassVar[str] = "focal"
    gamma: float = 2.0

    def __post_init__(self) -> None:
        check_parameter(self.name, "gamma", self.gamma, low=0, meaning=_GAMMA)

    def _modulation(self, gap: Tensor) -> Tensor:
        """(1-p)^gamma through its logarithm, so that its derivative stays finite where 1 - p underflows."""
        return torch.exp(-self.gamma * nll(-gap)) if self.gamma else torch.ones_like(gap)

    def value(self, gap: Tensor) -> Tensor:
        return self._modulation(gap) * nll(gap)

    def pull(self, gap: Tensor) -> Tensor:
        # p * log p is 0 at p = 0, where its second factor is infinite.
        surprise = nll(gap).clamp(max=torch.finfo(gap.dtype).max)
        return self._modulation(gap) * (torch.sigmoid(-gap) + self.gamma * torch.sigmoid(gap) * surprise)


@dataclass(frozen=True, repr=False)
class HaltedFocal(Curve):
    r"""Focal loss up to p = ``halt``, then cross-entropy shifted to meet it: easy examples keep cross-entropy's pull.

    .. math:: \varphi(p) = \begin{cases} -(1-p)^{\gamma}\log p & p \le h \\
        -\log p + (1 - (1-h)^{\gamma})\log h & p > h \end{cases}

    The paper prints the shift with the opposite sign, with which the curve would jump at ``halt``; its text and its
    experiments ask for continuity, and so does this curve.

    Args:
        gamma: How strongly well-classified examples are down-weighted, at least 0; 0 is cross-entropy.
        halt: The probability :math:`h`, from 0 to 1, at which focal loss ends.

    Raises:
        CurveError: A parameter is outside its range.

    >>> HaltedFocal(1.0, 0.5).pull(torch.tensor([0.1, 5.0]))
    tensor([0.4750, 0.0067])
    """

    name: ClassVar[str] = "halted_focal"
    gamma: float = 2.0
    halt: float = 0.5

    def __post_init__(self) -> None:
        check_parameter(self.name, "gamma", self.gamma, low=0, meaning=_GAMMA)
        check_parameter(self.name, "halt", self.halt, low=0, high=1,
                        meaning="the probability at which focal loss halts")

    @property
    def shift(self) -> float:
        """The constant that makes the two parts meet at ``halt``; 0 where the curve has only one part."""
        return (1 - (1 - self.halt) ** self.gamma) * math.log(self.halt) if self.halt else 0.0

    def on_logit(self) -> LateFocal:
        """The curve of absent classes where focal loss halts on the logit, as the authors' detector has it.

        Their code halts wherever a class is predicted, sigma(z) > ``halt``. For a class that is present this is the
        likelihood of the truth, and the curve is this one. For an absent class it is the other way round: the loss is
        cross-entropy while the class is wrongly predicted, and focal loss once it is not.

        >>> HaltedFocal(1.0, 0.5).on_logit()
        late_focal(gamma=1.0, start=0.5)
        """
        return LateFocal(self.gamma, 1 - self.halt)

    def value(self, gap: Tensor) -> Tensor:
        return torch.where(gap <= logit(self.halt), Focal(self.gamma).value(gap), nll(gap) + self.shift)

    def pull(self, gap: Tensor) -> Tensor:
        return torch.where(gap <= logit(self.halt), Focal(self.gamma).pull(gap), torch.sigmoid(-gap))


@dataclass(frozen=True, repr=False)
class LateFocal(Curve):
    r"""The reverse of :class:`HaltedFocal`: cross-entropy up to p = ``start``, shifted to meet focal loss after it.

    .. math:: \varphi(p) = \begin{cases} -\log p + (1 - (1-s)^{\gamma})\log s & p < s \\
        -(1-p)^{\gamma}\log p & p \ge s \end{cases}

    It is for absent classes beside a halted focal loss (:meth:`HaltedFocal.on_logit`) and has no name of its own in
    recipes.
    """

    name: ClassVar[str] = "late_focal"
    gamma: float = 2.0
    start: float = 0.5

    def __post_init__(self) -> None:
        check_parameter(self.name, "gamma", self.gamma, low=0, meaning=_GAMMA)
        check_parameter(self.name, "start", self.start, low=0, high=1,
                        meaning="the probability at which focal loss starts")

    @property
    def shift(self) -> float:
        """The constant that makes the two parts meet at ``start``."""
        return HaltedFocal(self.gamma, self.start).shift

    def value(self, gap: Tensor) -> Tensor:
        return torch.where(gap < logit(self.start), nll(gap) + self.shift, Focal(self.gamma).value(gap))

    def pull(self, gap: Tensor) -> Tensor:
        return torch.where(gap < logit(self.start), torch.sigmoid(-gap), Focal(self.gamma).pull(gap))
