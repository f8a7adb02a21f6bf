"""Cross-entropy and the bonuses that revive its well-classified examples: the paper's own curves.

Everything is written in the gap. ``q = sigmoid(-gap)`` is ``1 - p`` to full relative precision at any confidence;
``1 - sigmoid(gap)`` would be exactly 0 in float32 from a gap of 17 on, which is where these losses live.
Comparisons read ``gap <= edge`` so that a NaN falls through to the branch that keeps it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import CurveError
from ._curve import Curve, check, logit, nll

_CLAMP = "the value at which 1 - p is clamped (0 for no clamp)"


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _clamp_edge(eps: float) -> float:
    """The gap past which 1 - p is below ``eps``."""
    return math.log1p(-eps) - _log(eps)


@dataclass(frozen=True, repr=False)
class CrossEntropy(Curve):
    r"""No bonus: the pull dies as the example is learned.

    .. math:: \varphi(p) = -\log p

    >>> CrossEntropy().pull(torch.tensor([0.0, 10.0]))
    tensor([5.0000e-01, 4.5398e-05])
    """

    name: ClassVar[str] = "cross_entropy"

    @property
    def early(self) -> str:
        return "nll"

    def value(self, gap: Tensor) -> Tensor:
        return nll(gap)

    def pull(self, gap: Tensor) -> Tensor:
        return torch.sigmoid(-gap)


@dataclass(frozen=True, repr=False)
class Normal(Curve):
    r"""The mirror of cross-entropy as bonus: the value is ``-gap`` and the pull is 1 at any confidence.

    .. math:: \varphi(p) = -\log p + \log\max(1-p, \epsilon)

    Past the clamp (a gap above 11.5 for the paper's ``eps=1e-5``) the bonus is constant and the pull is
    cross-entropy's. ``eps=0`` is the exact loss: it has no minimum.

    >>> Normal().pull(torch.tensor([-3.0, 3.0, 12.0]))
    tensor([1.0000e+00, 1.0000e+00, 6.1442e-06])
    >>> Normal(eps=0).pull(torch.tensor([-3.0, 3.0, 12.0]))
    tensor([1., 1., 1.])
    """

    name: ClassVar[str] = "normal"
    eps: float = 1e-5

    def __post_init__(self) -> None:
        check(self.name, "eps", self.eps, low=0, high=1, high_is_allowed=False, meaning=_CLAMP)

    @property
    def early(self) -> str | None:
        return "line" if self.eps < 0.5 else None

    def value(self, gap: Tensor) -> Tensor:
        return torch.where(gap <= _clamp_edge(self.eps), -gap, nll(gap) + _log(self.eps))

    def pull(self, gap: Tensor) -> Tensor:
        return torch.sigmoid(-gap).masked_fill(gap <= _clamp_edge(self.eps), 1.0)


@dataclass(frozen=True, repr=False)
class Conservative(Curve):
    r"""The log bonus up to ``log_end``, then its tangent: full pull until p passes it, a gentler one after.

    .. math:: \varphi(p) = -\log p + \begin{cases} \log(1-p) & p \le e \\
        \log(1-e) - (p-e)/(1-e) & p > e \end{cases}

    >>> Conservative(0.75).value(torch.tensor(1.0)).item()  # p = 0.73: still the log part
    -1.0
    >>> Conservative(0.75).pull(torch.tensor([1.0, 3.0]))   # p = 0.73, 0.95
    tensor([1.0000, 0.2281])
    """

    name: ClassVar[str] = "conservative"
    log_end: float = 0.75

    def __post_init__(self) -> None:
        if self.log_end == 1:
            raise CurveError("conservative(log_end=1): expected 0 <= log_end < 1, the probability at which the log "
                             "bonus becomes a line. For log_end=1 use curves.normal().")
        check(self.name, "log_end", self.log_end, low=0, high=1, high_is_allowed=False,
              meaning="the probability at which the log bonus becomes a line")

    @property
    def early(self) -> str | None:
        return "line" if self.log_end >= 0.5 else None

    def value(self, gap: Tensor) -> Tensor:
        rest, normal = 1 - self.log_end, -gap
        # (p - e) / (1 - e) is 1 - q / (1 - e): no cancellation as p and e near 1.
        line = torch.add(nll(gap), torch.sigmoid(normal), alpha=1 / rest) + (math.log(rest) - 1)
        return torch.where(gap <= logit(self.log_end), normal, line)

    def pull(self, gap: Tensor) -> Tensor:
        p, q = torch.sigmoid(gap), torch.sigmoid(-gap)
        line = torch.addcmul(q, q, p, value=1 / (1 - self.log_end))
        return line.masked_fill(gap <= logit(self.log_end), 1.0)


@dataclass(frozen=True, repr=False)
class Aggressive(Curve):
    r"""The normal bonus for well-classified examples alone: from p = ``start`` on, shifted to begin at 0.

    .. math:: \varphi(p) = -\log p + [p \ge s]\,(\log\max(1-p, \epsilon) - \log(1-s))

    >>> Aggressive(0.5).pull(torch.tensor([-1.0, 1.0, 12.0]))
    tensor([7.3106e-01, 1.0000e+00, 6.1442e-06])
    """

    name: ClassVar[str] = "aggressive"
    start: float = 0.5
    eps: float = 1e-5

    def __post_init__(self) -> None:
        check(self.name, "eps", self.eps, low=0, high=1, high_is_allowed=False, meaning=_CLAMP)
        check(self.name, "start", self.start, low=0, high=1 - self.eps, high_is_allowed=False,
              meaning="the probability from which examples are rewarded, below the clamp at 1 - eps")

    def value(self, gap: Tensor) -> Tensor:
        plain = nll(gap)
        begin = math.log1p(-self.start)
        rewarded = torch.where(gap <= _clamp_edge(self.eps), -gap - begin, plain + (_log(self.eps) - begin))
        return torch.where(gap >= logit(self.start), rewarded, plain)

    def pull(self, gap: Tensor) -> Tensor:
        full = (gap >= logit(self.start)) & (gap <= _clamp_edge(self.eps))
        return torch.sigmoid(-gap).masked_fill(full, 1.0)


@dataclass(frozen=True, repr=False)
class Power(Curve):
    r"""A power of p as bonus.

    .. math:: \varphi(p) = -\log p - w\,p^{k}

    >>> Power(1).pull(torch.tensor(0.0)).item()  # (1 - p)(1 + p) at p = 1/2
    0.75
    """

    name: ClassVar[str] = "power"
    exponent: float = 1.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        check(self.name, "exponent", self.exponent, low=0, meaning="the power of p that is the bonus")
        check(self.name, "weight", self.weight, low=0, meaning="the size of the bonus")

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

    >>> Poly(1.0).pull(torch.tensor(0.0)).item()
    0.75
    """

    name: ClassVar[str] = "poly"
    epsilon: float = 1.0

    def __post_init__(self) -> None:
        check(self.name, "epsilon", self.epsilon, low=-1,
              meaning="the change of the first polynomial coefficient (below -1 the loss would push labels down)")

    def value(self, gap: Tensor) -> Tensor:
        return nll(gap) + self.epsilon * torch.sigmoid(-gap)

    def pull(self, gap: Tensor) -> Tensor:
        q = torch.sigmoid(-gap)
        # 1 + epsilon p, without a difference: near epsilon = -1 and p = 1 it would cancel.
        rest = 1 + self.epsilon * torch.sigmoid(gap) if self.epsilon >= 0 else (1 + self.epsilon) - self.epsilon * q
        return q * rest


def encouraging(log_end: float = 0.75, eps: float = 1e-5) -> Conservative | Normal:
    """The encouraging loss: the conservative bonus below ``log_end=1``, the normal bonus (with its clamp) at 1.

    >>> encouraging(), encouraging(1.0)
    (conservative(log_end=0.75), normal(eps=1e-05))
    """
    check("encouraging", "log_end", log_end, low=0, high=1,
          meaning="the probability at which the log bonus becomes a line (1 for never)")
    check("encouraging", "eps", eps, low=0, high=1, high_is_allowed=False, meaning=_CLAMP)
    return Normal(eps) if log_end == 1 else Conservative(log_end)
