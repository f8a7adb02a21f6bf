"""The curves of the package in JAX: value and pull as functions of the gap, with the pull as the derivative.

The formulas follow ``encouraging.curves`` branch by branch. Comparisons read ``gap <= edge`` so that NaN takes the
branch that keeps it. Constants are Python numbers, so that the results have the gap's type.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ..curves import Curve
from ..curves._cross_entropy import CrossEntropy
from ..curves._curve import Custom, FromProbability, logit
from ..curves._fit import check_fit
from ..curves._focal import Focal, HaltedFocal, LateFocal
from ..curves._log_bonus import Aggressive, Conservative, Normal, clamp_edge, log_or_minus_infinity
from ..curves._polynomial import Poly, Power
from ..curves._square import Square
from ..errors import CurveError


def _sigmoid(x: jax.Array) -> jax.Array:
    return jax.nn.sigmoid(x)


def _sigmoid_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    p = sigmoid(primals[0])
    return p, p * sigmoid(-primals[0]) * tangents[0]


# JAX's own derivative is p * (1 - p), which is 0 from a gap of 17 on in float32.
sigmoid = jax.custom_jvp(_sigmoid)
sigmoid.defjvp(_sigmoid_jvp)


def _nll(gap: jax.Array) -> jax.Array:
    return jnp.maximum(-gap, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(gap)))


def _nll_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return nll(primals[0]), -sigmoid(-primals[0]) * tangents[0]


nll = jax.custom_jvp(_nll)  # -log p, exact at both ends
nll.defjvp(_nll_jvp)


class Formula(NamedTuple):
    """A curve's two functions. Each takes the curve and the gap."""

    value: Callable[[Any, jax.Array], jax.Array]
    pull: Callable[[Any, jax.Array], jax.Array]


def _normal_value(curve: Normal, gap: jax.Array) -> jax.Array:
    return jnp.where(gap <= clamp_edge(curve.eps), -gap, nll(gap) + log_or_minus_infinity(curve.eps))


def _normal_pull(curve: Normal, gap: jax.Array) -> jax.Array:
    return jnp.where(gap <= clamp_edge(curve.eps), 1.0, sigmoid(-gap))


def _conservative_value(curve: Conservative, gap: jax.Array) -> jax.Array:
    remainder = 1 - curve.log_end
    tangent = nll(gap) + sigmoid(-gap) * (1 / remainder) + (math.log(remainder) - 1)
    return jnp.where(gap <= logit(curve.log_end), -gap, tangent)


def _conservative_pull(curve: Conservative, gap: jax.Array) -> jax.Array:
    tangent = sigmoid(-gap) * (1 + sigmoid(gap) * (1 / (1 - curve.log_end)))
    return jnp.where(gap <= logit(curve.log_end), 1.0, tangent)


def _aggressive_value(curve: Aggressive, gap: jax.Array) -> jax.Array:
    cross_entropy, shift = nll(gap), math.log1p(-curve.start)
    clamped = cross_entropy + (log_or_minus_infinity(curve.eps) - shift)
    rewarded = jnp.where(gap <= clamp_edge(curve.eps), -gap - shift, clamped)
    return jnp.where(gap >= logit(curve.start), rewarded, cross_entropy)


def _aggressive_pull(curve: Aggressive, gap: jax.Array) -> jax.Array:
    full = (gap >= logit(curve.start)) & (gap <= clamp_edge(curve.eps))
    return jnp.where(full, 1.0, sigmoid(-gap))


def _power(curve: Power, gap: jax.Array) -> jax.Array:
    return jnp.exp(-curve.exponent * nll(gap)) if curve.exponent else jnp.ones_like(gap)


def _power_value(curve: Power, gap: jax.Array) -> jax.Array:
    return nll(gap) - curve.weight * _power(curve, gap)


def _power_pull(curve: Power, gap: jax.Array) -> jax.Array:
    return sigmoid(-gap) * (1 + curve.weight * curve.exponent * _power(curve, gap))


def _poly_pull(curve: Poly, gap: jax.Array) -> jax.Array:
    q, epsilon = sigmoid(-gap), curve.epsilon
    # 1 + epsilon p. For a negative epsilon it is written in q: near epsilon = -1 and p = 1 the terms would cancel.
    return q * (1 + epsilon * sigmoid(gap) if epsilon >= 0 else (1 + epsilon) - epsilon * q)


def _modulation(gamma: float, gap: jax.Array) -> jax.Array:
    """(1-p)^gamma through its logarithm, so that its derivative stays finite where 1 - p underflows."""
    return jnp.exp(-gamma * nll(-gap)) if gamma else jnp.ones_like(gap)


def _focal_value(curve: Focal | HaltedFocal | LateFocal, gap: jax.Array) -> jax.Array:
    return _modulation(curve.gamma, gap) * nll(gap)


def _focal_pull(curve: Focal | HaltedFocal | LateFocal, gap: jax.Array) -> jax.Array:
    # p * log p is 0 at p = 0, where its second factor is infinite.
    surprise = jnp.minimum(nll(gap), float(np.finfo(gap.dtype).max))
    return _modulation(curve.gamma, gap) * (sigmoid(-gap) + curve.gamma * sigmoid(gap) * surprise)


def _square_value(curve: Square, gap: jax.Array) -> jax.Array:
    q = sigmoid(-gap)
    return q - sigmoid(gap) if curve.bonus else q * q


def _square_pull(curve: Square, gap: jax.Array) -> jax.Array:
    p, q = sigmoid(gap), sigmoid(-gap)
    return 2 * p * q if curve.bonus else 2 * p * q * q


