"""The losses for JAX: Flax, Equinox, optax, Keras on JAX. The loss per example, as optax's losses return it.

>>> import jax.numpy as jnp
>>> from encouraging import curves
>>> logits, labels = jnp.array([[4.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), jnp.array([0, 0])
>>> [round(loss, 3) for loss in curve_loss(logits, labels, curves.conservative(0.75)).tolist()]
[-2.209, 1.313]
>>> gradient = jax.grad(lambda z: curve_loss(z, labels, curves.conservative(0.75)).sum())(logits)
>>> [round(slope, 3) for slope in gradient[1].tolist()]
[-1.0, 0.731, 0.269]
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from .. import curves
from ..curves import Curve
from ..curves._curve import check_curve
from ..presence import check_alpha
from ..targets import check_smoothing
from ._jax_checks import (
    as_axis,
    as_factor,
    as_included,
    as_labels,
    as_logits,
    as_mask,
    as_presence,
    as_weight,
    promote,
)
from ._jax_curves import check_own, value
from ._jax_rows import is_label, label_values, mass_values, target_mass, weighted

__all__ = ["curve_loss", "encouraging_loss", "sigmoid_curve_loss"]


def curve_loss(logits: ArrayLike, labels: ArrayLike, curve: Curve, *, axis: int = -1, where: ArrayLike | None = None,
               label_smoothing: float = 0.0, weight: ArrayLike | None = None) -> jax.Array:
    r"""``optax.softmax_cross_entropy`` (with integer labels or probabilities) with another curve.

    .. math:: \ell = \varphi(p_y), \qquad \text{smoothed or soft:}\quad \sum_k q_k\,\varphi(p_k)

    Exact at any confidence, in value and derivatives; half precision is computed in float32. It works under ``jit``,
    ``grad``, ``vmap``, ``jvp``, ``hessian``, ``checkpoint``, ``scan`` and ``shard_map``.

    Args:
        logits: Logits of any shape, with the classes along ``axis``.
        labels: Integers (the logits' shape without the axis), or probabilities (floats of the logits' shape).
        curve: The loss as a function of the label's probability: any of :mod:`encouraging.curves`. Under ``jit`` it is
            a constant: close over it, or name it in ``static_argnames``.
        axis: Where the classes are.
        where: Booleans that say what counts. One per example: the others have loss and gradient 0, whatever their
            logits and labels hold. One per logit: the other classes do not count, as if their logits were -inf.
        label_smoothing: The share of every label that is spread over all classes.
        weight: One number per class.

    Returns:
        The loss per example, of the logits' shape without the axis, in their dtype. Take its mean yourself: with
        ``where`` as ``loss.sum() / where.sum()``, with ``weight`` as torch does, ``loss.sum() / weight[labels].sum()``.

    Raises:
        ShapeError, TargetError, DtypeError, ArgumentError, CurveError: For arrays or arguments that do not fit each
            other. A label that names no class is an error where its value can be read (on a CPU, outside ``jit`` and
            ``vmap``); elsewhere the loss and the gradient of its row are NaN.

    >>> loss = curve_loss(jnp.array([4.0, 0.0, 0.0]), jnp.array(0), curves.normal())
    >>> round(loss.item(), 3)  # minus the gap: log 2 - 4
    -3.307
    """
    check_curve(curve)
    check_own(curve)
    check_smoothing(label_smoothing)
    z = as_logits(logits)
    class_axis = as_axis(axis, z)
    included = as_included(where, z, class_axis)
    target = as_labels(labels, z, class_axis, included)
    class_weight = as_weight(weight, z.shape[class_axis])
    losses: jax.Array = _softmax_losses(z, target, class_weight, included, curve=curve, axis=class_axis,
                                        label_smoothing=label_smoothing)
    return losses


def encouraging_loss(logits: ArrayLike, labels: ArrayLike, *, log_end: float = 0.75, eps: float = 1e-5, axis: int = -1,
                     where: ArrayLike | None = None, label_smoothing: float = 0.0,
                     weight: ArrayLike | None = None) -> jax.Array:
    """Cross-entropy plus the bonus that keeps well-classified examples in training: :func:`curves.encouraging`.

    Args:
        logits, labels, axis, where, label_smoothing, weight: As in :func:`curve_loss`.
        log_end: The probability, from 0 to 1, at which the log bonus becomes a line. 0.5 and 0.75 work with learning
            rates that were tuned for cross-entropy. 1 (no line, only the clamp at ``eps``) needs about half the rate.
        eps: The clamp of 1 - p, used only where ``log_end`` is 1.

    Returns:
        The loss per example, as :func:`curve_loss` returns it.

    Raises:
        CurveError: ``log_end`` or ``eps`` is outside its range.
        ShapeError, TargetError, DtypeError, ArgumentError: As in :func:`curve_loss`.

    >>> round(encouraging_loss(jnp.array([4.0, 0.0, 0.0]), jnp.array(0)).item(), 3)
    -2.209
    """
    return curve_loss(logits, labels, curves.encouraging(log_end, eps), axis=axis, where=where,
                      label_smoothing=label_smoothing, weight=weight)


def sigmoid_curve_loss(logits: ArrayLike, labels: ArrayLike, curve: Curve, *, weight: ArrayLike | None = None,
                       pos_weight: ArrayLike | None = None, alpha: float | None = None,
                       negative_curve: Curve | None = None, where: ArrayLike | None = None) -> jax.Array:
    r"""``optax.sigmoid_binary_cross_entropy`` with another curve: each class on its own, any shape.

    .. math:: t\,\omega\,\varphi(\sigma(z)) + (1-t)\,\varphi(1-\sigma(z))

    Args:
        logits: Logits of any shape.
        labels: 0 or 1 (integers or bool), or a probability, of the logits' shape. Or the index of the one class that is
            present, for logits with their classes last: (...) for (..., C); an index that names no class, such as -1,
            stands for none.
        curve: Any of :mod:`encouraging.curves`; ``focal(gamma)`` with ``alpha`` is detection's focal loss.
        weight: Multiplies the losses; broadcasts to the logits.
        pos_weight: Multiplies the positive part; broadcasts to the logits.
        alpha: Focal loss's balance: positives count ``alpha``, negatives ``1 - alpha``.
        negative_curve: A curve of its own for absent classes; by default the same.
        where: Booleans that say which logits count; broadcasts to the logits. The others have loss and gradient 0,
            whatever their logits and labels hold.

    Returns:
        The loss per logit, of their shape and dtype.

    Raises:
        ShapeError, TargetError, DtypeError, ArgumentError, CurveError: For arrays or arguments that do not fit each
            other.

    >>> print(sigmoid_curve_loss(jnp.array([2.0, -1.0]), jnp.array([1, 0]), curves.normal()))  # minus the gap of each
    [-2. -1.]
    """
    check_curve(curve)
    negative_curve = curve if negative_curve is None else negative_curve
    check_curve(negative_curve)
    check_own(curve)
    check_own(negative_curve)
    check_alpha(alpha)
    z = as_logits(logits)
    included = as_mask(where, z)
    present = as_presence(labels, z, included)
    losses: jax.Array = _sigmoid_losses(
        z, present, as_factor("weight", weight, z), as_factor("pos_weight", pos_weight, z), included,
        curve=curve, negative_curve=negative_curve, alpha=alpha)
    return losses


@functools.partial(jax.jit, static_argnames=("curve", "axis", "label_smoothing"), inline=True)
def _softmax_losses(logits: jax.Array, labels: jax.Array, weight: jax.Array | None, included: jax.Array | None, *,
                    curve: Curve, axis: int, label_smoothing: float) -> jax.Array:
    soft = jnp.issubdtype(labels.dtype, jnp.floating)
    result = promote(logits.dtype, labels.dtype) if soft else logits.dtype
    z = logits.astype(promote(logits.dtype, jnp.float32))  # half precisions are computed in float32
    labels = labels.astype(z.dtype) if soft else labels
    rows = None
    if included is not None:
        # What an excluded row or class holds, such as NaN, must not reach a derivative.
        rows = jnp.any(included, axis, keepdims=True)
        z = z if included.shape[axis] == 1 else jnp.where(included, z, -jnp.inf)
        z, labels = jnp.where(rows, z, 0.0), jnp.where(rows, labels, 0)
    if weight is not None:
        weight = weight.astype(z.dtype).reshape([-1 if dim == axis else 1 for dim in range(z.ndim)])
    if soft or label_smoothing:
        losses = mass_values(axis, curve, z, target_mass(z, labels, weight, included, label_smoothing, axis))
    else:
        losses = label_values(z, labels, curve, axis)
        if weight is not None:
            # Not jnp.take: explicit sharding would ask how its result is sharded.
            losses = losses * jnp.take_along_axis(jnp.broadcast_to(weight, z.shape), labels, axis, mode="clip")
    losses = losses if rows is None else jnp.where(rows, losses, 0.0)
    return jnp.squeeze(losses, axis).astype(result)


@functools.partial(jax.jit, static_argnames=("curve", "negative_curve", "alpha"), inline=True)
def _sigmoid_losses(logits: jax.Array, labels: jax.Array, weight: jax.Array | None, pos_weight: jax.Array | None,
                    included: jax.Array | None, *, curve: Curve, negative_curve: Curve,
                    alpha: float | None) -> jax.Array:
    z = logits.astype(promote(logits.dtype, jnp.float32))
    if included is not None:
        z = jnp.where(included, z, 0.0)
    for_positives = jnp.full([1] * z.ndim, 1.0 if alpha is None else alpha, z.dtype)
    for_negatives = jnp.full_like(for_positives, 1.0 if alpha is None else 1 - alpha)
    if pos_weight is not None:
        for_positives = for_positives * pos_weight.astype(z.dtype)
    if jnp.issubdtype(labels.dtype, jnp.floating):
        presence = labels.astype(z.dtype) if included is None else jnp.where(included, labels.astype(z.dtype), 0.0)
        losses = (weighted(presence * for_positives, value(curve, z))
                  + weighted((1 - presence) * for_negatives, value(negative_curve, -z)))
    else:
        positive = labels.astype(bool) if labels.shape == z.shape else is_label(z, labels[..., None], z.ndim - 1)
        gap = jnp.where(positive, z, -z)
        losses = value(curve, gap)
        if negative_curve != curve:
            losses = jnp.where(positive, losses, value(negative_curve, gap))
        if pos_weight is not None or alpha is not None:
            losses = losses * jnp.where(positive, for_positives, for_negatives)
    losses = losses if weight is None else losses * weight.astype(z.dtype)
    return (losses if included is None else jnp.where(included, losses, 0.0)).astype(logits.dtype)
