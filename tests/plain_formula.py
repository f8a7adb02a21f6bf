"""The definition of every loss over a softmax, class by class in float64 autograd: what the fast forms are held to."""

from __future__ import annotations

import torch
from torch import Tensor

from encouraging import curves

CURVES = [curves.cross_entropy(), curves.normal(), curves.conservative(), curves.aggressive(0.4),
          curves.power(2.0, 0.5), curves.poly(1.5), curves.focal(2.0), curves.halted_focal(2.0, 0.4), curves.square(),
          curves.custom(lambda gap: -gap.atan(), lambda gap: 1 / (1 + gap * gap), "arc"),
          curves.from_probability(lambda p: 1 - p.sqrt(), "root")]


def plain_loss(logits: Tensor, target: Tensor, curve: curves.Curve, weight: Tensor | None = None,
               ignore_index: int = -100, reduction: str = "mean", smoothing: float = 0.0) -> Tensor:
    """``(1-s) w_y phi(p_y) + s/C sum_k w_k phi(p_k)``, each class's gap from its own rivals alone."""
    logits = logits.double()
    classes = logits.shape[1]
    gaps = torch.stack([logits[:, k] - torch.cat([logits[:, :k], logits[:, k + 1:]], 1).logsumexp(1)
                        for k in range(classes)], 1)
    ignored = target == ignore_index
    label = target.masked_fill(ignored, 0)
    weight = logits.new_ones(classes) if weight is None else weight.double()
    values = curve.value(gaps) * weight
    rows = values.gather(1, label[:, None])[:, 0]
    if smoothing:
        rows = (1 - smoothing) * rows + smoothing * values.mean(1)
    rows = rows.masked_fill(ignored, 0.0)
    if reduction == "none":
        return rows
    return rows.sum() if reduction == "sum" else rows.sum() / weight[label].masked_fill(ignored, 0.0).sum()
