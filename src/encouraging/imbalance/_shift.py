r"""Shifts of the logits by class frequency.

A model that was trained on frequencies :math:`\pi` has learned :math:`p(y \mid x) \propto \pi_y \, p(x \mid y)`. Adding
:math:`\log \pi` to the logits during training (balanced softmax) leaves the frequencies out of what the model learns;
subtracting it afterwards (logit adjustment) takes them out of what it has learned. Both are shifts before the loss or
the decision, so any curve can be used.
"""

from __future__ import annotations

from torch import Tensor

from ..class_counts import Counts, class_counts
from ..errors import DtypeError, ShapeError


def log_prior(counts: Counts) -> Tensor:
    """The logarithm of each class's fraction of the training examples.

    In a training loop compute it once, on the device of the logits: the check of the counts waits for the GPU.

    Args:
        counts: Training examples per class, all at least 1: a tensor, a numpy array, a list or a tuple of C numbers, or
            a mapping from class index to number.

    Returns:
        (classes,) logarithms in float32.

    Raises:
        ArgumentError: A count is below 1.
        DtypeError: The counts are not numbers.

    >>> log_prior([1, 3]).exp()
    tensor([0.2500, 0.7500])
    """
    return _log_fractions(class_counts(counts, "log_prior")).float()


def balanced_logits(logits: Tensor, counts: Counts, tau: float = 1.0) -> Tensor:
    """Logits for the training loss: ``logits + tau * log_prior(counts)``.

    With cross-entropy this is balanced softmax (logit-adjusted loss); any other curve may follow. At test time the
    logits are used as they are.

    Args:
        logits: (..., classes), of the network.
        counts: Training examples per class, all at least 1: a tensor, a numpy array, a list or a tuple of C numbers, or
            a mapping from class index to number.
        tau: How far the frequencies are left out of what the model learns: 1 wholly (balanced softmax), 0 not at all;
            above 1 favours rare classes more.

    Returns:
        Logits of the same shape and dtype, for the training loss.

    Raises:
        ShapeError: There is not one count per class.
        ArgumentError: A count is below 1.
        DtypeError: The logits are not floating-point numbers, or the counts not numbers.

    >>> import torch
    >>> logits, target = torch.zeros(1, 2), torch.tensor([1])
    >>> torch.nn.functional.cross_entropy(balanced_logits(logits, [1, 3]), target).neg().exp()
    tensor(0.7500)
    """
    return logits + tau * _shift(logits, counts, "balanced_logits")


def adjusted_logits(logits: Tensor, counts: Counts, tau: float = 1.0) -> Tensor:
    """Logits for the decision of a model that was trained without shift: ``logits - tau * log_prior(counts)``.

    Needs no training: it can be applied to logits that were kept.

    Args:
        logits: (..., classes), of a model that was trained on these frequencies.
        counts: Training examples per class, all at least 1: a tensor, a numpy array, a list or a tuple of C numbers, or
            a mapping from class index to number.
        tau: How far the frequencies are taken out: 1 wholly, as if all classes had been equally frequent, 0 not at all;
            above 1 favours rare classes more. Choose it on validation examples.

    Returns:
        Logits of the same shape and dtype, whose argmax is the decision.

    Raises:
        ShapeError, ArgumentError, DtypeError: As :func:`balanced_logits`.

    >>> import torch
    >>> adjusted_logits(torch.tensor([[0.0, 1.0]]), [1, 9]).argmax().item()
    0
    """
    return logits - tau * _shift(logits, counts, "adjusted_logits")


def _shift(logits: Tensor, counts: Counts, caller: str) -> Tensor:
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        got = logits.dtype if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise DtypeError(f"{caller}: logits are {got}; expected a tensor of floating point numbers. "
                         "Use torch.as_tensor(logits, dtype=torch.float32).")
    numbers = class_counts(counts, caller)
    if logits.shape[-1:] != numbers.shape:
        raise ShapeError(f"{caller}: class counts: expected one number per class, the shape {tuple(logits.shape[-1:])} "
                         f"for logits of the shape {tuple(logits.shape)}, got {tuple(numbers.shape)}.")
    return _log_fractions(numbers).to(logits.dtype).to(logits.device)  # in this order: not every device has float64


def _log_fractions(counts: Tensor) -> Tensor:
    return (counts / counts.sum()).log()
