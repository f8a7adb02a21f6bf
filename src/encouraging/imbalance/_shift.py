r"""Shifts of the logits by class frequency.

A model that was trained on frequencies :math:`\pi` has learned :math:`p(y \mid x) \propto \pi_y \, p(x \mid y)`. Adding
:math:`\log \pi` to the logits during training (balanced softmax) leaves the frequencies out of what the model learns;
subtracting it afterwards (logit adjustment) takes them out of what it has learned. Both are shifts before the loss or
the decision, so any curve can be used.
"""

from __future__ import annotations

from torch import Tensor

from ..errors import ArgumentError, ShapeError


def log_prior(counts: Tensor) -> Tensor:
    """The logarithm of each class's fraction of the training examples.

    In a training loop compute it once, on the device of the logits: the check of the counts waits for the GPU.

    Args:
        counts: (classes,) training examples per class, all at least 1.

    >>> import torch
    >>> log_prior(torch.tensor([1, 3])).exp()
    tensor([0.2500, 0.7500])
    """
    if counts.ndim != 1 or not len(counts) or bool((counts < 1).any()):
        raise ArgumentError(f"log_prior: expected at least one training example per class, got counts of the shape "
                            f"{tuple(counts.shape)}" + (f" from {counts.min().item():g}." if counts.numel() else "."))
    counts = counts.double()
    return (counts / counts.sum()).log().float()


def balanced_logits(logits: Tensor, counts: Tensor, tau: float = 1.0) -> Tensor:
    """Logits for the training loss: ``logits + tau * log_prior(counts)``.

    With cross-entropy this is balanced softmax (logit-adjusted loss); any other curve may follow. At test time the
    logits are used as they are.

    >>> import torch
    >>> logits, target = torch.zeros(1, 2), torch.tensor([1])
    >>> torch.nn.functional.cross_entropy(balanced_logits(logits, torch.tensor([1, 3])), target).neg().exp()
    tensor(0.7500)
    """
    return logits + tau * _shift(logits, counts)


def adjusted_logits(logits: Tensor, counts: Tensor, tau: float = 1.0) -> Tensor:
    """Logits for the decision of a model that was trained without shift: ``logits - tau * log_prior(counts)``.

    Needs no training: it can be applied to logits that were kept.

    >>> import torch
    >>> adjusted_logits(torch.tensor([[0.0, 1.0]]), torch.tensor([1, 9])).argmax().item()
    0
    """
    return logits - tau * _shift(logits, counts)


def _shift(logits: Tensor, counts: Tensor) -> Tensor:
    if logits.shape[-1:] != counts.shape:
        raise ShapeError(f"class counts: expected one number per class, the shape ({logits.shape[-1]},) for logits of "
                         f"the shape {tuple(logits.shape)}, got {tuple(counts.shape)}.")
    return log_prior(counts).to(logits.device, logits.dtype)
