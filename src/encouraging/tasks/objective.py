"""The loss at one point of training: of a batch, with the number that its mean is over."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .. import curves
from ..curves import Curve
from ..engine import Loss
from ..losses import curve_loss, loss_divisor, mirror_mse_loss, sigmoid_curve_loss
from ..margins import logit_norm

DIVISORS = ("weights", "tokens", "examples", "positives")


@dataclass(frozen=True)
class Objective:
    """The loss at one point of training; hashable, so that the engine notices when it changes."""

    curve: Curve | None
    label_smoothing: float = 0.0
    match_norm: bool = False
    weighted: bool = False
    link: str = "softmax"
    bonus: bool = False
    ignore_index: int | None = None
    divisor: str | float = "weights"
    bonus_divisor: str | None = None
    logit_norm: float | None = None
    alpha: float | None = None
    halt_on: str = "likelihood"

    @property
    def negative_curve(self) -> Curve | None:
        """The curve of absent classes on the sigmoid link; None if it is that of present classes."""
        if self.halt_on == "logit" and isinstance(self.curve, curves.halted_focal):
            return self.curve.on_logit()
        return None

    def loss(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Loss:
        """The loss of a batch, which may be one of several of an update.

        ``weight`` holds one number per class and is used only if the objective is ``weighted``. If every target is
        ignored, mean and count are 0, and the batch does not contribute to the update.
        """
        weight = weight if self.weighted else None
        if self.logit_norm is not None:
            logits = logit_norm(logits, self.logit_norm)
        if not target.numel():  # this rank has no example of a small batch
            return Loss(logits.sum() * 0.0, 0, least=self._least)
        if self.curve is None:
            return Loss(mirror_mse_loss(logits, target, bonus=self.bonus, link=self.link), target.shape[0])
        if self.bonus_divisor == "examples" and weight is not None:
            return self._bonus_per_example(logits, target, weight)
        if self.link == "softmax" and self.divisor == "weights" and self.ignore_index is None:
            count: int | Tensor = target.numel()
            if target.is_floating_point():
                count = target.shape[0] if target.ndim < 3 else target[:, 0].numel()
            elif weight is not None:
                count = weight[target].sum()
            return Loss(self._reduced(logits, target, weight, "mean"), count)
        total = self._reduced(logits, target, weight, "sum")
        if not isinstance(self.divisor, str):  # one number per update, however many batches it has
            return Loss(total / self.divisor, 0, total=total, least=self._least)
        count = self._count(target, weight)
        # A CUDA graph can record a fill but not a copy from the host.
        counted = count.to(total.dtype) if isinstance(count, Tensor) else torch.full_like(total, count)
        if self.divisor == "positives":
            return Loss(total / counted.clamp(min=1), counted, total=total, least=self._least)
        return Loss(total / counted.clamp(min=torch.finfo(total.dtype).tiny), counted)

    def _bonus_per_example(self, logits: Tensor, target: Tensor, weight: Tensor) -> Loss:
        """Cross-entropy divided by the sum of the batch's class weights, plus the bonus (the difference of the curve
        and cross-entropy, with the same class weights) divided by the number of examples."""
        total = self._reduced(logits, target, weight, "sum")
        cross_entropy = replace(self, curve=curves.cross_entropy())._reduced(logits, target, weight, "sum")
        weights = weight[target].sum()
        return Loss(cross_entropy / weights + (total - cross_entropy) / target.shape[0], weights)

    def _reduced(self, logits: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
        assert self.curve is not None
        if self.link == "sigmoid":
            return sigmoid_curve_loss(logits, target, self.curve, weight, reduction, alpha=self.alpha,
                                      negative_curve=self.negative_curve)
        return curve_loss(logits, target, self.curve, weight, self._ignored, reduction, self.label_smoothing,
                          match_norm=self.match_norm)

    @property
    def _least(self) -> float:
        """The smallest number by which the sum of an update is divided."""
        if not isinstance(self.divisor, str):
            return float(self.divisor)
        return 1.0 if self.divisor == "positives" else 0.0

    @property
    def _ignored(self) -> int:
        return -100 if self.ignore_index is None else self.ignore_index

    def _count(self, target: Tensor, weight: Tensor | None) -> int | Tensor:
        """This batch's contribution to the divisor of the update."""
        if self.link == "sigmoid":
            if self.divisor == "positives":
                return (target > 0).sum()
            return target.shape[0] if self.divisor == "examples" else target.numel()
        if target.is_floating_point():
            return loss_divisor(target)
        counted = target != self._ignored
        if self.divisor == "positives":
            return ((target > 0) & counted).sum()
        if self.divisor == "examples":
            return (counted if target.ndim < 2 else counted.flatten(1).any(1)).sum()
        if self.divisor == "weights" and weight is not None:
            return (weight[target.masked_fill(~counted, 0)] * counted).sum()
        return counted.sum()
