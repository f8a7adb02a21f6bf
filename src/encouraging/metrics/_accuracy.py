"""How often a model is right, and how much more often on what it was trained on."""

from __future__ import annotations

from ._readings import Readings


def accuracy(readings: Readings) -> float:
    """Percent right; a tie counts as wrong."""
    return 100 * float(readings.correct.double().mean())


def excess_risk(train: Readings, test: Readings) -> float:
    """Training minus test accuracy, in points: what the model knows of its training examples alone.

    >>> import torch
    >>> from .readings import read
    >>> logits = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> excess_risk(read(logits, torch.tensor([0, 0])), read(logits, torch.tensor([0, 1])))
    50.0
    """
    return accuracy(train) - accuracy(test)
