"""What tasks of sequences share: a mean over tokens, cross-entropy as the probe, and the likelihood of scored text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch

from .. import curves
from ..data import Clock
from ..engine import Predictions
from .base import BaseTask, Batch
from .objective import Objective


class TokenTask(BaseTask[Batch]):
    """A task whose batches are sequences; ``ignored`` is the label of what does not count."""

    counted = "tokens"
    ignored: ClassVar[int]

    def objective(self, clock: Clock) -> Objective:
        objective = self.spec.stages[clock.stage - 1].objective.at(clock)
        return replace(objective, ignore_index=self.ignored, divisor="tokens")

    def probes(self, clock: Clock) -> dict[str, Objective]:
        return {"ce": replace(self.objective(clock), curve=curves.cross_entropy(), match_norm=False)}

    @staticmethod
    def _likelihood(predictions: Sequence[Predictions], name: str) -> dict[str, float]:
        """Cross-entropy and accuracy per token, from pieces with ``scored``: the summed cross-entropy of the labels,
        how many are the most probable token, and how many there are."""
        rows = torch.tensor([part["scored"] for part in predictions if "scored" in part], dtype=torch.float64)
        loss, right, count = rows[rows[:, 0].argsort()].sum(0).tolist()  # the order must not depend on ranks
        return {f"{name}_loss": loss / count, f"{name}_accuracy": 100 * right / count}
