"""Values and pulls of classes whose p is at most 1/2, from p and log p.

A sum over the classes has p and log p of every class but the top one, and 1 - p of these is exact. From the gap a curve
would compute all three again: a logarithm and several exponentials per class.

Curves are told by their exact type: a subclass may have changed the formula.
"""

from __future__ import annotations

import math
from typing import TypeGuard

import torch
from torch import Tensor

from ._curve import Curve
from ._focal import Focal, HaltedFocal
from ._log_bonus import Aggressive, Conservative
from ._polynomial import Poly, Power


def value_below_half(curve: Curve, log_p: Tensor, p: Tensor) -> Tensor:
    """``curve.phi(p)`` for p up to 1/2.

    >>> from encouraging import curves
    >>> value_below_half(curves.focal(2.0), torch.tensor(0.5).log(), torch.tensor(0.5))  # log 2, times (1 - p) ** 2
    tensor(0.1733)
    """
    form = curve.form_below_half
    if form == "nll":
        return -log_p
    if form == "line":
        return torch.log1p(-p) - log_p
    if _is_focal(curve):
        return -log_p * _power(1 - p, curve.gamma)
    if type(curve) is Poly:
        return curve.epsilon * (1 - p) - log_p
    if type(curve) is Power:
        return -log_p - curve.weight * _power(p, curve.exponent)
    if type(curve) is Conservative:
        remainder = 1 - curve.log_end
        tangent = (1 - p) * (1 / remainder) + (math.log(remainder) - 1)
        return torch.where(p <= curve.log_end, torch.log1p(-p), tangent) - log_p
    if type(curve) is Aggressive and curve.eps < 0.5:
        return torch.where(p >= curve.start, torch.log1p(-p) - math.log1p(-curve.start), 0.0) - log_p
    return curve.value(_gap(log_p, p))


def ratio_below_half(curve: Curve, log_p: Tensor, p: Tensor) -> Tensor:
    """The pull over 1 - p, for p up to 1/2.

    >>> from encouraging import curves
    >>> ratio_below_half(curves.normal(), torch.tensor(0.2).log(), torch.tensor(0.2))  # a pull of 1
    tensor(1.2500)
    """
    form = curve.form_below_half
    if form == "nll":
        return torch.ones_like(p)
    if form == "line":
        return (1 - p).reciprocal()
    if _is_focal(curve):
        q = 1 - p
        # p log p is 0 at p = 0, where log p is infinite.
        surprise = log_p.clamp(min=torch.finfo(p.dtype).min)
        return _power(q, curve.gamma) * (1 - curve.gamma * p * surprise / q)
    if type(curve) is Poly:
        return 1 + curve.epsilon * p
    if type(curve) is Power:
        return 1 + curve.weight * curve.exponent * _power(p, curve.exponent)
    if type(curve) is Conservative:
        return torch.where(p <= curve.log_end, (1 - p).reciprocal(), 1 + p * (1 / (1 - curve.log_end)))
    if type(curve) is Aggressive and curve.eps < 0.5:
        return torch.where(p >= curve.start, (1 - p).reciprocal(), 1.0)
    return curve.pull(_gap(log_p, p)) / (1 - p)


def _power(base: Tensor, exponent: float) -> Tensor:
    """``base ** exponent``, for a base from 0 to 1."""
    if exponent == 2:
        return base.square()
    if not torch.compiler.is_compiling():
        return base**exponent
    # A compiler makes an input of a number that a schedule changes, but not of the exponent of a power: it would
    # compile each value anew.
    return (exponent * base.log()).exp() if exponent else torch.ones_like(base)


def _is_focal(curve: Curve) -> TypeGuard[Focal | HaltedFocal]:
    """Whether it is focal loss for p up to 1/2."""
    return type(curve) is Focal or (type(curve) is HaltedFocal and curve.halt > 0.5)


def _gap(log_p: Tensor, p: Tensor) -> Tensor:
    return log_p - torch.log1p(-p)
