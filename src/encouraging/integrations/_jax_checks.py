"""Checks of the arguments of the losses for JAX, which are brought to one form.

Shapes and types are checked under every transform. Values (a label out of range) are checked where they can be read at
no cost: in NumPy arrays, and in arrays on a CPU that no transform traces.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ArgumentError, DtypeError, ShapeError, TargetError


def _as_array(name: str, value: Any, expected: str) -> jax.Array:
    if isinstance(value, jax.Array | np.ndarray | np.generic) or hasattr(value, "__jax_array__"):
        return jnp.asarray(value)
    kind = f"{type(value).__module__.split('.')[0]}.{type(value).__name__}".removeprefix("builtins.")
    hint = " For PyTorch use the losses of encouraging itself." if kind == "torch.Tensor" else ""
    raise DtypeError(f"{name} is a {kind}: expected {expected}, as a JAX or NumPy array.{hint}")


def _readable(value: Any) -> np.ndarray[Any, Any] | None:
    """The numbers, where they can be read without waiting for a device."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return None
    on_cpu = value.is_fully_addressable and all(device.platform == "cpu" for device in value.devices())
    return np.asarray(value) if on_cpu else None


def promote(first: Any, second: Any) -> Any:
    """The smallest type that holds both, also where the user has set JAX to promote nothing by itself."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(first, second)


def as_logits(logits: Any) -> jax.Array:
    """Logits, in at least 16 bits."""
    z = _as_array("logits", logits, "logits")
    if not jnp.issubdtype(z.dtype, jnp.floating):
        raise DtypeError(f"logits are {z.dtype}: expected floating-point numbers. If these are logits, use "
                         "logits.astype(jnp.float32).")
    if z.dtype.itemsize == 1:
        raise DtypeError(f"logits are {z.dtype}: expected float64, float32, float16 or bfloat16.")
    return z


def as_axis(axis: Any, logits: jax.Array) -> int:
    """The axis of the classes, counted from the first."""
    if logits.ndim == 0:
        raise ShapeError("logits is a single number: expected an array with the classes along an axis.")
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -logits.ndim <= axis < logits.ndim:
        raise ArgumentError(f"axis={axis!r} for logits of shape {logits.shape}: expected one integer from "
                            f"{-logits.ndim} to {logits.ndim - 1}, where the classes are.")
    if logits.shape[axis] == 0:
        raise ShapeError(f"logits of shape {logits.shape} have no classes along axis {axis}: expected at least one.")
    return int(axis) % int(logits.ndim)


def as_labels(values: Any, logits: jax.Array, axis: int, included: jax.Array | None) -> jax.Array:
    """Integers with size 1 along the axis, or probabilities of the logits' shape."""
    numbers = _readable(values)
    labels = _as_array("labels", values, "integers or probabilities")
    shape = logits.shape[:axis] + logits.shape[axis + 1:]
    came = f"labels are {labels.dtype} of shape {labels.shape} for logits of shape {logits.shape}"
    if jnp.issubdtype(labels.dtype, jnp.floating):
        if labels.dtype.itemsize == 1:
            raise DtypeError(f"{came}: expected probabilities in float64, float32, float16 or bfloat16.")
        if labels.shape != logits.shape:
            raise TargetError(f"{came}: expected integers of shape {shape}, or probabilities of the logits' shape. "
                              "Labels that were read as floats become labels with labels.astype(jnp.int32).")
        return labels
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise DtypeError(f"{came}: expected integers of shape {shape}. For two classes use labels.astype(jnp.int32).")
    if labels.shape != shape:
        hint = ""
        if labels.shape == logits.shape:
            hint = " One-hot rows are probabilities: pass them as labels.astype(jnp.float32)."
        elif labels.size == np.prod(shape):
            hint = f" Labels with other dimensions fit after labels.reshape({shape})."
        raise ShapeError(f"{came}, with the classes along axis {axis}: expected labels of shape {shape}, one per "
                         f"example.{hint}")
    if numbers is not None:
        _check_range(numbers, logits.shape[axis], axis, included)
    return jnp.expand_dims(_wide(labels), axis)


def _check_range(labels: np.ndarray[Any, Any], classes: int, axis: int, included: jax.Array | None) -> None:
    outside = (labels < 0) | (labels >= classes)
    if included is not None:
        mask = _readable(included)
        if mask is None:
            return
        outside = outside & mask.any(axis)
    if outside.any():
        raise TargetError(f"labels hold the label {labels[outside][0]}, but there are {classes} classes: expected "
                          f"labels from 0 to {classes - 1}. Leave out rows with where=, for example "
                          "where=labels != -100.")


