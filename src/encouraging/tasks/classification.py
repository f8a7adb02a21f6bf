"""What tasks with one label per example share: the objective of a stage, its probe, accuracy and cross-entropy."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import curves
from ..data import Clock
from ..metrics import correct
from .base import BaseTask, Batch
from .objective import Objective


class Classification(BaseTask[Batch]):
    """A task whose loss also depends on the stage, which may have its own class weights."""

    def objective(self, clock: Clock) -> tuple[int, Objective]:
        return clock.stage, self.spec.stages[clock.stage - 1].objective.at(clock)

    def probes(self, clock: Clock) -> dict[str, tuple[int, Objective]]:
        return {"ce": (clock.stage, Objective(curves.cross_entropy()))}

    @staticmethod
    def _measure(logits: Tensor, labels: Tensor, prefix: str = "") -> dict[str, float]:
        """Accuracy in percent and mean cross-entropy of the test data, or of the validation data (``val_``)."""
        labels = labels.to(logits.device)
        right, mean_loss = torch.stack([correct(logits, labels).sum().double(),
                                        F.cross_entropy(logits, labels).double()]).tolist()
        return {f"{prefix}accuracy": 100 * right / len(labels), f"{prefix or 'test_'}loss": mean_loss}
