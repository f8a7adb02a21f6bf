"""The logarithmic bonuses of the paper: normal, conservative and aggressive, and the encouraging loss made of them.

Everything is written in terms of the gap. ``q = sigmoid(-gap)`` is ``1 - p`` to full relative precision at any
confidence; ``1 - sigmoid(gap)`` would be exactly 0 in float32 from a gap of 17 on, where these losses still teach.
Comparisons read ``gap <= edge`` so that NaN takes the branch that keeps it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import CurveError
from ._curve import Curve, check_parameter, logit, nll

_CLAMP = "the value at which 1 - p is clamped (0 for no clamp)"


def log_or_minus_infinity(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def clamp_edge(eps: float) -> float:
    """The gap past which 1 - p is below ``eps``."""
    return math.log1p(-eps) - log_or_minus_infinity(eps)


@dataclass(frozen=True, repr=False)
class Normal(Curve):
    r"""Cross-entropy's mirror image as bonus: the value is ``-gap`` and the pull is 1 at any confidence.

    .. math:: \varphi(p) = -\log p + \log\max(1-p, \epsilon)

    Past the clamp (a gap above 11.5 for the paper's ``eps=1e-5``) the bonus is constant and the pull is
    cross-entropy's. ``eps=0`` is the exact loss: it has no minimum.

    Args:
        eps: Where 1 - p is clamped, at least 0 and below 1; 0 for no clamp.

    Raises:
        CurveError: ``eps`` is outside its range.

    >>> Normal().pull(torch.tensor([-3.0, 3.0, 12.0]))
    tensor([1.0000e+00, 1.0000e+00, 6.1442e-06])
    >>> Normal(eps=0).pull(torch.tensor([-3.0, 3.0, 12.0]))
    tensor([1., 1., 1.])
    """

    name: ClassVar[str] = "normal"
    eps: float = 1e-5

    def __post_init__(self) -> None:
        check_parameter(self.name, "eps", self.eps, low=0, high=1, high_is_allowed=False, meaning=_CLAMP)

    @property
    def form_below_half(self) -> str | None:
        return "line" if self.eps < 0.5 else None

    def value(self, gap: Tensor) -> Tensor:
        return torch.where(gap <= clamp_edge(self.eps), -gap, nll(gap) + log_or_minus_infinity(self.eps))

    def pull(self, gap: Tensor) -> Tensor:
        return torch.sigmoid(-gap).masked_fill(gap <= clamp_edge(self.eps), 1.0)


@dataclass(frozen=True, repr=False)
class Conservative(Curve):
    r"""The log bonus up to p = ``log_end``, then its tangent: a pull of 1 up to there, and a smaller one after.

    .. math:: \varphi(p) = -\log p + \begin{cases} \log(1-p) & p \le e \\
        \log(1-e) - (p-e)/(1-e) & p > e \end{cases}

    Args:
        log_end: The probability :math:`e` at which the log bonus becomes a line, at least 0 and below 1. For 1 use
            ``curves.normal()``.

    Raises:
        CurveError: ``log_end`` is outside its range.

    >>> Conservative(0.75).value(torch.tensor(1.0)).item()  # p = 0.73: still the log part
    -1.0
    >>> Conservative(0.75).pull(torch.tensor([1.0, 3.0]))   # p = 0.73, 0.95
    tensor([1.0000, 0.2281])
    """

    name: ClassVar[str] = "conservative"
    log_end: float = 0.75

    def __post_init__(self) -> None:
        if isinstance(self.log_end, int | float) and self.log_end == 1:
            raise CurveError("conservative(log_end=1): expected 0 <= log_end < 1, the probability at which the log "
                             "bonus becomes a line. For log_end=1 use curves.normal().")
        check_parameter(self.name, "log_end", self.log_end, low=0, high=1, high_is_allowed=False,
                        meaning="the probability at which the log bonus becomes a line")

    @property
    def form_below_half(self) -> str | None:
        return "line" if self.log_end >= 0.5 else None

    def value(self, gap: Tensor) -> Tensor:
        remainder, normal = 1 - self.log_end, -gap
        # (p - e) / (1 - e) is 1 - q / (1 - e): nothing cancels as p and e approach 1.
        tangent = torch.add(nll(gap), torch.sigmoid(normal), alpha=1 / remainder) + (math.log(remainder) - 1)
        return torch.where(gap <= logit(self.log_end), normal, tangent)

    def pull(self, gap: Tensor) -> Tensor:
        p, q = torch.sigmoid(gap), torch.sigmoid(-gap)
        tangent = torch.addcmul(q, q, p, value=1 / (1 - self.log_end))
        return tangent.masked_fill(gap <= logit(self.log_end), 1.0)


@dataclass(frozen=True, repr=False)
class Aggressive(Curve):
    r"""The normal bonus for well-classified examples only: from p = ``start`` on, shifted so that it begins at 0.

    .. math:: \varphi(p) = -\log p + [p \ge s]\,(\log\max(1-p, \epsilon) - \log(1-s))

    Args:
        start: The probability :math:`s` from which examples are rewarded, at least 0 and below ``1 - eps``.
        eps: Where 1 - p is clamped, at least 0 and below 1; 0 for no clamp.

    Raises:
        CurveError: A parameter is outside its range.

    >>> Aggressive(0.5).pull(torch.tensor([-1.0, 1.0, 12.0]))
    tensor([7.3106e-01, 1.0000e+00, 6.1442e-06])
    """

    name: ClassVar[str] = "aggressive"
    start: float = 0.5
    eps: float = 1e-5

    def __post_init__(self) -> None:
        check_parameter(self.name, "eps", self.eps, low=0, high=1, high_is_allowed=False, meaning=_CLAMP)
        check_parameter(self.name, "start", self.start, low=0, high=1 - self.eps, high_is_allowed=False,
                        meaning="the probability from which examples are rewarded, below the clamp at 1 - eps")

    def value(self, gap: Tensor) -> Tensor:
        cross_entropy = nll(gap)
        shift = math.log1p(-self.start)
        clamped = cross_entropy + (log_or_minus_infinity(self.eps) - shift)
        rewarded = torch.where(gap <= clamp_edge(self.eps), -gap - shift, clamped)
        return torch.where(gap >= logit(self.start), rewarded, cross_entropy)

    def pull(self, gap: Tensor) -> Tensor:
        full = (gap >= logit(self.start)) & (gap <= clamp_edge(self.eps))
        return torch.sigmoid(-gap).masked_fill(full, 1.0)


def encouraging(log_end: float = 0.75, eps: float = 1e-5) -> Conservative | Normal:
    """The encouraging loss: the conservative bonus below ``log_end=1``, the normal bonus (with its clamp) at 1.

    Args:
        log_end: The probability, from 0 to 1, at which the log bonus becomes a line; 1 for never.
        eps: Where 1 - p is clamped, at least 0 and below 1; used only where ``log_end`` is 1.

    Returns:
        ``conservative(log_end)``, or ``normal(eps)`` for 1.

    Raises:
        CurveError: A parameter is outside its range.

    >>> encouraging(), encouraging(1.0)
    (conservative(log_end=0.75), normal(eps=1e-05))
    """
    check_parameter("encouraging", "log_end", log_end, low=0, high=1,
                    meaning="the probability at which the log bonus becomes a line (1 for never)")
    check_parameter("encouraging", "eps", eps, low=0, high=1, high_is_allowed=False, meaning=_CLAMP)
    return Normal(eps) if log_end == 1 else Conservative(log_end)
