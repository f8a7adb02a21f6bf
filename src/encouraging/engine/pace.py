"""Progress of a stage: the speed of an epoch, when a model is evaluated, and how much time is left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .settings import Train

REPORT_EVERY = 1.0  # seconds


@dataclass
class Pace:
    """Called after every update and before every evaluation; calls ``report`` with the progress of the epoch once per
    second, and at once when an evaluation starts.

    The speed is measured from the first update of the epoch in this process, because loaders start before it.
    ``evaluation`` is the duration of the last evaluation in seconds.
    """

    train: Train
    report: Callable[[dict[str, Any]], None]
    evaluation: float = 0.0
    first: tuple[float, int] | None = None  # time and number of batches at the first update
    reported: float = -math.inf  # time of the last report
    speed: float | None = None  # batches per second

    def start_epoch(self) -> None:
        self.first = None

    def __call__(self, stage: int, epoch: int, batch: int, batches: int, stage_step: int, step: int = 0) -> None:
        """``batch`` of ``batches`` are done, and ``step`` updates of the run."""
        now = time.monotonic()
        if self.first is None:
            self.first = now, batch
            return
        if now - self.reported < REPORT_EVERY:
            return
        self.reported = now
        start, first_batch = self.first
        per_second = self.speed = (batch - first_batch) / max(now - start, 1e-9)
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
        """Training is done, and the final evaluation starts now."""
        self.report({"stage": stage, "epoch": epoch, "step": step, "evaluating": True, "seconds_left": None})

    def _seconds(self, epoch: int, batch: int, batches: int, stage_step: int) -> float | None:
        """Seconds until the stage ends; None if that is unknown: with patience, or before a speed was measured."""
        if self.train.patience is not None or self.speed is None:
            return None
        left, last_epoch = (self.train.epochs - epoch) * batches + batches - batch, self.train.epochs
        if self.train.max_steps is not None:
            left = min(left, (self.train.max_steps - stage_step) * self.train.accumulate)
            last_epoch = epoch + math.ceil((left - (batches - batch)) / batches)
        return left / max(self.speed, 1e-9) + self.evaluation * self.train.evaluations(epoch, last_epoch)
