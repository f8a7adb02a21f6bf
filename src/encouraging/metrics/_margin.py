"""Margins: by how much the label beats its best rival."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._inputs import best_rival, check_labels
from ._readings import Readings
from ._spread import median, spread


def margin(logits: Tensor | np.ndarray, target: Tensor | np.ndarray, *, zero_label: bool = False) -> Tensor:
    """The label's logit minus its best rival: positive exactly when the example is classified correctly.

    Args:
        logits: (..., C), of any floating-point type.
        target: (...), integers from 0 to C - 1.
        zero_label: Whether the label's logit is set to 0 among the rivals instead of being left out, so that a rival
            never counts below 0 and the margin is at most the label's logit: what the paper's figures show.

    Returns:
        Margins of the shape of ``target``.

    Raises:
        ShapeError, DtypeError: The shapes do not match, the logits are not floats, or the labels are not integers.

    >>> margin(torch.tensor([[3.0, 1.0], [0.0, 2.0]]), torch.tensor([0, 0]))
    tensor([ 2., -2.])
    >>> margin(torch.tensor([[3.0, -1.0]]), torch.tensor([0]), zero_label=True)
    tensor([3.])
    """
    logits, target = check_labels(logits, target)
    label = target[..., None]
    return logits.gather(-1, label)[..., 0] - best_rival(logits, label, 0.0 if zero_label else -torch.inf)


def margins(readings: Readings) -> dict[str, Any]:
    """The distribution of the margins, their median (and in the paper's form), and the fraction of examples that are
    misclassified."""
    distribution = spread(readings.margin)
    zeroed = spread(readings.score - readings.rival.clamp(min=0))
    wrong = float((~readings.correct).double().mean())
    return {**distribution, "median": median(distribution), "median_zeroed": median(zeroed), "wrong": wrong}
