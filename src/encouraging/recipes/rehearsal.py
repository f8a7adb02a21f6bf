"""Try a recipe for a minute: how fast an arm is trained, and how large its checkpoints are. Nothing is written."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..engine import Interrupted
from ..engine.checkpoint import KEEP
from ..engine.distributed import World
from ..engine.random_state import seed_everything
from ..engine.single_example import explain_single_example_batches
from ..engine.stages import prepare
from ..engine.train import Hooks, Log, Position, Trainer
from ..errors import DivergenceError
from ..tasks import build_task
from .schema import Recipe


@dataclass(frozen=True)
class Rehearsal:
    """What was measured: examples per epoch and per second, seconds per evaluation (0: there was no time for it), bytes
    of a checkpoint and of a run directory."""

    took: float
    examples: int
    per_second: float
    evaluation: float
    checkpoint: int
    run_bytes: int


@dataclass
class _Clock:
    """Stops the training when the time is over, and records when each update was finished."""

    start: float
    end: float
    stamps: list[tuple[float, int]] = field(default_factory=list)
    at: Position = field(default_factory=Position)
    bytes: int = 0
    kept_best: bool = False
    last: float = 0.0  # seconds of the last update, or of a piece of an evaluation

    def stop(self) -> str | None:
        """Called after an update or a piece of an evaluation: the next one starts only if it would end in time."""
        now = time.monotonic()
        self.last = now - (self.stamps[-1][0] if self.stamps else self.start)
        self.stamps.append((now, self.at.step))
        return None if self.has_time() else "the end of the rehearsal"

    def has_time(self) -> bool:
        """Whether there is time for something that takes as long as the last update."""
        return time.monotonic() + self.last < self.end

    def save(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any], branch: int | None) -> None:
        self.bytes = sum(tensor.nbytes for tensor in tensors.values())
        self.kept_best = any(name.startswith("best.") for name in tensors)


def rehearse(recipe: Recipe, arm: str, device: torch.device, data: str | None, seconds: float) -> Rehearsal:
    """Train the first stage of an arm for a while, and evaluate it once if that fits into a third of the time.

    Args:
        recipe: the recipe, with overrides.
        arm: one of its arms; it starts from freshly initialised weights, even if it has an ``after``.
        device: where to train.
        data: the data directory; by default that of the environment.
        seconds: the time limit; but at least one update is made, however long it takes.
    """
    seed_everything(recipe.seeds[0])
    spec = recipe.task_spec(arm, recipe.seeds[0], device, data)
    task, plan = build_task(recipe.task, spec), spec.stages[0]
    model = task.build()
    if device.type == "cuda" and plan.train.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    prepare(task, model, plan)
    start = time.monotonic()
    clock = _Clock(start, start + seconds * 2 / 3)
    hooks = Hooks(saver=clock.save, on_epoch=lambda line, best: None, stop=clock.stop)
    trainer = Trainer(task, model, plan, clock.at, Log(), hooks, World(), device, spec.seed)
    _train(trainer, clock)
    speed = _speed(clock, trainer)
    clock.end = start + seconds
    evaluation = _evaluate(trainer) if clock.has_time() else 0.0
    trainer.save()
    length = trainer.source.length(clock.at.clock)
    size = sum(tensor.nbytes for tensor in trainer.evaluated.state_dict().values())
    checkpoint = clock.bytes + (0 if clock.kept_best else size)
    averaged = plan.train.average_last * size if plan.train.conclude_on == "average" else 0
    return Rehearsal(time.monotonic() - start, length * plan.train.batch_size, speed, evaluation, checkpoint,
                     KEEP * checkpoint + size + averaged + task.kept_bytes())


def _evaluate(trainer: Trainer) -> float:
    """Seconds of an evaluation; 0 if the time was over before its end."""
    start = time.monotonic()
    try:
        trainer.evaluate()
    except Interrupted:
        return 0.0
    return time.monotonic() - start


def _train(trainer: Trainer, clock: _Clock) -> None:
    """Train without evaluations until the time or the stage is over."""
    try:
        while not trainer.over():
            with explain_single_example_batches(trainer.train):
                trainer.train_epoch()
            clock.at.epoch, clock.at.batch = clock.at.epoch + 1, 0
    except (Interrupted, DivergenceError):
        return


def _speed(clock: _Clock, trainer: Trainer) -> float:
    """Examples per second. The first updates, in which loaders, kernels and graphs start, are left out if there are
    enough others."""
    if trainer.device.type == "cuda":
        torch.cuda.synchronize()
    stamps = [(clock.start, 0), *clock.stamps]
    then, first = stamps[min(10, (len(stamps) - 1) // 2)]  # at least one update follows it
    now, last = time.monotonic(), clock.at.step
    return max(last - first, 1) * trainer.train.batch_size * trainer.train.accumulate / max(now - then, 1e-9)
