"""Out-of-distribution detection: how well a score separates the training distribution from other examples.

Scores are any numbers, higher for examples that look like the training data. Only their order matters, so energies of
any scale can be used; tied scores count as a random guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from ..errors import ArgumentError

Positive = Literal["inside", "outside"]
GRID = np.unique(np.concatenate([[0.0], np.geomspace(1e-4, 1, 81), np.linspace(0, 1, 41)]))


@dataclass(frozen=True)
class Detection:
    """The ROC curve of a score.

    Attributes:
        fpr, tpr: False and true positive rates at every threshold, from 0 to 1.
        positives, negatives: The numbers of examples.
    """

    fpr: np.ndarray
    tpr: np.ndarray
    positives: int
    negatives: int

    @property
    def auroc(self) -> float:
        """The chance that a positive example scores above a negative one, ties counted half."""
        return float((np.diff(self.fpr) * (self.tpr[1:] + self.tpr[:-1])).sum() / 2)

    @property
    def aupr(self) -> float:
        """Average precision: precision at every threshold, weighted by the recall that it adds."""
        true, false = self.tpr * self.positives, self.fpr * self.negatives
        accepted = true + false
        precision = np.divide(true, accepted, out=np.ones_like(true), where=accepted > 0)
        return float((np.diff(self.tpr) * precision[1:]).sum())

    @property
    def aupr_trapezoid(self) -> float:
        """The area under straight lines between the points of precision over recall, from (0, 1) on: OpenOOD's."""
        true, false = self.tpr * self.positives, self.fpr * self.negatives
        precision = np.ones_like(true)
        precision[1:] = true[1:] / (true + false)[1:]
        return float((np.diff(self.tpr) * (precision[1:] + precision[:-1])).sum() / 2)

    def fpr_at(self, tpr: float = 0.95) -> float:
        """The false positive rate at the first threshold that reaches this true positive rate.

        Raises:
            ArgumentError: The rate is not from 0 to 1; 95% are 0.95.
        """
        if not 0 <= tpr <= 1:
            raise ArgumentError(f"fpr_at({tpr!r}): expected a true positive rate from 0 to 1, such as 0.95.")
        reached = self.tpr * self.positives >= tpr * self.positives - 1e-9
        return float(self.fpr[np.argmax(reached)])

    @property
    def fpr95(self) -> float:
        return self.fpr_at(0.95)

    def points(self) -> dict[str, list[float]]:
        """A curve of about a hundred points for drawing, dense at small false positive rates."""
        last = np.searchsorted(self.fpr, GRID, side="right") - 1
        return {"fpr": [float(f"{x:.6g}") for x in GRID], "tpr": [float(f"{x:.6g}") for x in self.tpr[last]]}


def detection(inside: Tensor | np.ndarray, outside: Tensor | np.ndarray, positive: Positive = "inside") -> Detection:
    """The ROC curve of two sets of scores.

    Args:
        inside: Scores of examples of the training distribution.
        outside: Scores of out-of-distribution examples.
        positive: Which of them is the positive class, ``"inside"`` or ``"outside"``; the paper takes the training
            distribution.

    Returns:
        The curve, with ``auroc``, ``aupr`` and ``fpr95``.

    Raises:
        ArgumentError: A set is empty, has NaN or more than one dimension, or ``positive`` is another word.

    >>> import torch
    >>> curve = detection(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.5]))
    >>> round(curve.auroc, 3), curve.fpr95
    (0.833, 0.5)
    """
    if positive not in ("inside", "outside"):
        raise ArgumentError(f"detection(positive={positive!r}): expected 'inside' or 'outside'.")
    positives, negatives = _numbers(inside), _numbers(outside)
    if positive == "outside":  # out-of-distribution examples score high then
        positives, negatives = -negatives, -positives
    values = np.concatenate([positives, negatives])
    order = np.argsort(-values)
    ranked = values[order]
    # One point per distinct score. Scores are compared, never subtracted, so infinite ones are ranked too.
    last_of_score = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
    true = np.cumsum(order < len(positives))[last_of_score]
    false = last_of_score + 1 - true
    tpr, fpr = (np.concatenate([[0.0], count / count[-1]]) for count in (true, false))
    return Detection(fpr, tpr, len(positives), len(negatives))


def openood_row(inside: Tensor | np.ndarray, outside: Tensor | np.ndarray) -> dict[str, float]:
    """The columns of OpenOOD (Zhang and others, 2023), in percent and by its definitions.

    There the out-of-distribution examples are the positive class of FPR@95, and areas under precision over recall are
    those under straight lines. The paper takes the training distribution as the positive class.

    Args:
        inside: Scores of examples of the training distribution.
        outside: Scores of out-of-distribution examples.

    Returns:
        Percentages by the names of the columns.

    Raises:
        ArgumentError: A set is empty, has NaN or more than one dimension.

    >>> import torch
    >>> row = openood_row(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.5]))
    >>> {name: round(value, 1) for name, value in row.items()}
    {'FPR@95': 33.3, 'AUROC': 83.3, 'AUPR_IN': 90.3, 'AUPR_OUT': 79.2}
    """
    test_positive, ood_positive = detection(inside, outside), detection(inside, outside, "outside")
    return {"FPR@95": 100 * ood_positive.fpr95, "AUROC": 100 * test_positive.auroc,
            "AUPR_IN": 100 * test_positive.aupr_trapezoid, "AUPR_OUT": 100 * ood_positive.aupr_trapezoid}


def mean_row(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of several sets, column by column: OpenOOD's rows ``nearood`` and ``farood``."""
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def _numbers(values: Tensor | np.ndarray) -> np.ndarray:
    array = values.detach().double().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values, float)
    if array.ndim != 1 or not len(array) or np.isnan(array).any():
        raise ArgumentError(f"detection: expected two non-empty rows of numbers without NaN, got the shape "
                            f"{array.shape}" + (" with NaN." if np.isnan(array).any() else "."))
    return array
