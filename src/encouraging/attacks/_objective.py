"""What an attack maximises: one number per example, from logits (N, C) and labels (N)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import ArgumentError, did_you_mean
from ..metrics import margin

Objective = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """The paper's choice, whose gradient vanishes on confident examples. In float32 the part on the label, 1 - p,
    rounds to 0 from a margin of about 17 on, and all of it from about 100 on: the attack does not move then."""
    return F.cross_entropy(logits, label, reduction="none")


def negative_margin(logits: Tensor, label: Tensor) -> Tensor:
    """The best rival's logit minus the label's. Its gradient never vanishes."""
    return -margin(logits, label)


def difference_of_logits_ratio(logits: Tensor, label: Tensor) -> Tensor:
    """The negative margin divided by the distance from the largest logit to the third largest (Croce and Hein, 2020).

    With two classes, or two that are not masked out by -inf, there is no third logit: then it is the negative margin
    alone, which leads the attacks of this package along the same path, because their steps have a fixed length whatever
    the scale of the gradient.
    """
    if logits.shape[1] < 3:
        return negative_margin(logits, label)
    largest = logits.topk(3, 1).values
    distance = largest[:, 0] - largest[:, 2]
    return negative_margin(logits, label) / torch.where((distance > 0) & distance.isfinite(), distance, 1.0)


def negative_label_logit(logits: Tensor, label: Tensor) -> Tensor:
    """Minus the label's own logit, whatever its rivals do: what the authors' attacks on L-Softmax use."""
    return -logits.gather(1, label[:, None])[:, 0]


OBJECTIVES: dict[str, Objective] = {
    "ce": cross_entropy,
    "margin": negative_margin,
    "dlr": difference_of_logits_ratio,
    "label_logit": negative_label_logit,
}


def objective(name: str) -> Objective:
    """The objective of this name."""
    if name not in OBJECTIVES:
        raise ArgumentError(f"loss={name!r}: expected one of {', '.join(map(repr, OBJECTIVES))}, the quantity that the "
                            f"attack increases.{did_you_mean(name, OBJECTIVES)}")
    return OBJECTIVES[name]
