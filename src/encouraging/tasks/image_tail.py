"""Long-tailed images: the imbalance of the data, and accuracy on classes with many, medium and few training images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator
from torch import Tensor

from ..engine import Metric
from ..engine.metric import HIDDEN, PERCENT
from ..engine.settings import Frozen
from ..imbalance import adjusted_logits
from ..metrics import read, shot_accuracy, shot_groups


class Shots(Frozen):
    """``options.shots``: a class with more than ``many`` training images is frequent, one with fewer than ``few`` is
    rare, and the others are medium."""

    many: int = Field(default=100, ge=0)
    few: int = Field(default=20, ge=0)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.few > self.many:
            raise ValueError(f"shots with many = {self.many} and few = {self.few}: expected few to be at most many")
        return self


class TailOptions(Frozen):
    """The ``options`` of a recipe about long-tailed data."""

    imbalance: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    shots: Shots | None = None


def tail_metrics(options: TailOptions) -> list[Metric]:
    """The additional metrics of a recipe with ``shots``."""
    if options.shots is None:
        return []
    many, few = options.shots.many, options.shots.few
    return [
        Metric("shots.many", "accuracy, many", **PERCENT,
               about=f"Many, medium and few: classes with more than {many}, {few} to {many} and fewer than {few} "
                     "training images."),
        Metric("shots.medium", "accuracy, medium", **PERCENT),
        Metric("shots.few", "accuracy, few", **PERCENT),
        Metric("adjusted.accuracy", "accuracy, logits adjusted", **PERCENT,
               about="Logits adjusted: the logarithm of each class's frequency is subtracted after training."),
        *(Metric(f"adjusted.shots.{group}", f"accuracy, {group}, logits adjusted", **PERCENT, **HIDDEN)
          for group in ("many", "medium", "few")),
    ]


class Tail:
    """Measures by class frequency; ``counts`` are the training images per class."""

    def __init__(self, shots: Shots, counts: Tensor) -> None:
        self.shots, self.counts = shots, counts.cpu()

    def accuracies(self, correct: Tensor, labels: Tensor) -> dict[str, float]:
        """Accuracy per group of classes; a group without test images is left out."""
        groups = shot_groups(self.counts.to(labels.device)[labels], self.shots.many, self.shots.few)
        return {f"shots.{name}": 100 * float(correct[members].double().mean())
                for name, members in groups.items() if bool(members.any())}

    def adjusted(self, logits: Tensor, labels: Tensor) -> dict[str, Any]:
        """Accuracy after subtracting the log prior from the logits of the trained model."""
        readings = read(adjusted_logits(logits, self.counts), labels)
        return {"accuracy": 100 * float(readings.correct.double().mean()),
                "shots": shot_accuracy(readings, self.counts, self.shots.many, self.shots.few)}


def class_energies(diagnosis: Mapping[str, Any], chosen: Mapping[str, int]) -> dict[str, float]:
    """The mean energy of the chosen classes' examples on their label; classes without test examples are left out."""
    profiles = diagnosis["energy"]["profiles"]
    return {name: profiles[str(label)]["energies"][label] for name, label in chosen.items() if str(label) in profiles}
