"""Value and pull of a curve together, for columns so short that the number of operations decides the time.

The two share sigmoids, logarithms and comparisons. Each function here gives the same bits as the curve's ``value`` and
``pull``, in fewer operations. Its constants are tensors: torch would convert a Python number in every call, which takes
as long as an operation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch import Tensor

from ._cross_entropy import CrossEntropy
from ._curve import Curve, logit
from ._focal import Focal
from ._log_bonus import Conservative, Normal, clamp_edge, log_or_minus_infinity
from ._polynomial import Poly

_softplus = torch._C._nn.softplus  # skips the Python wrapper, which looks for overrides


def value_and_pull(curve: Curve, gap: Tensor) -> tuple[Tensor, Tensor]:
    """``curve.value(gap), curve.pull(gap)`` of an ordinary tensor on the CPU, for a caller that needs no derivatives.

    Where a mode of torch is active, such as ``FakeTensorMode``, it must not be called: the constants that are kept
    would be the mode's own tensors.

    >>> from encouraging import curves
    >>> value_and_pull(curves.conservative(0.75), torch.tensor([1.0, 3.0]))
    (tensor([-1.0000, -2.1480]), tensor([1.0000, 0.2281]))
    """
    together = _TOGETHER.get(type(curve))  # the exact type: a subclass may have changed the formula
    return (curve.value(gap), curve.pull(gap)) if together is None else together(curve, gap)


def value_of_many(curve: Curve, gap: Tensor) -> Tensor:
    """``curve.value(gap)`` up to rounding, of so many gaps on a CPU that the time per number decides, for a caller that
    needs no derivatives. torch's ``where`` takes 3 ns per number there if its mask is irregular, ``clamp`` 0.1.

    >>> from encouraging import curves
    >>> value_of_many(curves.conservative(0.75), torch.tensor([1.0, 3.0]))
    tensor([-1.0000, -2.1480])
    """
    if _has_near_edge(curve):
        edge, remainder = logit(curve.log_end), 1 - curve.log_end
        past = gap.clamp(min=edge).neg_()
        tangent = _softplus(past, 1, 40).add_(past.sigmoid_(), alpha=1 / remainder)
        return tangent.sub_(gap.clamp(max=edge)).add_(math.log(remainder) - 1 + edge)
    if _is_focal(curve):
        minus = gap.neg()
        return _softplus(minus, 1, 40).mul_(minus.sigmoid_().pow_(curve.gamma))
    return curve.value(gap)


def pull_of_many(curve: Curve, gap: Tensor) -> Tensor:
    """``curve.pull(gap)``, as :func:`value_of_many`."""
    if _has_near_edge(curve):
        past = gap.clamp(min=logit(curve.log_end))
        q = past.neg().sigmoid_()
        return torch.addcmul(q, q, past.sigmoid_(), value=1 / (1 - curve.log_end))
    if _is_focal(curve):
        minus = gap.neg()
        # p * log p is 0 at p = 0, where its second factor is infinite.
        surprise = _softplus(minus, 1, 40).clamp_(max=torch.finfo(gap.dtype).max)
        q = minus.sigmoid_()
        return surprise.mul_(gap.sigmoid()).mul_(curve.gamma).add_(q).mul_(q.pow_(curve.gamma))
    return curve.pull(gap)


# The exact types: a subclass may have changed the formula.


def _has_near_edge(curve: Curve) -> TypeGuard[Conservative]:
    """Whether it has an edge, so near 0 that adding and subtracting it costs no digits."""
    return type(curve) is Conservative and 0.02 <= curve.log_end <= 0.98


def _is_focal(curve: Curve) -> TypeGuard[Focal]:
    return type(curve) is Focal and curve.gamma > 0


@functools.lru_cache(maxsize=1024)
def constant(number: float, dtype: torch.dtype) -> Tensor:
    """The number as a tensor of shape (). It is never an inference tensor, so that autograd can save it."""
    with torch.inference_mode(False):
        return torch.tensor(number, dtype=dtype, device="cpu")


def _cross_entropy(curve: CrossEntropy, gap: Tensor) -> tuple[Tensor, Tensor]:
    minus = gap.neg()
    return _softplus(minus, 1, 40), minus.sigmoid()


def _normal(curve: Normal, gap: Tensor) -> tuple[Tensor, Tensor]:
    edge, floor, one = _normal_constants(curve.eps, gap.dtype)
    minus = gap.neg()
    within = gap.le(edge)
    clamped = _softplus(minus, 1, 40).add_(floor)
    return torch.where(within, minus, clamped), torch.where(within, one, minus.sigmoid())


def _conservative(curve: Conservative, gap: Tensor) -> tuple[Tensor, Tensor]:
    edge, shift, one, slope = _conservative_constants(curve.log_end, gap.dtype)
    minus = gap.neg()
    q = minus.sigmoid()
    within = gap.le(edge)
    tangent = _softplus(minus, 1, 40).add_(q, alpha=slope).add_(shift)
    return (torch.where(within, minus, tangent),
            torch.where(within, one, torch.addcmul(q, q, gap.sigmoid(), value=slope)))


@functools.lru_cache(maxsize=256)
def _normal_constants(eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    return (constant(clamp_edge(eps), dtype), constant(log_or_minus_infinity(eps), dtype), constant(1.0, dtype))


@functools.lru_cache(maxsize=256)
def _conservative_constants(log_end: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, float]:
    remainder = 1 - log_end
    return (constant(logit(log_end), dtype), constant(math.log(remainder) - 1, dtype), constant(1.0, dtype),
            1 / remainder)


def _focal(curve: Focal, gap: Tensor) -> tuple[Tensor, Tensor]:
    modulation, minus, dtype = curve._modulation(gap), gap.neg(), gap.dtype
    surprise = _softplus(minus, 1, 40)
    factor = gap.sigmoid().mul_(constant(curve.gamma, dtype)).mul_(
        surprise.minimum(constant(torch.finfo(dtype).max, dtype)))
    return modulation * surprise, factor.add_(minus.sigmoid()).mul_(modulation)


def _poly(curve: Poly, gap: Tensor) -> tuple[Tensor, Tensor]:
    minus = gap.neg()
    q = minus.sigmoid()
    return _softplus(minus, 1, 40).add_(q * constant(curve.epsilon, gap.dtype)), curve.pull(gap)


_TOGETHER: dict[type[Curve], Callable[[Any, Tensor], tuple[Tensor, Tensor]]] = {
    CrossEntropy: _cross_entropy, Normal: _normal, Conservative: _conservative, Focal: _focal, Poly: _poly,
}
