"""Logits and labels as the metrics take them: tensors or arrays, of types and shapes that match."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..errors import DtypeError, ShapeError, TargetError
from ..targets import is_integer


def as_tensor(values: Tensor | np.ndarray | Sequence[float], name: str = "values") -> Tensor:
    """Arrays of any library that numpy can read, without a copy where none is needed."""
    if isinstance(values, Tensor):
        return values
    try:
        array = np.asarray(values)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.writeable or min(array.strides, default=0) < 0:  # torch has no negative strides
            array = array.copy()
        return torch.from_numpy(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DtypeError(f"{name}: cannot be read as a tensor of numbers ({error}). Pass a tensor, or an array of one "
                         "of the types that torch has, such as array.astype('float32').") from error


def check(logits: Tensor, target: Tensor | None = None, *, first: int = 0) -> None:
    """Refuse shapes, types and labels that cannot be read."""
    if logits.ndim != 2 or logits.shape[1] < 2:
        one_each = logits.ndim == 1 or logits.shape[1:] == (1,)
        hint = (" Logits z of a binary classifier, one per example, become two columns with torch.stack([0 * z, z], "
                "1)." if one_each else "")
        raise ShapeError(f"logits: expected the shape (examples, classes) with two classes or more, got "
                         f"{tuple(logits.shape)}.{hint}")
    if not logits.is_floating_point() or logits.dtype.itemsize == 1:
        raise DtypeError(f"logits: expected floating-point numbers, got {logits.dtype}.")
    if target is None:
        return
    if target.shape != logits.shape[:1]:
        raise ShapeError(f"labels: expected one per row of the logits, the shape ({len(logits)},), got "
                         f"{tuple(target.shape)}.")
    if not is_integer(target):
        raise DtypeError(f"labels: expected integers, got {target.dtype}.")
    if len(target):
        label = target.to(torch.int64)  # torch cannot compare unsigned integers wider than a byte
        low, high = (int(bound) for bound in torch.aminmax(label))
        if low < 0 or high >= logits.shape[1]:
            wrong = int(((label < 0) | (label >= logits.shape[1])).nonzero()[0])
            raise TargetError(f"labels: row {first + wrong} has {int(label[wrong])}, expected 0 to "
                              f"{logits.shape[1] - 1}; leave out rows without a label.")


def float_logits(logits: Tensor | np.ndarray) -> Tensor:
    """Logits of any shape as a tensor of floating-point numbers: minus an integer without a sign is another number."""
    logits = as_tensor(logits, "logits")
    if not logits.is_floating_point() or logits.dtype.itemsize == 1:
        raise DtypeError(f"logits: expected floating-point numbers, got {logits.dtype}.")
    return logits


def check_labels(logits: Tensor | np.ndarray, target: Tensor | np.ndarray) -> tuple[Tensor, Tensor]:
    """Logits of any layout and their labels as tensors, the labels in int64. Types and shapes that do not match are
    refused: a shorter target would silently be broadcast. Values are not checked: that would wait for the GPU."""
    logits, target = float_logits(logits), as_tensor(target, "labels")
    if not is_integer(target):
        raise DtypeError(f"labels: expected integers, got {target.dtype}.")
    if target.shape != logits.shape[:-1] or not logits.ndim:
        raise ShapeError(f"labels: expected one per row of the logits, the shape {tuple(logits.shape[:-1])}, got "
                         f"{tuple(target.shape)}.")
    return logits, target.long()


def best_rival(logits: Tensor, label: Tensor, score: float = -torch.inf) -> Tensor:
    """The highest logit where the labels', (..., 1), are set to ``score``."""
    return logits.scatter(-1, label, score).amax(-1)
