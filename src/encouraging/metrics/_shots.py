"""Accuracy by how often a class was seen in training: many, medium or few times."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..class_counts import Counts, in_order
from ..errors import ArgumentError, ShapeError
from ._inputs import as_tensor
from ._readings import Readings, check_readings

MANY, FEW = 100, 20


def shot_groups(counts: Counts, many: int = MANY, few: int = FEW) -> dict[str, Tensor]:
    """Which classes have more than ``many`` training examples, fewer than ``few``, and a number between.

    Args:
        counts: Training examples per class: a tensor, an array or a list of one number per class, or a mapping from
            class index to number.
        many: A class with more is in the group ``many``.
        few: A class with fewer is in the group ``few``; both bounds themselves are ``medium``.

    Returns:
        A mask over the classes per group; a group may be empty.

    Raises:
        ArgumentError: A count is below 0 or NaN, or ``few`` is above ``many``.

    >>> {name: mask.tolist() for name, mask in shot_groups(torch.tensor([500, 100, 5])).items()}
    {'many': [True, False, False], 'medium': [False, True, False], 'few': [False, False, True]}
    """
    counts = _checked(counts)
    if few > many:
        raise ArgumentError(f"shot groups with many={many} and few={few}: expected few to be at most many.")
    return {"many": counts > many, "medium": (counts >= few) & (counts <= many), "few": counts < few}


def shot_accuracy(readings: Readings, counts: Counts, many: int = MANY, few: int = FEW) -> dict[str, float]:
    """Percent right among the examples of each group of classes; a group without examples is left out.

    Args:
        readings: What :func:`read` returned.
        counts, many, few: As in :func:`shot_groups`.

    Returns:
        Percentages by the names of the groups.

    Raises:
        ShapeError: A label has no count.
        ArgumentError: As :func:`shot_groups`.
        DtypeError: Something else than readings was passed.

    >>> from encouraging.metrics import read
    >>> readings = read(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1]))
    >>> shot_accuracy(readings, torch.tensor([500, 5]))
    {'many': 100.0, 'few': 0.0}
    """
    check_readings(readings, "shot_accuracy(read(logits, labels), counts)")
    counts = _checked(counts)
    if counts.ndim != 1 or (len(readings) and int(readings.label.max()) >= len(counts)):
        raise ShapeError(f"class counts: expected one number per class, got the shape {tuple(counts.shape)} for labels "
                         f"up to {int(readings.label.max()) if len(readings) else 0}.")
    groups = shot_groups(counts.to(readings.label.device)[readings.label], many, few)
    return {name: 100 * float(readings.correct[members].double().mean())
            for name, members in groups.items() if bool(members.any())}


def counts_in_order(counts: Counts) -> Tensor:
    """Class counts of any form, with a mapping in the order of its classes."""
    if isinstance(counts, Mapping):
        counts = in_order(counts, "class counts", "A class without training examples has the count 0.")
    return as_tensor(counts, "class counts")


def _checked(counts: Counts) -> Tensor:
    counts = counts_in_order(counts)
    bad = ~(counts >= 0)  # NaN too: it would be in no group
    if bool(bad.any()):
        raise ArgumentError(f"class counts: got {counts[bad].flatten()[0].item():g}; expected the number of training "
                            "examples of each class, 0 or more.")
    return counts


def class_accuracy(readings: Readings, classes: int) -> list[float | None]:
    """Percent right per class.

    Args:
        readings: What :func:`read` returned.
        classes: The number of classes.

    Returns:
        One number per class; None for a class without examples.

    Raises:
        ArgumentError: A label is not below ``classes``.
        DtypeError: Something else than readings was passed.

    >>> from encouraging.metrics import read
    >>> class_accuracy(read(torch.tensor([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]]), torch.tensor([0, 1])), 3)
    [100.0, 0.0, None]
    """
    check_readings(readings, "class_accuracy(read(logits, labels), classes)")
    return _class_means(readings, 100 * readings.correct.double(), classes)


def class_margin(readings: Readings, classes: int) -> list[float | None]:
    """The mean margin per class.

    Args:
        readings, classes: As in :func:`class_accuracy`.

    Returns:
        One number per class; None for a class without examples.

    Raises:
        ArgumentError: A label is not below ``classes``.
        DtypeError: Something else than readings was passed.

    >>> from encouraging.metrics import read
    >>> class_margin(read(torch.tensor([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]]), torch.tensor([0, 1])), 3)
    [1.0, -1.0, None]
    """
    check_readings(readings, "class_margin(read(logits, labels), classes)")
    return _class_means(readings, readings.margin.double(), classes)


def _class_means(readings: Readings, values: Tensor, classes: int) -> list[float | None]:
    if len(readings) and int(readings.label.max()) >= classes:
        raise ArgumentError(f"classes={classes}: there are labels up to {int(readings.label.max())}; expected the "
                            "number of classes.")
    counts = torch.bincount(readings.label, minlength=classes)
    sums = torch.bincount(readings.label, weights=values, minlength=classes)
    return [total / n if n else None for total, n in zip(sums.tolist(), counts.tolist(), strict=True)]
