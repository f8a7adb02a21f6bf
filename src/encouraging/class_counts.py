"""Class counts and labels as users have them: lists, numpy arrays, tensors, or a mapping from classes to counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .errors import ArgumentError, DtypeError
from .torch_state import values_exist

Counts: TypeAlias = Tensor | Sequence[float] | Mapping[int, float] | Any  # Any: numpy arrays, without importing numpy

EMPTY_CLASS = ("A class without training examples has no frequency: leave it out of the classes, give it examples, or "
               "count at least 1 for it (torch.as_tensor(counts).clamp_min(1)).")


def class_counts(counts: Counts, caller: str) -> Tensor:
    """(classes,) training examples per class in float64, all finite and at least 1.

    Args:
        counts: A tensor, a numpy array, a list or a tuple with one number per class, or a mapping from class indices 0
            to C - 1 to numbers, such as a ``Counter`` of the labels.
        caller: The function that was called, for messages.

    Raises:
        DtypeError: They are something else.
        ArgumentError: There is no number, a class has none, or a number is below 1 or not finite.

    >>> class_counts({1: 3, 0: 5}, "effective_weights")
    tensor([5., 3.], dtype=torch.float64)
    """
    numbers = _tensor(in_order(counts, caller) if isinstance(counts, Mapping) else counts, caller, "counts").double()
    if numbers.ndim != 1 or not len(numbers):
        raise ArgumentError(f"{caller}: expected the number of training examples per class, got counts of the shape "
                            f"{tuple(numbers.shape)}.")
    if not values_exist(numbers):
        return numbers
    if bool((numbers == 0).any()):
        raise ArgumentError(f"{caller}: class {int((numbers == 0).nonzero()[0])} has the count 0; expected at least "
                            f"one training example per class. {EMPTY_CLASS}")
    if not bool(((numbers >= 1) & numbers.isfinite()).all()):
        wrong = numbers[~((numbers >= 1) & numbers.isfinite())][0].item()
        raise ArgumentError(f"{caller}: got a count of {wrong:g}; expected at least one training example per class.")
    return numbers


def class_labels(labels: Any, caller: str) -> Tensor:
    """(N,) integer labels from a tensor, a numpy array, a list or a tuple.

    Raises:
        DtypeError: They are something else.
        ArgumentError: A label is negative.

    >>> class_labels((0, 2, 1), "balanced_indices")
    tensor([0, 2, 1])
    """
    numbers = _tensor(labels, caller, "labels")
    if not numbers.numel():
        return numbers.long()
    if numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise DtypeError(f"{caller}: labels are {numbers.dtype}; expected integers. Use labels.long().")
    numbers = numbers.long()
    if values_exist(numbers) and bool((numbers < 0).any()):
        position = int((numbers < 0).flatten().nonzero()[0])
        raise ArgumentError(f"{caller}: the label at position {position} is {int(numbers.flatten()[position])}; "
                            "expected class indices from 0 on. Leave out examples without a class.")
    return numbers


def in_order(counts: Mapping[Any, Any], caller: str, advice: str = EMPTY_CLASS) -> list[Any]:
    """The counts of classes 0 to C - 1; ``advice`` says what to do about a class that has none."""
    if set(counts) - set(range(len(counts))):
        keys = ", ".join(repr(key) for key in list(counts)[:5]) + (", ..." if len(counts) > 5 else "")
        raise ArgumentError(f"{caller}: a mapping with the keys {keys}; expected the class indices 0 to "
                            f"{len(counts) - 1}, each with its count. {advice}")
    return [counts[index] for index in range(len(counts))]


def _tensor(values: Any, caller: str, noun: str) -> Tensor:
    try:
        if isinstance(values, str | bytes | int | float | None):
            raise TypeError
        if hasattr(values, "__array__") and min(getattr(values, "strides", ()), default=0) < 0:
            values = values.copy()  # torch has no negative strides
        tensor = torch.as_tensor(values)
        if tensor.is_complex():
            raise TypeError
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise DtypeError(f"{caller}: {noun} are a {type(values).__name__}; expected numbers in a tensor, a numpy "
                         f"array, a list or a tuple{' (or a mapping from class index to count)' * (noun == 'counts')}."
                         ) from error
    return tensor
