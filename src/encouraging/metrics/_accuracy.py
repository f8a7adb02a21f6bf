"""Accuracy, and how much higher it is on the training examples than on the test examples."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ._inputs import best_rival, check_labels
from ._readings import Readings, block_size, blocks


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


def accuracy(readings: Readings) -> float:
    """Percent right; a tie counts as wrong.

    Args:
        readings: What :func:`read` returned.

    Returns:
        A number from 0 to 100; NaN without examples.

    >>> from encouraging.metrics import read
    >>> accuracy(read(torch.tensor([[2.0, 1.0], [1.0, 1.0]]), torch.tensor([0, 0])))
    50.0
    """
    return 100 * float(readings.correct.double().mean())


def excess_risk(train: Readings, test: Readings) -> float:
    """Training minus test accuracy, in percentage points: what does not generalise.

    Args:
        train: Readings of training examples.
        test: Readings of test examples.

    Returns:
        The difference.

    >>> from encouraging.metrics import read
    >>> logits = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> excess_risk(read(logits, torch.tensor([0, 0])), read(logits, torch.tensor([0, 1])))
    50.0
    """
    return accuracy(train) - accuracy(test)
