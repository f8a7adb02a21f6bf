"""From logits to the gap: of one label among many classes (softmax), or of each class on its own (sigmoid).

All functions are plain differentiable tensor code over the last dimension, right for infinite margins: the rivals'
logsumexp is taken over the rivals alone, never as ``log(1 - p)``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def without(logits: Tensor, label: Tensor) -> Tensor:
    """The logits with the label's own set to -inf. ``label`` has a last dimension of 1."""
    return logits.scatter(-1, label, -torch.inf)


def logsumexp(logits: Tensor) -> Tensor:
    """logsumexp over the classes, kept as a dimension; -inf, with zero derivatives, where every logit is -inf."""
    top = logits.detach().amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    total = (logits - top).exp().sum(-1, keepdim=True)
    empty = total == 0
    return (total.masked_fill(empty, 1.0).log() + top).masked_fill(empty, -torch.inf)


def label_gap(logits: Tensor, label: Tensor, rivals: Tensor) -> Tensor:
    """The label's logit minus the rivals' logsumexp. A logit of +inf has no gap: NaN, as in torch's cross-entropy."""
    own = logits.gather(-1, label)
    return own.masked_fill(own == torch.inf, torch.nan) - rivals


def rival_softmax(others: Tensor, rivals: Tensor) -> Tensor:
    """The softmax over the rivals (0 for the label, and everywhere where there is no rival to speak of)."""
    return (others - rivals.masked_fill(rivals == -torch.inf, 0.0)).exp()


def class_gaps(logits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every class's gap, as if it were the label, and what the gradient needs beside it.

    Returns the gaps, the softmax, the index of the top class and the softmax over the top class's rivals. All classes
    but the top one have p <= 1/2, so ``log(1 - p)`` is exact for them; the top one's gap comes from its own rivals.
    """
    top = logits.detach().argmax(-1, keepdim=True)
    others = without(logits, top)
    rivals = logsumexp(others)
    best = logits.gather(-1, top)
    logs = others - torch.logaddexp(best, rivals)
    probs = logs.exp()
    gap_of_top = label_gap(logits, top, rivals)
    gaps = (logs - torch.log1p(-probs)).scatter(-1, top, gap_of_top)
    softmax = probs.scatter(-1, top, torch.sigmoid(gap_of_top))
    return gaps, softmax, top, rival_softmax(others, rivals)


def sigmoid_gap(logits: Tensor, positive: Tensor) -> Tensor:
    """Each logit is the gap of its class when the class is present, and minus the gap when it is not."""
    return torch.where(positive, logits, -logits)
