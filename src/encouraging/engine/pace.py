"""How fast an epoch goes, and when the stage will be over."""

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
    """Told of every update; once per second it tells ``report`` how far the epoch is.

    The speed is that since the first update of the epoch in this process: the loaders start before it. ``evaluation``
    is how long the last evaluation took.
    """

    train: Train
    report: Callable[[dict[str, Any]], None]
    evaluation: float = 0.0
    first: tuple[float, int] | None = None
    told: float = -math.inf

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
        per_second = (batch - done) / max(now - start, 1e-9)
        left = None  # with patience nobody knows when it ends
        if self.train.patience is None:
            left = self._left(epoch, batch, batches, stage_step) / max(per_second, 1e-9) \
                + self.evaluation * self._evaluations(epoch)
        self.report({"stage": stage, "epoch": epoch, "batch": batch, "batches": batches, "step": step,
                     "batches_per_second": per_second, "examples_per_second": per_second * self.train.batch_size,
                     "seconds_left": left})

    def _left(self, epoch: int, batch: int, batches: int, stage_step: int) -> float:
        left = (self.train.epochs - epoch) * batches + batches - batch
        if self.train.max_steps is not None:
            left = min(left, (self.train.max_steps - stage_step) * self.train.accumulate)
        return left

    def _evaluations(self, epoch: int) -> int:
        if self.train.max_steps is not None:
            return 1
        return sum(map(self.train.evaluates, range(epoch, self.train.epochs + 1)))
