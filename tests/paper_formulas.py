"""The paper's formulas as it prints them, in p: for torch in float64 with autograd, and for mpmath to any precision.

Nothing here knows the gap. Each formula is a list of terms, whose sum is the loss; the terms' sizes say how exact a sum
of rounded terms can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import torch
from torch import Tensor

from encouraging import curves

ALL_CURVES = [
    curves.cross_entropy(), curves.normal(), curves.normal(0), curves.conservative(0), curves.conservative(0.5),
    curves.conservative(), curves.conservative(0.999), curves.aggressive(0), curves.aggressive(0.5),
    curves.aggressive(0.7, 0), curves.power(), curves.power(2.5, 0.5), curves.power(0.5, 2.0), curves.poly(),
    curves.poly(-1.0), curves.poly(2.5), curves.focal(0), curves.focal(0.5), curves.focal(2.0),
    curves.halted_focal(2.0, 0.5), curves.halted_focal(0.5, 0.3), curves.square(), curves.square(True)]


def _number_where(condition: bool, yes: Any, no: Any) -> Any:
    return yes if condition else no


def terms(curve: curves.Curve, p: Any, *, log: Callable[[Any], Any] = torch.log,
          where: Callable[..., Any] = torch.where) -> list[Any]:
    """phi(p) of a curve as a list of terms."""
    q, k = 1 - p, curve.params
    plain = -log(p)
    match curve.name:
        case "cross_entropy":
            return [plain]
        case "normal":
            clamped = k["eps"] > 0 and where(q < k["eps"], q * 0 + k["eps"], q)
            return [plain, log(clamped if k["eps"] else q)]
        case "conservative":
            end = k["log_end"]
            return [plain, where(p <= end, log(q), -(p - end) / (1 - end) + math.log(1 - end))]
        case "aggressive":
            clamped = where(q < k["eps"], q * 0 + k["eps"], q) if k["eps"] else q
            return [plain, where(p >= k["start"], log(clamped) - math.log(1 - k["start"]), q * 0)]
        case "power":
            return [plain, -k["weight"] * p ** k["exponent"]]
        case "poly":
            return [plain, k["epsilon"] * q]
        case "focal":
            return [q ** k["gamma"] * plain]
        case "halted_focal":
            shift = (1 - (1 - k["halt"]) ** k["gamma"]) * math.log(k["halt"])
            easy = p > k["halt"]
            return [where(easy, plain, q ** k["gamma"] * plain), where(easy, q * 0 + shift, q * 0)]
        case "square":
            return [q**2, -p**2] if k["bonus"] else [q**2]
    raise AssertionError(f"no formula for {curve!r}")


def phi(curve: curves.Curve, p: Tensor) -> Tensor:
    return sum(terms(curve, p)[1:], terms(curve, p)[0])


def edges(curve: curves.Curve) -> list[float]:
    """The gaps at which the curve's parts meet; its pull may jump there, and rounding may choose the other side."""
    k = curve.params
    probabilities = [k[name] for name in ("log_end", "start", "halt") if name in k]
    probabilities += [1 - k["eps"]] if k.get("eps") else []
    return [math.log(p / (1 - p)) for p in probabilities if 0 < p < 1]


def degree(curve: curves.Curve) -> float:
    """The highest power of p or 1 - p in the value or the pull: so many times is the gap's own rounding seen."""
    k = curve.params
    return 2 + k.get("gamma", 0) + k.get("exponent", 0)


# To 50 digits. 1 - p of a gap of 700 begins at the 305th digit, its square at the 609th.
DIGITS = 700


class Exact:
    """A row of logits in exact arithmetic: every class's probability, phi(p) and their derivatives in the logits."""

    def __init__(self, logits: list[float], curve: curves.Curve, digits: int = DIGITS) -> None:
        self.digits = digits
        with mpmath.workdps(digits):
            weights = [mpmath.exp(mpmath.mpf(z)) for z in logits]
            total = mpmath.fsum(weights)
            self.p = [w / total for w in weights]
            self.q = [mpmath.fsum(weights[:k] + weights[k + 1:]) / total for k in range(len(weights))]
            self.curve = curve
            self.gaps = [float(mpmath.log(p / q)) for p, q in zip(self.p, self.q, strict=True)]

    def value(self, k: int) -> tuple[Any, float]:
        """phi(p_k), and the sum of its terms' sizes."""
        with mpmath.workdps(self.digits):
            parts = terms(self.curve, self.p[k], log=mpmath.log, where=_number_where)
            return mpmath.fsum(parts), float(mpmath.fsum(abs(part) for part in parts))

    def pull(self, k: int) -> Any:
        """-p (1-p) phi'(p), each phi' by hand."""
        with mpmath.workdps(self.digits):
            return -self.p[k] * self.q[k] * self._steepness(self.p[k], self.q[k])

    def derivative(self, k: int, j: int) -> Any:
        """d phi(p_k) / d z_j: d p_k / d z_j is p_k (1 - p_k) for j = k and -p_k p_j else."""
        with mpmath.workdps(self.digits):
            by_logit = self.q[k] if j == k else -self.p[j]
            return self._steepness(self.p[k], self.q[k]) * self.p[k] * by_logit

    def _steepness(self, p: Any, q: Any) -> Any:
        k, plain = self.curve.params, -1 / p
        match self.curve.name:
            case "cross_entropy":
                return plain
            case "normal":
                return plain - (1 / q if q >= k["eps"] else 0)
            case "conservative":
                return plain - (1 / q if p <= k["log_end"] else 1 / (1 - mpmath.mpf(k["log_end"])))
            case "aggressive":
                return plain - (1 / q if p >= k["start"] and q >= k["eps"] else 0)
            case "power":
                return plain - k["weight"] * k["exponent"] * p ** (k["exponent"] - 1)
            case "poly":
                return plain - k["epsilon"]
            case "focal":
                return _focal_steepness(p, q, k["gamma"])
            case "halted_focal":
                return plain if p > k["halt"] else _focal_steepness(p, q, k["gamma"])
            case "square":
                return mpmath.mpf(-2) if k["bonus"] else -2 * q
        raise AssertionError(f"no formula for {self.curve!r}")


def _focal_steepness(p: Any, q: Any, gamma: float) -> Any:
    return gamma * q ** (gamma - 1) * mpmath.log(p) - q**gamma / p
