"""Value and pull of a curve together, for columns so short that the number of operations decides the time.

The two share sigmoids, logarithms and comparisons. Each function here gives the same bits as the curve's ``value`` and
``pull``, in fewer operations. Its constants are tensors: torch would convert a Python number in every call, which takes
as long as an operation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

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
