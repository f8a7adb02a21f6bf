"""A recipe tried out for a minute: how fast an arm is trained, and how large its checkpoints are. Nothing is kept."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..engine import Interrupted
from ..engine.checkpoint import KEEP
from ..engine.distributed import World
from ..engine.lone_example import told_of_lone_examples
from ..engine.random_state import seed_everything
from ..engine.stages import prepare
from ..engine.train import Hooks, Log, Position, Trainer
from ..errors import DivergenceError
from ..tasks import build_task
from .schema import Recipe


@dataclass(frozen=True)
class Rehearsal:
    """What was found: examples per epoch and per second, seconds per evaluation (0: not finished in the time), bytes
    of a checkpoint and of a whole run directory."""

    took: float
    examples: int
    per_second: float
    evaluation: float
    checkpoint: int
    run_bytes: int


@dataclass
class _Clock:
    """Calls the training off when the time is over; knows when each update was done."""

    start: float
    end: float
    stamps: list[tuple[float, int]] = field(default_factory=list)
    at: Position = field(default_factory=Position)
    bytes: int = 0
    kept_best: bool = False
    last: float = 0.0  # seconds of the last update, or of a piece of an evaluation

    def stop(self) -> str | None:
        """After an update, or a piece of an evaluation: the next one is begun only if it would end in time."""
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
        recipe: The recipe, with overrides.
        arm: One of its arms; another arm's weights are not needed, and it starts from its own.
        device: Where to train.
        data: The data directory; by default that of the environment.
        seconds: How long, at most; but one update is made however long it takes.
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
                     KEEP * checkpoint + size + averaged + _logits(task))


def _evaluate(trainer: Trainer) -> float:
    """Seconds of an evaluation; 0 where the time was over before it."""
    start = time.monotonic()
    try:
        trainer._evaluate()
    except Interrupted:
        return 0.0
    return time.monotonic() - start


def _train(trainer: Trainer, clock: _Clock) -> None:
    """Updates without evaluations, epoch after epoch, until the time is over or the stage is."""
    try:
        while not trainer.over():
            with told_of_lone_examples(trainer.train):
                trainer._epoch()
            clock.at.epoch, clock.at.batch = clock.at.epoch + 1, 0
    except (Interrupted, DivergenceError):
        return


def _speed(clock: _Clock, trainer: Trainer) -> float:
    """Examples per second. The first updates, in which loaders, kernels and graphs are made, count only where there are
    few others."""
    if trainer.device.type == "cuda":
        torch.cuda.synchronize()
    stamps = [(clock.start, 0), *clock.stamps]
    then, first = stamps[min(10, (len(stamps) - 1) // 2)]  # at least one update comes after it
    now, last = time.monotonic(), clock.at.step
    return max(last - first, 1) * trainer.train.batch_size * trainer.train.accumulate / max(now - then, 1e-9)


def _logits(task: Any) -> int:
    """Bytes of the test logits, for tasks that keep one number per class."""
    labels = getattr(task, "test", (None, None))[1]
    return len(labels) * int(task.classes) * 4 if isinstance(labels, Tensor) and hasattr(task, "classes") else 0
