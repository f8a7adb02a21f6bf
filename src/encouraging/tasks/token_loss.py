"""The loss of sequences: output layer and loss in one, so that the logits of all tokens are never stored."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..engine import Loss
from ..losses import linear_curve_loss
from .objective import Objective


def token_loss(objective: Objective, hidden: Tensor, weight: Tensor, labels: Tensor,
               fused: bool | None = None) -> Loss:
    """The mean loss per token that is not ignored.

    Args:
        objective: the current loss; its ``ignore_index`` marks padding.
        hidden: (..., D), the input of the output layer.
        weight: (C, D), the weight of the output layer.
        labels: (...), the next token at every position.
        fused: whether the output layer and the loss are computed together; by default on a GPU, where it saves memory
            and time. On a CPU it takes about a quarter longer. ``match_norm`` needs all logits and is never fused.

    Under autocast the output layer and the loss still run in float32: margins reach a hundred, where bfloat16 has steps
    of a half.
    """
    rows, flat = hidden.flatten(0, -2), labels.flatten()
    with torch.autocast(hidden.device.type, enabled=False):
        rows, weight = rows.float(), weight.float()
        if not (rows.is_cuda if fused is None else fused) or not can_fuse(objective) or not flat.numel():
            return objective.loss(F.linear(rows, weight), flat)
        assert objective.curve is not None
        assert objective.ignore_index is not None
        total = linear_curve_loss(rows, weight, flat, objective.curve, ignore_index=objective.ignore_index,
                                  reduction="sum", label_smoothing=objective.label_smoothing)
        count = (flat != objective.ignore_index).sum().to(total.dtype)
        return Loss(total / count.clamp(min=1), count)


def can_fuse(objective: Objective) -> bool:
    """Whether the output layer can be computed together with the loss."""
    return (objective.curve is not None and objective.link == "softmax" and not objective.match_norm
            and not objective.weighted and objective.logit_norm is None and objective.divisor == "tokens"
            and objective.ignore_index is not None)
