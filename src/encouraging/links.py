"""From logits to the gap: of one label among many classes (softmax), or of each class on its own (sigmoid).

All functions are plain differentiable tensor code over the last dimension, and right for infinite margins: the rivals'
logsumexp is taken over the rivals alone, never as ``log(1 - p)``. It is kept in two parts, the highest rival's logit
and the rivals' exponentials relative to it. Their sum would be rounded at the size of the logits instead of the size of
their differences (logits near 10000 would cost the gap four digits in float32).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .curves._curve import nll


def put(rows: Tensor, index: Tensor, value: float | Tensor) -> Tensor:
    """The rows with ``value``, a number or a column, at the class of each that ``index`` names. Columns have a last
    dimension of 1."""
    if torch.compiler.is_compiling():  # a comparison is part of the loop around it, a scatter a copy and a loop
        return torch.where(torch.arange(rows.shape[-1], device=rows.device) == index, value, rows)
    return rows.scatter(-1, index, value)


def without(logits: Tensor, label: Tensor) -> Tensor:
    """The logits with the label's own set to -inf. ``label`` has a last dimension of 1."""
    return put(logits, label, -torch.inf)


def label_gap(logits: Tensor, label: Tensor, highest: Tensor, log_total: Tensor) -> Tensor:
    """The label's logit minus the rivals' logsumexp, which is ``highest + log_total``. A logit of +inf has no gap: NaN,
    as in torch's cross-entropy."""
    label_logit = logits.gather(-1, label)
    return label_logit.masked_fill(label_logit == torch.inf, torch.nan) - highest - log_total


def rival_weights(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The highest rival's logit, the rivals' exponentials relative to it, and the sum of these, which is 0 where all
    rivals are at -inf."""
    rivals = without(logits, label)
    highest = rivals.detach().amax(-1, keepdim=True)
    highest = highest.masked_fill(highest == -torch.inf, 0.0)
    weights = (rivals - highest).exp()
    return highest, weights, weights.sum(-1, keepdim=True)


def gap_and_rivals(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """The label's gap, and the softmax over its rivals with 0 for the label.

    Where all rivals are at -inf, the gap is infinite and the softmax over them is 0, as is the gap's derivative in
    them.
    """
    highest, weights, total = rival_weights(logits, label)
    empty = total == 0
    total = total.masked_fill(empty, 1.0)
    gap = label_gap(logits, label, highest, total.log().masked_fill(empty, -torch.inf))
    return gap, weights / total


def class_gaps(logits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every class's gap, as if it were the label, and what the gradient needs beside it.

    Returns the gaps, the softmax, the index of the top class and the softmax over the top class's rivals. All classes
    but the top class have p <= 1/2, so ``log(1 - p)`` is exact for them. The top class's gap comes from its own rivals.
    """
    top_class = logits.detach().argmax(-1, keepdim=True)
    gap_of_top, rivals_of_top = gap_and_rivals(logits, top_class)
    logs = without(logits, top_class) - logits.gather(-1, top_class) - nll(gap_of_top)
    probs = logs.exp()
    gaps = (logs - torch.log1p(-probs)).scatter(-1, top_class, gap_of_top)
    softmax = probs.scatter(-1, top_class, torch.sigmoid(gap_of_top))
    return gaps, softmax, top_class, rivals_of_top


def sigmoid_gap(logits: Tensor, positive: Tensor) -> Tensor:
    """Each logit is the gap of its class when the class is present, and minus the gap when it is not."""
    return torch.where(positive, logits, -logits)
