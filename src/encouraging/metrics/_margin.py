"""Margins: by how much the label beats its best rival."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._readings import Readings, check_labels
from ._spread import median, spread


def margin(logits: Tensor, target: Tensor) -> Tensor:
    """The label's logit minus its best rival: positive exactly when the example is classified correctly.

    >>> margin(torch.tensor([[3.0, 1.0], [0.0, 2.0]]), torch.tensor([0, 0]))
    tensor([ 2., -2.])
    """
    check_labels(logits, target)
    target = target.long()
    rival = logits.scatter(-1, target[..., None], -torch.inf).amax(-1)
    return logits.gather(-1, target[..., None])[..., 0] - rival


def margins(readings: Readings) -> dict[str, Any]:
    """The distribution of the margins, and the fraction of examples that are misclassified."""
    distribution = spread(readings.margin)
    wrong = float((~readings.correct).double().mean())
    return {**distribution, "median": median(distribution), "wrong": wrong}
