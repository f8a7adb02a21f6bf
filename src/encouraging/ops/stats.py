"""By-products of a loss: what is known about every row once its loss is computed."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..curves import Curve
from ..errors import ArgumentError
from .rows import compute_dtype


class LossStats(NamedTuple):
    """By-products of a loss, detached: for monitoring a run, not for training.

    Attributes:
        p: The label's probability, of the target's shape; NaN where the label is ignored.
        lse: The logsumexp of the logits, of the target's shape.
        argmax: The predicted class, of the target's shape.
        past: One number, the fraction of labelled rows whose ``p`` is above the threshold that the argument ``past``
            of :func:`curve_loss_with_stats` sets.
    """

    p: Tensor
    lse: Tensor
    argmax: Tensor
    past: Tensor


def stats_of(logits: Tensor, target: Tensor, ignore_index: int, threshold: float, shape: torch.Size) -> LossStats:
    """The by-products of rows of logits (N, C) with labels (N), in plain operations, reshaped to ``shape``."""
    logits = logits.detach().to(compute_dtype(logits.dtype))
    labels = target.long()
    labelled = labels != ignore_index
    lse = logits.logsumexp(-1)
    # Not own - lse, which would be rounded at the size of the logits.
    surprise = F.cross_entropy(logits, torch.where(labelled, labels, 0), reduction="none")
    p = torch.where(labelled, (-surprise).exp(), torch.nan)
    past = (p > threshold).sum() / labelled.sum()
    return LossStats(p.reshape(shape), lse.reshape(shape), logits.argmax(-1).reshape(shape), past)


def threshold_of(curve: Curve, past: float | None) -> float:
    """The probability from which rows are counted: ``past``, or where the curve itself changes (``log_end``, ``start``,
    ``halt``), or 1/2."""
    if past is not None:
        if isinstance(past, bool) or not isinstance(past, int | float) or not 0 <= past <= 1:
            raise ArgumentError(f"past={past!r}: expected a probability from 0 to 1, or None.")
        return float(past)
    for name in ("log_end", "start", "halt"):
        if name in curve.params:
            return float(curve.params[name])
    return 0.5
