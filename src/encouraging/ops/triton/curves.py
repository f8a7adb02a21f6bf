"""The curves of the package for the kernels: constants from the host, mathematics on the device.

``constants`` turns a curve into the number of its formula and up to four floats; ``curve_at`` is that formula. Both
follow ``encouraging.curves`` branch by branch: the comparisons read ``gap <= edge`` so that a NaN stays a NaN.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...curves._cross_entropy import CrossEntropy
from ...curves._curve import Curve, logit
from ...curves._focal import Focal, HaltedFocal, LateFocal
from ...curves._log_bonus import Aggressive, Conservative, Normal, clamp_edge, log_or_minus_infinity
from ...curves._polynomial import Poly, Power
from ...curves._square import Square
from .maths import INF, LN2, LOG2E, difference, exp_of_minus, log, log1p, log1p_of_any, log_of_rest

CROSS_ENTROPY = tl.constexpr(0)
NORMAL = tl.constexpr(1)
CONSERVATIVE = tl.constexpr(2)
AGGRESSIVE = tl.constexpr(3)
POWER = tl.constexpr(4)
POLY = tl.constexpr(5)
FOCAL = tl.constexpr(6)
HALTED_FOCAL = tl.constexpr(7)
SQUARE = tl.constexpr(8)
SQUARE_BONUS = tl.constexpr(9)
GAP = tl.constexpr(10)
FOCAL_OF_2 = tl.constexpr(11)  # the usual gamma, whose power is a product
LATE_FOCAL = tl.constexpr(12)
HALTED_FOCAL_OF_2 = tl.constexpr(13)
MIRROR = tl.constexpr(14)

# What a curve is at p <= 1/2, where all classes but one are: smoothing is cheap for the first two.
LIKE_CROSS_ENTROPY = tl.constexpr(0)  # value -log p, pull 1 - p
LIKE_NORMAL = tl.constexpr(1)         # value -gap, pull 1
LIKE_ITSELF = tl.constexpr(2)
_TAILS = {"nll": LIKE_CROSS_ENTROPY.value, "line": LIKE_NORMAL.value, None: LIKE_ITSELF.value}


class Constants(NamedTuple):
    """A curve as the kernels see it."""

    kind: int
    tail: int
    k0: float = 0.0
    k1: float = 0.0
    k2: float = 0.0
    k3: float = 0.0

    @property
    def unbounded(self) -> bool:
        """Whether the pull stays 1 however certain a class is, past where 1 - p is 0 in float32."""
        edges = {NORMAL.value: self.k0, AGGRESSIVE.value: self.k1}
        return edges.get(self.kind, 0.0) > 80

    @property
    def below_largest(self) -> int:
        """What the curve is for classes whose logit is smaller than the largest, which have p < 1/2. A bonus that
        starts at p = 1/2 or later is not theirs; at p = 1/2 itself it is, so that this is no ``tail``."""
        late = self.kind == AGGRESSIVE.value and self.k0 >= 0 and not self.unbounded
        return LIKE_CROSS_ENTROPY.value if late else self.tail


class Gap(Curve):
    """The gap itself as a loss: from it, a curve without a formula here is computed on one number per row."""

    name = "gap"

    def value(self, gap: Tensor) -> Tensor:
        return gap

    def pull(self, gap: Tensor) -> Tensor:
        return torch.full_like(gap, -1.0)


@dataclass(frozen=True, repr=False)
class Mirror(Curve):
    """``slope * (1 - p) - base``: with 4 and the number of classes, the squared errors of all classes of a row and
    their mirrors, where the target is a label. Each is linear in its p, and the probabilities sum to 1."""

    name = "mirror"
    slope: float
    base: float

    def value(self, gap: Tensor) -> Tensor:
        return self.slope * torch.sigmoid(-gap) - self.base

    def pull(self, gap: Tensor) -> Tensor:
        return self.slope * torch.sigmoid(gap) * torch.sigmoid(-gap)


def _normal(curve: Normal) -> Constants:
    tail = _TAILS[curve.form_below_half]
    return Constants(NORMAL.value, tail, clamp_edge(curve.eps), log_or_minus_infinity(curve.eps))


def _conservative(curve: Conservative) -> Constants:
    tail, remainder = _TAILS[curve.form_below_half], 1 - curve.log_end
    return Constants(CONSERVATIVE.value, tail, logit(curve.log_end), 1 / remainder, math.log(remainder) - 1)


def _aggressive(curve: Aggressive) -> Constants:
    begin = math.log1p(-curve.start)
    return Constants(AGGRESSIVE.value, LIKE_ITSELF.value, logit(curve.start), clamp_edge(curve.eps), begin,
                     log_or_minus_infinity(curve.eps) - begin)


_CONSTANTS: dict[type[Curve], Callable[[Any], Constants]] = {
    CrossEntropy: lambda c: Constants(CROSS_ENTROPY.value, LIKE_CROSS_ENTROPY.value),
    Normal: _normal,
    Conservative: _conservative,
    Aggressive: _aggressive,
    Power: lambda c: Constants(POWER.value, LIKE_ITSELF.value, float(c.exponent), float(c.weight)),
    Poly: lambda c: Constants(POLY.value, LIKE_ITSELF.value, float(c.epsilon), 1.0 + c.epsilon),
    Focal: lambda c: Constants((FOCAL_OF_2 if c.gamma == 2 else FOCAL).value, LIKE_ITSELF.value, float(c.gamma)),
    HaltedFocal: lambda c: Constants((HALTED_FOCAL_OF_2 if c.gamma == 2 else HALTED_FOCAL).value, LIKE_ITSELF.value,
                                     float(c.gamma), logit(c.halt), c.shift, float(c.halt)),
    LateFocal: lambda c: Constants(LATE_FOCAL.value, LIKE_ITSELF.value, float(c.gamma), logit(c.start), c.shift),
    Square: lambda c: Constants((SQUARE_BONUS if c.bonus else SQUARE).value, LIKE_ITSELF.value),
    Gap: lambda c: Constants(GAP.value, LIKE_ITSELF.value),
    Mirror: lambda c: Constants(MIRROR.value, LIKE_ITSELF.value, c.slope, c.base),
}


@lru_cache(maxsize=1024)
def constants(curve: Curve) -> Constants:
    """The curve as the kernels see it."""
    return _CONSTANTS[type(curve)](curve)


@triton.jit
def chances(z, top, rival_sum):
    """What one class is against its rivals, of which the largest has the logit ``top`` and the sum of exp(z - top) is
    ``rival_sum``: the gap, p, 1 - p, -log p, log(1 - p), and the largest rival's probability with its logarithm.

    All to full relative precision at any gap: none is made from the rounded gap, and each logarithm is the larger
    logit's distance plus one small logarithm. An infinite logit has no probability, as in torch.
    """
    ahead, lost = difference(tl.where(z == INF, float("nan"), z), top)
    leads = ahead >= 0
    gap = ahead + (lost - log(rival_sum))
    x = exp_of_minus(tl.abs(ahead))
    x *= tl.where(leads, 1.0 - lost, 1.0 + lost)
    own = tl.where(leads, 1.0, x)
    others = tl.where(leads, rival_sum * x, rival_sum)
    over = 1.0 / (own + others)
    p, q = own * over, others * over
    excess = log1p_of_any(tl.where(leads, others, (rival_sum - 1.0) + x))
    surprise = tl.where(leads, excess, (excess - lost) - ahead)
    log_top_p = tl.where(rival_sum == 0.0, -INF, -tl.where(leads, (excess + lost) + ahead, excess))
    top_p = tl.where(rival_sum == 0.0, 0.0, tl.where(leads, x, 1.0) * over)
    ratio = tl.where(own < others, own / others, others / own)
    log_q = -log1p(ratio) - tl.where(gap > 0, gap, 0.0)
    return gap, p, q, surprise, log_q, top_p, log_top_p


@triton.jit
def curve_at(gap, p, q, surprise, log_q, k0, k1, k2, k3, KIND: tl.constexpr):
    """Value and pull of a curve. What a curve does not use of the first five, the compiler does not compute."""
    if KIND == CROSS_ENTROPY:
        value, pull = surprise, q
    elif KIND == NORMAL:
        value = tl.where(gap <= k0, -gap, surprise + k1)
        pull = tl.where(gap <= k0, 1.0, q)
    elif KIND == CONSERVATIVE:
        value = tl.where(gap <= k0, -gap, surprise + q * k1 + k2)
        pull = tl.where(gap <= k0, 1.0, q * (1.0 + p * k1))
    elif KIND == AGGRESSIVE:
        rewarded = tl.where(gap <= k1, -gap - k2, surprise + k3)
        value = tl.where(gap >= k0, rewarded, surprise)
        pull = tl.where((gap >= k0) & (gap <= k1), 1.0, q)
    elif KIND == POWER:
        power = tl.where(k0 == 0.0, 1.0, tl.exp2(-k0 * surprise * LOG2E))
        value = surprise - k1 * power
        pull = q * (1.0 + k1 * k0 * power)
    elif KIND == POLY:
        value = surprise + k0 * q
        pull = q * tl.where(k0 >= 0.0, 1.0 + k0 * p, k1 - k0 * q)  # no difference that cancels near k0 = -1
    elif KIND == SQUARE:
        value, pull = q * q, 2.0 * p * q * q
    elif KIND == SQUARE_BONUS:
        value, pull = q - p, 2.0 * p * q
    elif KIND == MIRROR:
        value, pull = k0 * q - k1, k0 * p * q
    elif KIND == GAP:
        value, pull = gap, tl.where(gap == gap, -1.0, gap)
    else:
        if KIND == FOCAL_OF_2 or KIND == HALTED_FOCAL_OF_2:  # noqa: SIM109 - Triton knows no `in`
            dimmer = q * q
        else:
            dimmer = tl.where(k0 == 0.0, 1.0, tl.exp2(k0 * log_q * LOG2E))
        # p * log p is 0 at p = 0, where its second factor is infinite.
        finite = tl.where(surprise > 3e38, 3e38, surprise)
        value = dimmer * surprise
        pull = dimmer * (q + k0 * p * finite)
        if KIND == HALTED_FOCAL or KIND == HALTED_FOCAL_OF_2:  # noqa: SIM109 - Triton knows no `in`
            value = tl.where(gap <= k1, value, surprise + k2)
            pull = tl.where(gap <= k1, pull, q)
        if KIND == LATE_FOCAL:
            value = tl.where(gap < k1, surprise + k2, value)
            pull = tl.where(gap < k1, q, pull)
    return value, pull


@triton.jit
def curve_of_rival(t, e, top_p, log_top_p, k0, k1, k2, k3, KIND: tl.constexpr):
    """Value and pull / (1 - p) of classes with p <= 1/2: p = top_p * e, where 1 - p loses nothing, and e = 2**t."""
    p = e * top_p
    q = 1.0 - p
    surprise = -(t * LN2 + log_top_p)
    log_q = log_of_rest(p)
    gap = -(surprise + log_q)
    if KIND == HALTED_FOCAL or KIND == HALTED_FOCAL_OF_2:  # noqa: SIM109 - Triton knows no `in`
        gap = tl.where(p <= k3, -INF, INF)  # only the side of the halt is asked for: no logarithm for that
    value, pull = curve_at(gap, p, q, surprise, log_q, k0, k1, k2, k3, KIND)
    return value, _over_rest(pull, p, q, surprise, k0, k1, k3, KIND)


@triton.jit
def _over_rest(pull, p, q, surprise, k0, k1, k3, KIND: tl.constexpr):
    """pull / (1 - p), without a division where 1 - p is a factor of the pull."""
    if KIND == POWER:
        over = 1.0 + k1 * k0 * tl.where(k0 == 0.0, 1.0, tl.exp2(-k0 * surprise * LOG2E))
    elif KIND == POLY:
        over = tl.where(k0 >= 0.0, 1.0 + k0 * p, k1 - k0 * q)
    elif KIND == FOCAL_OF_2 or KIND == HALTED_FOCAL_OF_2:  # noqa: SIM109 - Triton knows no `in`
        over = q * (q + k0 * p * tl.where(surprise > 3e38, 3e38, surprise))
        if KIND == HALTED_FOCAL_OF_2:
            over = tl.where(p <= k3, over, 1.0)
    else:
        over = pull / q
    return over
