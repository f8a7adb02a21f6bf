"""Accuracy by how often a class was seen in training: many, medium or few times."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ShapeError
from ._readings import Readings


def shot_accuracy(readings: Readings, counts: Tensor, many: int = 100, few: int = 20) -> dict[str, float]:
    """Percent right among the examples of classes with more than ``many`` training examples, fewer than ``few``, and
    between; a group without examples is left out.

    >>> from ._readings import read
    >>> readings = read(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1]))
    >>> shot_accuracy(readings, torch.tensor([500, 5]))
    {'many': 100.0, 'few': 0.0}
    """
    if counts.ndim != 1 or (len(readings) and int(readings.label.max()) >= len(counts)):
        raise ShapeError(f"class counts: expected one number per class, got the shape {tuple(counts.shape)} for labels "
                         f"up to {int(readings.label.max()) if len(readings) else 0}.")
    seen = counts.to(readings.label.device)[readings.label]
    groups = {"many": seen > many, "medium": (seen >= few) & (seen <= many), "few": seen < few}
    return {name: 100 * float(readings.correct[chosen].double().mean())
            for name, chosen in groups.items() if bool(chosen.any())}


def class_accuracy(readings: Readings, classes: int) -> list[float | None]:
    """Percent right per class; None for a class without examples."""
    counts = torch.bincount(readings.label, minlength=classes)
    right = torch.bincount(readings.label, weights=readings.correct.double(), minlength=classes)
    return [100 * r / n if n else None for r, n in zip(right.tolist(), counts.tolist(), strict=True)]
