"""Where a run stands, what it has found out so far, and whom it tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..data import Clock


@dataclass
class Position:
    """Where a run stands: epochs count from 1, batches of the epoch and updates count those that are done."""

    stage: int = 1
    epoch: int = 1
    batch: int = 0
    step: int = 0
    stage_step: int = 0

    @property
    def clock(self) -> Clock:
        return Clock(self.stage, self.epoch, self.stage_step)


@dataclass
class Log:
    """What the run has found out so far; a checkpoint holds all of it."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    finished: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    samples: float = 0.0
    resumed: int = 0
    probed: dict[str, float] = field(default_factory=dict)  # sums of gradient norms at equal weights, and their number
    epoch_probed: dict[str, float] = field(default_factory=dict)
    trace: list[dict[str, float]] = field(default_factory=list)
    shared_epochs: int = 0  # that were trained in another run; see branches.py


@dataclass
class Hooks:
    """What the loop calls: ``saver`` with tensors and state, ``on_epoch`` with a line and the number of the best epoch
    of the stage so far, ``stop`` for a reason to end, ``keep`` with the weights of an epoch that may go into an
    average, ``on_progress`` with how far an epoch is. ``leaves`` has the epochs of the first stage at whose ends other
    runs may start; ``saver`` is told which it is."""

    saver: Callable[[int, dict[str, Tensor], dict[str, Any], int | None], None]
    on_epoch: Callable[[dict[str, Any], int | None], None]
    stop: Callable[[], str | None]
    keep: Callable[[int, Mapping[str, Tensor], int], None] = lambda epoch, weights, number: None
    on_progress: Callable[[dict[str, Any]], None] | None = None
    leaves: frozenset[int] = frozenset()
