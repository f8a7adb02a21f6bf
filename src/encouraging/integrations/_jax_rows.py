"""From logits to losses in JAX, along any axis: the label's gap, or the values of all classes under a mass.

The gap comes from the rivals alone, in two parts (the highest rival, and the sum of the exponentials relative to it),
as in ``encouraging.links``. Derivatives have a closed form that JAX can transform further; nothing is scattered, so
that XLA fuses the gradient into one pass over the logits.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ..curves import Curve
from ._jax_curves import fades, nll, value, value_below_half


def is_label(logits: jax.Array, label: jax.Array, axis: int) -> jax.Array:
    """True at each row's label. ``label`` has size 1 along the axis; one that names no class is nowhere."""
    return lax.broadcasted_iota(label.dtype, logits.shape, axis) == label


def _names_a_class(label: jax.Array, classes: int) -> jax.Array:
    return (label >= 0) & (label < classes)


def _rival_weights(logits: jax.Array, label: jax.Array, axis: int,
                   from_top: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A base, the rivals' exponentials relative to it (0 for the label), and the sum of these, which is 0 where all
    rivals are at -inf. The base is the highest rival's logit; the highest logit of all where ``from_top``."""
    others = jnp.where(is_label(logits, label, axis), -jnp.inf, logits)
    base = lax.stop_gradient(jnp.max(logits if from_top else others, axis, keepdims=True))
    base = jnp.where(base == -jnp.inf, 0.0, base)
    weights = jnp.exp(others - base)
    return base, weights, jnp.sum(weights, axis, keepdims=True)


def _label_gap(axis: int, from_top: bool, logits: jax.Array, label: jax.Array) -> jax.Array:
    base, _, total = _rival_weights(logits, label, axis, from_top)
    own = jnp.take_along_axis(logits, label, axis, mode="clip")
    # A logit of +inf has no gap, as in torch and JAX; a label that names no class has none either.
    known = _names_a_class(label, logits.shape[axis]) & (own != jnp.inf)
    return jnp.where(known, own, jnp.nan) - base - jnp.log(total)


def _label_gap_jvp(axis: int, from_top: bool, primals: tuple[jax.Array, jax.Array],
                   tangents: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    logits, label = primals
    growth = tangents[0]
    _, weights, total = _rival_weights(logits, label, axis, from_top)
    total = jnp.where(total == 0, 1.0, total)
    own = jnp.sum(jnp.where(is_label(logits, label, axis), growth, 0.0), axis, keepdims=True)
    return label_gap(axis, from_top, logits, label), own - jnp.sum(weights * growth, axis, keepdims=True) / total


# The label's logit minus the rivals' logsumexp. The derivative is 1 on the label, and minus the softmax over the rivals
# on the others.
label_gap = jax.custom_jvp(_label_gap, nondiff_argnums=(0, 1))
label_gap.defjvp(_label_gap_jvp)


def _log_probs(axis: int, from_top: bool, logits: jax.Array, top_class: jax.Array) -> jax.Array:
    ahead = logits - jnp.max(logits, axis, keepdims=True)
    return ahead - nll(label_gap(axis, from_top, logits, top_class))


def _log_probs_jvp(axis: int, from_top: bool, primals: tuple[jax.Array, jax.Array],
                   tangents: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    logs = log_probs(axis, from_top, *primals)
    mean = jnp.sum(jnp.exp(logs) * tangents[0], axis, keepdims=True)
    return logs, tangents[0] - mean


log_probs = jax.custom_jvp(_log_probs, nondiff_argnums=(0, 1))  # log softmax
log_probs.defjvp(_log_probs_jvp)


def label_values(logits: jax.Array, label: jax.Array, curve: Curve, axis: int) -> jax.Array:
    """``phi(p_y)``, with size 1 along the axis."""
    return value(curve, label_gap(axis, False, logits, label))


def class_values(logits: jax.Array, curve: Curve, axis: int) -> jax.Array:
    """``phi(p_k)`` of every class. All but the top class have p <= 1/2, where log(1 - p) is exact; the top class takes
    its gap from its own rivals."""
    places = lax.broadcasted_iota(jnp.int32, logits.shape, axis)
    highest = jnp.max(logits, axis, keepdims=True)
    # Not argmax, which XLA computes slowly on a CPU. A row with NaN has no top class, and only NaN as its losses.
    top_class = jnp.min(jnp.where(logits == highest, places, logits.shape[axis]), axis, keepdims=True)
    on_top = places == top_class
    # Where the rivals underflow relative to the top class, its pull does too: they need no base of their own.
    from_top = fades(curve)
    of_top = value(curve, label_gap(axis, from_top, logits, top_class))
    logs = jnp.where(on_top, -1.0, log_probs(axis, from_top, logits, top_class))  # any number that leaves no NaN behind
    return jnp.where(on_top, of_top, value_below_half(curve, logs, jnp.exp(logs)))


def mass_values(logits: jax.Array, mass: jax.Array, curve: Curve, axis: int) -> jax.Array:
    """``sum_k u_k phi(p_k)``, with size 1 along the axis. A class without mass adds nothing, even where its value is
    infinite."""
    values = class_values(logits, curve, axis)
    return jnp.sum(weighted(mass, values), axis, keepdims=True)


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
    by_class = included is not None and included.shape[axis] > 1
    if label_smoothing:
        count = jnp.sum(included, axis, keepdims=True, dtype=logits.dtype) if by_class else classes
        mass = mass * (1 - label_smoothing) + label_smoothing / jnp.maximum(count, 1)
    if by_class:
        mass = jnp.where(included, mass, 0.0)
    return mass if weight is None else mass * weight


def weighted(weight: jax.Array, values: jax.Array) -> jax.Array:
    """Their product, in which a weight of 0 leaves nothing of an infinite value."""
    return weight * jnp.where((weight == 0) & jnp.isinf(values), 0.0, values)
