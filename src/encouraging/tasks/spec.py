"""The part of a recipe from which a task is created, for one arm and seed on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from ..data import ClassBalanced, Sampler, Shuffled
from ..engine.settings import Frozen, StagePlan
from .objective_config import ObjectiveConfig


class Sampling(Frozen):
    """How the examples of an epoch are chosen."""

    kind: Literal["shuffled", "sequential", "class_balanced"] = "shuffled"
    per_class: int | None = Field(default=None, gt=0)


@dataclass(frozen=True)
class StageSpec(StagePlan):
    """One stage of training with its objective and the sampling of its examples."""

    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    sampling: Sampling = field(default_factory=Sampling)

    def sampler(self, labels: Tensor) -> Sampler:
        """The sampler for training examples with these labels."""
        if self.sampling.kind == "class_balanced":
            return ClassBalanced(labels, self.train.batch_size, self.sampling.per_class)
        return Shuffled(len(labels), self.train.batch_size, self.train.shuffle and self.sampling.kind == "shuffled")


@dataclass(frozen=True)
class TaskSpec:
    """One arm and seed of a recipe. ``root`` is the data directory, ``folder`` that of the recipe's file."""

    data: str
    model: str
    stages: Sequence[StageSpec]
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    root: str | Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)
    folder: str | None = None