def _wide(labels: jax.Array) -> jax.Array:
    """Labels of a type that can hold any class."""
    return labels.astype(jnp.int32) if labels.dtype.itemsize < 4 else labels


def as_included(where: Any, logits: jax.Array, axis: int) -> jax.Array | None:
    """What counts: with size 1 along the axis for whole examples, or one for each logit."""
    if where is None:
        return None
    mask = _as_mask(where)
    if mask.ndim != logits.ndim:
        shape = logits.shape[:axis] + logits.shape[axis + 1:]
        if mask.shape != shape:
            raise ShapeError(f"where has shape {mask.shape} for logits of shape {logits.shape}, with the classes along "
                             f"axis {axis}: expected {shape}, one per example, or the shape of the logits.")
        return jnp.expand_dims(mask, axis)
    return _broadcasting("where", mask, logits)


def as_mask(where: Any, logits: jax.Array) -> jax.Array | None:
    """Booleans that broadcast to the logits."""
    return None if where is None else _broadcasting("where", _as_mask(where), logits)


def _as_mask(where: Any) -> jax.Array:
    mask = _as_array("where", where, "booleans")
    if mask.dtype != bool:
        raise DtypeError(f"where is {mask.dtype}: expected booleans that say what counts. Use where != 0; multiply the "
                         "losses for weights other than 0 and 1.")
    return mask


def as_weight(values: Any, classes: int) -> jax.Array | None:
    """One number per class."""
    if values is None:
        return None
    weight = _as_array("weight", values, "one number per class")
    if not jnp.issubdtype(weight.dtype, jnp.floating):
        raise DtypeError(f"weight is {weight.dtype}: expected floating-point numbers, one per class.")
    if weight.shape != (classes,):
        raise ShapeError(f"weight has shape {weight.shape}: expected ({classes},), one number per class.")
    return weight


def as_factor(name: str, values: Any, logits: jax.Array) -> jax.Array | None:
    """Real numbers that broadcast to the logits."""
    if values is None:
        return None
    factor = _as_array(name, values, "real numbers that broadcast to the logits")
    if jnp.issubdtype(factor.dtype, jnp.complexfloating):
        raise DtypeError(f"{name} is {factor.dtype}: expected real numbers that broadcast to the logits.")
    return _broadcasting(name, factor, logits)


def _broadcasting(name: str, factor: jax.Array, logits: jax.Array) -> jax.Array:
    """The factor with as many dimensions as the logits."""
    padded = (1,) * (logits.ndim - factor.ndim) + factor.shape
    if len(padded) != logits.ndim or any(n not in (1, size) for n, size in zip(padded, logits.shape, strict=True)):
        raise ShapeError(f"{name} has shape {factor.shape}: expected one that broadcasts to that of the logits, "
                         f"{logits.shape}.")
    return factor.reshape(padded)


def as_presence(values: Any, logits: jax.Array, included: jax.Array | None) -> jax.Array:
    """Whether, or how surely, each class is present, or the index of the one that is."""
    numbers = _readable(values)
    labels = _as_array("labels", values, "0s and 1s, or probabilities")
    if jnp.issubdtype(labels.dtype, jnp.complexfloating):
        raise DtypeError(f"labels are {labels.dtype}: expected 0s and 1s, or probabilities.")
    index = logits.ndim > 0 and labels.shape == logits.shape[:-1] and jnp.issubdtype(labels.dtype, jnp.integer)
    if labels.shape != logits.shape and not index:
        raise ShapeError(f"labels have shape {labels.shape} for logits of shape {logits.shape}: expected the same "
                         "shape, one 0 or 1 (or a probability) for each logit, or integers of shape "
                         f"{logits.shape[:-1]}, the index of the one class that is present.")
    if index and logits.shape[-1] == 1:  # as indices, 0s and 1s would mean the opposite
        raise ShapeError(f"labels have shape {labels.shape} for logits of shape {logits.shape}: expected one 0 or 1 "
                         "for each logit, of the same shape. With one logit per example pass logits[..., 0], or "
                         "labels[..., None].")
    if index:
        return _wide(labels)
    mask = None if included is None else _readable(included)
    if numbers is None or (included is not None and mask is None):
        return labels
    outside = (numbers < 0) | (numbers > 1)
    if bool((outside if mask is None else outside & mask).any()):
        raise TargetError("labels hold numbers outside [0, 1]: expected 0, 1 or a probability for each logit. Leave "
                          "out logits with where=, for example where=labels != -1.")
    return labels
