"""What a task is made from, and what it ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from .objective import Objective


class Batching(Protocol):
    """The part of the training settings that a task needs."""

    @property
    def batch_size(self) -> int: ...

    @property
    def shuffle(self) -> bool: ...


@dataclass(frozen=True)
class Setting:
    """One arm and seed of a recipe, on a device: an objective and batch settings for every stage."""

    data: str
    model: str
    objectives: Sequence[Objective]
    trains: Sequence[Batching]
    seed: int
    device: torch.device
    root: str | Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Conclusion:
    """What is measured once, on the last epoch's model: more numbers, tensors to keep, and a diagnosis to draw."""

    numbers: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    diagnosis: Mapping[str, Any] | None = None
