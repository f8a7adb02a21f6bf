"""Accuracy, and how much higher it is on the training examples than on the test examples."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import DtypeError
from ._blocks import block_size, blocks
from ._inputs import best_rival, check_labels
from ._readings import Readings, check_readings, read


def correct(logits: Tensor | np.ndarray, target: Tensor | np.ndarray) -> Tensor:
    """Whether each example is classified correctly: its label's logit is higher than every other.

    A tie is wrong, and so is a row with NaN. This is the package's one definition of accuracy: an example is correct
    exactly where its :func:`margin` is positive. It does not synchronise with the GPU, and its only temporary is a
    block of rows.

    Args:
        logits: (..., C), of any floating-point type.
        target: (...), integers from 0 to C - 1.

    Returns:
        Booleans of the shape of ``target``.

    Raises:
        ShapeError, DtypeError: The shapes do not match, or the labels are not integers.

    >>> correct(torch.tensor([[2.0, 1.0], [1.0, 1.0]]), torch.tensor([0, 0]))
    tensor([ True, False])
    """
    logits, target = check_labels(logits, target)
    logits = logits.detach()
    if logits.numel() <= block_size(logits):
        column = target[..., None]
        return logits.gather(-1, column)[..., 0] > best_rival(logits, column)
    rows, label = logits.reshape(-1, logits.shape[-1]), target.reshape(-1, 1)
    right = torch.empty(len(rows), dtype=torch.bool, device=logits.device)
    for block, buffer in blocks(rows):
        score = buffer.gather(1, label[block])
        torch.gt(score[:, 0], buffer.scatter_(1, label[block], -torch.inf).amax(1), out=right[block])
    return right.view(target.shape)


def accuracy(readings: Readings | Tensor | np.ndarray, target: Tensor | np.ndarray | None = None) -> float:
    """Percent right, of logits and labels or of readings; a tie counts as wrong.

    Args:
        readings: Logits (N, C), two classes or more, or what :func:`read` returned.
        target: Labels (N), integers from 0 to C - 1. With readings, which have labels, it is left out.

    Returns:
        A number from 0 to 100; NaN without examples.

    Raises:
        ShapeError, DtypeError, TargetError: As :func:`read`, or logits come without labels.

    >>> logits, labels = torch.tensor([[2.0, 1.0], [1.0, 1.0]]), torch.tensor([0, 0])
    >>> accuracy(logits, labels)
    50.0
    >>> from encouraging.metrics import read
    >>> accuracy(read(logits, labels))
    50.0
    """
    if target is not None:
        if isinstance(readings, Readings):
            raise DtypeError("accuracy: got readings and labels, and readings have labels of their own. Pass "
                             "accuracy(readings), or accuracy(logits, labels).")
        readings = read(readings, target)
    return 100 * float(check_readings(readings, "accuracy(logits, labels)").correct.double().mean())


def excess_risk(train: Readings, test: Readings) -> float:
    """Training minus test accuracy, in percentage points: what does not generalise.

    Args:
        train: Readings of training examples.
        test: Readings of test examples.

    Returns:
        The difference.

    Raises:
        DtypeError: Something else than readings was passed.

    >>> from encouraging.metrics import read
    >>> logits = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> excess_risk(read(logits, torch.tensor([0, 0])), read(logits, torch.tensor([0, 1])))
    50.0
    """
    for readings in (train, test):
        check_readings(readings, "excess_risk(read(train_logits, train_labels), read(test_logits, test_labels))")
    return accuracy(train) - accuracy(test)
