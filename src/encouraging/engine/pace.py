"""How fast an epoch goes, when a model is evaluated, and when the stage will be over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .settings import Train

TELL_EVERY = 1.0  # seconds


@dataclass
class Pace:
    """Told of every update and evaluation; it tells ``report`` once per second how far the epoch is, and at once that a
    model is evaluated.

    The speed is that since the first update of the epoch in this process: the loaders start before it. ``evaluation``
    is how long the last evaluation took.
    """

    train: Train
    report: Callable[[dict[str, Any]], None]
    evaluation: float = 0.0
    first: tuple[float, int] | None = None
    told: float = -math.inf
    speed: float | None = None  # batches per second

    def start_epoch(self) -> None:
        self.first = None

    def __call__(self, stage: int, epoch: int, batch: int, batches: int, stage_step: int, step: int = 0) -> None:
        """``batch`` of ``batches`` are done, and ``step`` updates of the run."""
        now = time.monotonic()
        if self.first is None:
            self.first = now, batch
            return
        if now - self.told < TELL_EVERY:
            return
        self.told = now
        start, done = self.first
        per_second = self.speed = (batch - done) / max(now - start, 1e-9)
        last = batches  # of this epoch
        if self.train.max_steps is not None:
            last = min(last, batch + (self.train.max_steps - stage_step) * self.train.accumulate)
        self.report({"stage": stage, "epoch": epoch, "batch": batch, "batches": last, "step": step,
                     "batches_per_second": per_second, "examples_per_second": per_second * self.train.batch_size,
                     "seconds_left": self._seconds(epoch, batch, batches, stage_step)})

    def evaluate(self, stage: int, epoch: int, batches: int, stage_step: int, step: int = 0) -> None:
        """The updates of an epoch are done, and its model is evaluated from now on."""
        left = self._seconds(epoch, batches, batches, stage_step) if self.evaluation else None
        self.report({"stage": stage, "epoch": epoch, "step": step, "evaluating": True, "seconds_left": left})

    def conclude(self, stage: int, epoch: int, step: int = 0) -> None:
        """All is trained, and what is measured at the end is measured from now on."""
        self.report({"stage": stage, "epoch": epoch, "step": step, "evaluating": True, "seconds_left": None})

    def _seconds(self, epoch: int, batch: int, batches: int, stage_step: int) -> float | None:
        """Until the stage is over. With patience nobody knows when that is, nor before anything was measured."""
        if self.train.patience is not None or self.speed is None:
            return None
        left = (self.train.epochs - epoch) * batches + batches - batch
        if self.train.max_steps is not None:
            left = min(left, (self.train.max_steps - stage_step) * self.train.accumulate)
        return left / max(self.speed, 1e-9) + self.evaluation * self._evaluations(epoch)

    def _evaluations(self, epoch: int) -> int:
        if self.train.max_steps is not None:
            return 1
        return sum(map(self.train.evaluates, range(epoch, self.train.epochs + 1)))