def _pull_from_probability(curve: FromProbability, gap: jax.Array) -> jax.Array:
    p = jnp.maximum(sigmoid(gap), float(np.finfo(gap.dtype).tiny))  # as in the curve's own pull
    slope: jax.Array = jax.jvp(curve.phi_of_p, (p,), (jnp.ones_like(p),))[1]
    return -p * sigmoid(-gap) * slope


_FORMULAS: dict[type[Curve], Formula] = {
    CrossEntropy: Formula(lambda c, gap: nll(gap), lambda c, gap: sigmoid(-gap)),
    Normal: Formula(_normal_value, _normal_pull),
    Conservative: Formula(_conservative_value, _conservative_pull),
    Aggressive: Formula(_aggressive_value, _aggressive_pull),
    Power: Formula(_power_value, _power_pull),
    Poly: Formula(lambda c, gap: nll(gap) + c.epsilon * sigmoid(-gap), _poly_pull),
    Focal: Formula(_focal_value, _focal_pull),
    HaltedFocal: Formula(
        lambda c, gap: jnp.where(gap <= logit(c.halt), _focal_value(c, gap), nll(gap) + c.shift),
        lambda c, gap: jnp.where(gap <= logit(c.halt), _focal_pull(c, gap), sigmoid(-gap))),
    LateFocal: Formula(
        lambda c, gap: jnp.where(gap < logit(c.start), nll(gap) + c.shift, _focal_value(c, gap)),
        lambda c, gap: jnp.where(gap < logit(c.start), sigmoid(-gap), _focal_pull(c, gap))),
    Square: Formula(_square_value, _square_pull),
    FromProbability: Formula(lambda c, gap: c.phi_of_p(sigmoid(gap)), _pull_from_probability),
}
_USER_CURVE = Formula(lambda c, gap: c.value(gap), lambda c, gap: c.pull(gap))


def _evaluate(curve: Curve, part: str, gap: jax.Array) -> jax.Array:
    """The value or the pull. A curve of the user's own is checked: its functions may be written for torch."""
    formula = _FORMULAS.get(type(curve), _USER_CURVE)
    function = formula.value if part == "value" else formula.pull
    if formula is not _USER_CURVE and type(curve) is not FromProbability:
        return function(curve, gap)
    try:
        result: Any = function(curve, gap)
    except (AttributeError, TypeError) as error:
        raise CurveError(f"{curve!r}: its {part} cannot be computed for a JAX array ({error}). Write the curve's "
                         "functions with jax.numpy instead of torch.") from error
    if not isinstance(result, jax.Array) or result.shape != gap.shape:
        came = f"shape {result.shape}" if isinstance(result, jax.Array) else type(result).__name__
        raise CurveError(f"{curve!r}: its {part} for gaps of shape {gap.shape} is {came}: expected a JAX array of "
                         "the same shape. Write the curve's functions with jax.numpy, element by element.")
    cast: jax.Array = result.astype(gap.dtype)
    return cast


def check_own(curve: Curve) -> None:
    """Refuse ``curves.custom`` with a pull that is not minus the derivative of its value."""
    if isinstance(curve, Custom) and curve.check:
        _check_once(curve)


@functools.lru_cache(maxsize=1024)  # only of curves to be checked: they are equal to those that are not
def _check_once(curve: Custom) -> None:
    try:
        with jax.ensure_compile_time_eval():  # the loss may be called for the first time while it is traced
            check_fit(repr(curve), lambda gap: np.asarray(_evaluate(curve, "value", jnp.asarray(gap)), np.float64),
                      lambda gap: np.asarray(_evaluate(curve, "pull", jnp.asarray(gap)), np.float64))
    except jax.errors.TracerArrayConversionError:  # a curve with a traced parameter has no numbers yet
        return


def pull(curve: Curve, gap: jax.Array) -> jax.Array:
    """Minus the derivative of the value at these gaps."""
    return _evaluate(curve, "pull", gap)


def _value(curve: Curve, gap: jax.Array) -> jax.Array:
    return _evaluate(curve, "value", gap)


def _value_jvp(curve: Curve, primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return value(curve, primals[0]), -pull(curve, primals[0]) * tangents[0]


# The loss of examples with these gaps. Its derivative is minus the pull, under every transform.
value = jax.custom_jvp(_value, nondiff_argnums=(0,))
value.defjvp(_value_jvp)


@functools.lru_cache(maxsize=1024)
def fades(curve: Curve) -> bool:
    """Whether the pull vanishes with 1 - p, within the range of float32."""
    has_formula = type(curve) in _FORMULAS and type(curve) is not FromProbability
    return has_formula and curve.pull(torch.tensor(80.0, dtype=torch.float64)).item() < 1e-30


def value_below_half(curve: Curve, log_p: jax.Array, p: jax.Array) -> jax.Array:
    """The value of classes with p <= 1/2, where 1 - p loses nothing."""
    if curve.form_below_half == "nll":
        return -log_p
    gap = log_p - jnp.log(1 - p)
    return -gap if curve.form_below_half == "line" else value(curve, gap)


def ratio_below_half(curve: Curve, log_p: jax.Array, p: jax.Array) -> jax.Array:
    """pull / (1 - p) of classes with p <= 1/2."""
    if curve.form_below_half == "nll":
        return jnp.ones_like(p)
    return 1 / (1 - p) if curve.form_below_half == "line" else pull(curve, log_p - jnp.log(1 - p)) / (1 - p)
