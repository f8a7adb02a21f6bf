"""From logits to losses in JAX, along any axis: the label's gap, or the sum of all classes' values.

In that sum every class has a *mass*: its probability in the target, times its class weight.

The gap comes from the rivals alone, in two parts (the highest rival, and the sum of the exponentials relative to it),
as in ``encouraging.links``. Derivatives have a closed form that JAX can transform further; nothing is scattered, so
that XLA fuses the gradient into one pass over the logits.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from ..curves import Curve
from ._jax_curves import fades, nll, pull, ratio_below_half, sigmoid, value, value_below_half


def is_label(logits: jax.Array, label: jax.Array, axis: int) -> jax.Array:
    """True at each row's label. ``label`` has size 1 along the axis; a label that names no class is nowhere."""
    return lax.broadcasted_iota(label.dtype, logits.shape, axis) == label


def _names_a_class(label: jax.Array, classes: int) -> jax.Array:
    return (label >= 0) & (label < classes)


def _rival_weights(logits: jax.Array, label: jax.Array, axis: int,
                   from_top: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A base, the rivals' exponentials relative to it (0 for the label), and the sum of these, which is 0 where all
    rivals are at -inf. The base is the highest rival's logit; the highest logit of all where ``from_top``."""
    rivals = jnp.where(is_label(logits, label, axis), -jnp.inf, logits)
    base = lax.stop_gradient(jnp.max(logits if from_top else rivals, axis, keepdims=True))
    base = jnp.where(base == -jnp.inf, 0.0, base)
    weights = jnp.exp(rivals - base)
    return base, weights, jnp.sum(weights, axis, keepdims=True)


def _label_gap(axis: int, from_top: bool, logits: jax.Array, label: jax.Array) -> jax.Array:
    base, _, total = _rival_weights(logits, label, axis, from_top)
    label_logit = jnp.take_along_axis(logits, label, axis, mode="clip")
    # A logit of +inf has no gap, as in torch and JAX; a label that names no class has none either.
    has_gap = _names_a_class(label, logits.shape[axis]) & (label_logit != jnp.inf)
    return jnp.where(has_gap, label_logit, jnp.nan) - base - jnp.log(total)


def _label_gap_jvp(axis: int, from_top: bool, primals: tuple[jax.Array, jax.Array],
                   tangents: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    logits, label = primals
    tangent = tangents[0]
    # Not from the top: a small sum would underflow when this quotient is differentiated.
    _, weights, total = _rival_weights(logits, label, axis, from_top=False)
    total = jnp.where(total == 0, 1.0, total)
    label_tangent = jnp.sum(jnp.where(is_label(logits, label, axis), tangent, 0.0), axis, keepdims=True)
    rival_tangent = jnp.sum(weights * tangent, axis, keepdims=True) / total
    return label_gap(axis, from_top, logits, label), label_tangent - rival_tangent


# The label's logit minus the rivals' logsumexp. The derivative is 1 on the label, and minus the softmax over the rivals
# on the others.
label_gap = jax.custom_jvp(_label_gap, nondiff_argnums=(0, 1))
label_gap.defjvp(_label_gap_jvp)


def label_values(logits: jax.Array, label: jax.Array, curve: Curve, axis: int) -> jax.Array:
    """``phi(p_y)``, with size 1 along the axis."""
    return value(curve, label_gap(axis, False, logits, label))


class _Classes(NamedTuple):
    """What sums over all classes need. All classes but the top class have p <= 1/2, where log(1 - p) is exact; the top
    class takes its gap from its own rivals."""

    top_class: jax.Array
    on_top: jax.Array   # where the top class is
    gap: jax.Array      # of the top class
    log_p: jax.Array    # of the other classes; any finite number for the top class
    p: jax.Array        # of the other classes, 0 for the top class
    weights: jax.Array  # p relative to that of the base
    p_of_base: jax.Array
    scale: jax.Array    # 1 / the sum of the weights: a weight times this is the softmax over the top class's rivals


def _classes(logits: jax.Array, curve: Curve, axis: int) -> _Classes:
    class_index = lax.broadcasted_iota(jnp.int32, logits.shape, axis)
    highest = lax.stop_gradient(jnp.max(logits, axis, keepdims=True))
    # Not argmax, which XLA computes slowly on a CPU. A row with NaN has no top class, and only NaN as its losses.
    top_class = jnp.min(jnp.where(logits == highest, class_index, logits.shape[axis]), axis, keepdims=True)
    on_top = class_index == top_class
    from_top = fades(curve)  # then the pull underflows too where the rivals do, relative to the top class
    gap = label_gap(axis, from_top, logits, top_class)
    base, weights, total = _rival_weights(logits, top_class, axis, from_top)
    log_p_of_top = -nll(gap)
    top_logit = jnp.take_along_axis(logits, top_class, axis, mode="clip")
    log_p = jnp.where(on_top, -1.0, (logits - top_logit) + log_p_of_top)
    p_of_base = jnp.exp((base - top_logit) + log_p_of_top)
    if from_top:  # as a quotient it would underflow when it is differentiated
        scale = jnp.exp(jnp.minimum(gap + (base - top_logit), 0.9 * math.log(np.finfo(logits.dtype).max)))
    else:
        scale = 1 / jnp.where(total == 0, 1.0, total)
    return _Classes(top_class, on_top, gap, log_p, weights * p_of_base, weights, p_of_base, scale)


def _mass_values(axis: int, curve: Curve, logits: jax.Array, mass: jax.Array) -> jax.Array:
    return jnp.sum(weighted(mass, _class_values(_classes(logits, curve, axis), curve)), axis, keepdims=True)


def _class_values(classes: _Classes, curve: Curve) -> jax.Array:
    return jnp.where(classes.on_top, value(curve, classes.gap), value_below_half(curve, classes.log_p, classes.p))


def _mass_gradient(axis: int, curve: Curve, logits: jax.Array, mass: jax.Array) -> jax.Array:
    """``p_j sum_k u_k r_k - u_j r_j`` with ``r = pull / (1 - p)``. The top class is treated separately, because its
    1 - p may be 0."""
    classes = _classes(logits, curve, axis)
    ratio = jnp.where(classes.on_top, 0.0, mass * ratio_below_half(curve, classes.log_p, classes.p))
    ratios = jnp.sum(ratio, axis, keepdims=True)
    pull_of_top = pull(curve, classes.gap) * jnp.take_along_axis(mass, classes.top_class, axis, mode="clip")
    on_others = ratios * classes.p_of_base + pull_of_top * classes.scale
    return jnp.where(classes.on_top, ratios * sigmoid(classes.gap) - pull_of_top, classes.weights * on_others - ratio)


def _mass_values_jvp(axis: int, curve: Curve, primals: tuple[jax.Array, jax.Array],
                     tangents: tuple[Any, Any]) -> tuple[jax.Array, Any]:
    logits, mass = primals
    logits_tangent, mass_tangent = tangents
    terms = []
    if not isinstance(logits_tangent, SymbolicZero):
        terms.append(_mass_gradient(axis, curve, logits, mass) * logits_tangent)
    if not isinstance(mass_tangent, SymbolicZero):
        values = _class_values(_classes(logits, curve, axis), curve)
        terms.append(jnp.where((mass == 0) & jnp.isinf(values), 0.0, values) * mass_tangent)
    tangent = sum(terms[1:], terms[0])
    return mass_values(axis, curve, logits, mass), jnp.sum(tangent, axis, keepdims=True)


# ``sum_k u_k phi(p_k)``, with size 1 along the axis. A class without mass adds nothing, even where its value is
# infinite.
mass_values = jax.custom_jvp(_mass_values, nondiff_argnums=(0, 1))
mass_values.defjvp(_mass_values_jvp, symbolic_zeros=True)


def target_mass(logits: jax.Array, labels: jax.Array, weight: jax.Array | None, included: jax.Array | None,
                label_smoothing: float, axis: int) -> jax.Array:
    """The mass of every class: labels (with size 1 along the axis) or probabilities, smoothed over the classes that
    count, times the weights of the classes."""
    classes = logits.shape[axis]
    if jnp.issubdtype(labels.dtype, jnp.floating):
        mass = labels
    else:
        mass = jnp.where(is_label(logits, labels, axis), jnp.ones_like(logits), 0.0)
        mass = jnp.where(_names_a_class(labels, classes), mass, jnp.nan)
    count: Any = classes
    if included is not None and included.shape[axis] > 1:
        count = jnp.maximum(jnp.sum(included, axis, keepdims=True, dtype=logits.dtype), 1.0)
    if label_smoothing:
        mass = mass * (1 - label_smoothing) + label_smoothing / count
    if included is not None:
        mass = jnp.where(included, mass, 0.0)
    return mass if weight is None else mass * weight


def weighted(weight: jax.Array, values: jax.Array) -> jax.Array:
    """Their product, which is 0 where the weight is 0, even for an infinite value."""
    return weight * jnp.where((weight == 0) & jnp.isinf(values), 0.0, values)
