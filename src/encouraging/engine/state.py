"""The position of a run, its log, and the hooks that the training loop calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..data import Clock


@dataclass
class Position:
    """The position of a run: epochs are counted from 1; ``batch``, ``step`` and ``stage_step`` are numbers of finished
    batches of the epoch, updates of the run and updates of the stage."""

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
    """The results of the run so far; a checkpoint holds all of them."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    finished: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    samples: float = 0.0
    resumed: int = 0
    probed: dict[str, float] = field(default_factory=dict)  # sums of gradient norms at equal weights, and their number
    epoch_probed: dict[str, float] = field(default_factory=dict)
    trace: list[dict[str, float]] = field(default_factory=list)
    shared_epochs: int = 0  # epochs that another run trained; see branches.py


@dataclass
class Hooks:
    """What the training loop calls.

    ``saver`` is called with tensors and state, ``on_epoch`` with a line and the best epoch of the stage so far,
    ``keep`` with the weights of an epoch that may go into an average, and ``on_progress`` with the progress of an
    epoch. ``stop`` returns a reason to stop, or None. ``leaves`` has the epochs of the first stage after which other
    runs may start; ``saver`` is called with their number then."""

    saver: Callable[[int, dict[str, Tensor], dict[str, Any], int | None], None]
    on_epoch: Callable[[dict[str, Any], int | None], None]
    stop: Callable[[], str | None]
    keep: Callable[[int, Mapping[str, Tensor], int], None] = lambda epoch, weights, number: None
    on_progress: Callable[[dict[str, Any]], None] | None = None
    leaves: frozenset[int] = frozenset()
