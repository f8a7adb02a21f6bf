"""What tasks with one label per example share: the objective of a stage, its probe, accuracy and cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import curves
from ..curves import Curve
from ..data import Clock
from ..engine import Metric
from ..engine.metric import HIDDEN
from ..metrics import correct
from .base import BaseTask, Batch
from .objective import Objective
from .spec import StageSpec

POSTERIOR = (
    Metric("posterior.ece", "calibration error, read through the loss", digits=4, better="lower", low=0, high=1,
           **HIDDEN),
    Metric("posterior.nll", "negative log-likelihood, read through the loss", digits=3, better="lower", low=0,
           **HIDDEN),
)


def readable_curve(stage: StageSpec, last: Mapping[str, Any]) -> Curve | None:
    """The curve through which the probabilities of a finished run can be read; ``last`` is the line of its last epoch.

    None for cross-entropy, where this changes nothing, for curves without an optimum between 0 and 1, and where labels
    or logits are changed before the curve sees them. A model of the best epoch was trained with the curve of that
    epoch, which may be from before the bonus.
    """
    config, best = stage.objective, stage.train.conclude_on == "best"
    if (config.loss != "curve" or config.link != "softmax" or config.label_smoothing or config.margin is not None
            or config.reweight_from_epoch is not None or config.balanced_softmax or config.ldam_margin is not None
            or config.logit_scale != 1 or config.logit_norm is not None):
        return None
    if best and any(change.from_update is not None for change in config.changes):
        return None  # lines do not say which update of the stage was the last of an epoch
    epoch = last.get("best_epoch" if best else "epoch", 1_000_000)
    objective = config.at(Clock(1, epoch, 1_000_000_000))
    without = (curves.cross_entropy, curves.normal, curves.aggressive, curves.square)
    return None if objective.label_smoothing or isinstance(objective.curve, without) else objective.curve


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
