"""The training loop: epochs of updates, an evaluation after each, a checkpoint now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import DivergenceError, RunError
from . import random_state as chance
from .checkpoint import Checkpoint
from .distributed import World
from .ema import Average
from .graph import Replay
from .meter import DeviceMeter, HostMeter, Meter
from .optim import build_optimizer, set_rate
from .schedule import learning_rate
from .settings import Train
from .signals import Interrupted
from .task import Task
from .update import Update

MEASURE_EVERY = 32  # updates of an epoch between two looks at the gradient's norm; a CUDA graph looks every time
AGREE_EVERY = 50  # updates between two questions to the other ranks
LOOK_EVERY = 500  # updates between two questions to a GPU whether the loss is still sound; it must wait to be asked


@dataclass
class Position:
    """Where a run stands: epochs count from 1, batches of the epoch and updates count those that are done."""

    stage: int = 1
    epoch: int = 1
    batch: int = 0
    step: int = 0
    stage_step: int = 0


@dataclass
class Log:
    """What the run has found out so far; a checkpoint holds all of it."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    finished: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    samples: float = 0.0
    resumed: int = 0


@dataclass
class Hooks:
    """What the loop calls: ``saver`` with tensors and state, ``on_epoch`` with a line, ``stop`` for a reason to end."""

    saver: Callable[[int, dict[str, Tensor], dict[str, Any]], None]
    on_epoch: Callable[[dict[str, Any]], None]
    stop: Callable[[], str | None]


class Trainer:
    """One stage of one run."""

    def __init__(self, task: Task, model: nn.Module, train: Train, at: Position, log: Log, hooks: Hooks, world: World,
                 device: torch.device, seed: int) -> None:
        self.task, self.model, self.train, self.at, self.log = task, model, train, at, log
        self.hooks, self.world, self.device, self.seed = hooks, world, device, seed
        self.average = Average(model, train.ema) if train.ema is not None else None
        self.optimizer = build_optimizer(train, model.parameters(), device)
        self.meter: Meter = DeviceMeter(train.diverge_above, device) if device.type == "cuda" \
            else HostMeter(train.diverge_above)
        taught = world.wrap(model, device)
        if train.compile:
            taught = torch.compile(taught, dynamic=False)  # type: ignore[assignment]
        update = Update(task, taught, self.optimizer, train, self.meter, self.average, world, device)
        recordable = train.cuda_graph and device.type == "cuda" and world.size == 1 and train.precision != "fp16"
        self.update, self.replay = update, Replay(update, recordable)
        self.best_weights: dict[str, Tensor] = {}
        self.started = self.saved = time.monotonic()
        self.stopped_early = False

    @property
    def judged(self) -> nn.Module:
        """The model that is evaluated: the average of the weights where there is one."""
        return self.average.model if self.average is not None else self.model

    def run(self) -> None:
        """Train to the end of the stage."""
        while not self.over():
            self._epoch()
            self._close_epoch()
        self.judged.eval()

    def over(self) -> bool:
        enough = self.train.max_steps is not None and self.at.stage_step >= self.train.max_steps
        return self.at.epoch > self.train.epochs or enough or self.stopped_early

    def _epoch(self) -> None:
        at, train = self.at, self.train
        self._set_mode()
        lesson = self.task.lesson(at.stage, at.epoch)
        length = self.task.length(at.stage, at.epoch)
        steps = math.ceil(length / train.accumulate)
        every = 1 if self.replay.reason is None else MEASURE_EVERY
        batches = iter(self.task.batches(at.stage, at.epoch, at.batch, self.world.rank, self.world.size))
        rate = math.nan
        while group := list(islice(batches, train.accumulate)):
            wanted = learning_rate(train, at.epoch, at.stage_step, steps)
            if wanted != rate:
                set_rate(self.optimizer, wanted)
                rate = wanted
            self.replay(group, lesson, at.batch // train.accumulate % every == 0)
            at.batch += len(group)
            at.step += 1
            at.stage_step += 1
            if self.device.type == "cpu" or at.step % LOOK_EVERY == 0:
                self._check_loss(length)
            if train.max_steps is not None and at.stage_step >= train.max_steps:
                break
            if self.world.size == 1 or at.step % AGREE_EVERY == 0:
                self._pause()
        self._check_loss(length)

    def _last_rate(self) -> float:
        """From the position and not from what was set: a run may resume when all updates of the epoch are done."""
        steps = math.ceil(self.task.length(self.at.stage, self.at.epoch) / self.train.accumulate)
        return learning_rate(self.train, self.at.epoch, self.at.stage_step - 1, steps)

    def _set_mode(self) -> None:
        self.model.train()
        if self.at.stage > 1 and self.train.freeze_norm:  # the features, and their statistics, stay as they are
            head = self.task.head(self.model)
            self.model.eval()
            head.train()

    def _check_loss(self, length: int) -> None:
        bad = self.meter.bad()
        if bad is not None:
            at, first = self.at, bad * self.train.accumulate
            raise DivergenceError(
                f"the loss became NaN, infinite or larger than {self.train.diverge_above:g} at update "
                f"{at.step - math.ceil(at.batch / self.train.accumulate) + bad + 1}: batch {first + 1} of {length} in "
                f"epoch {at.epoch} (seed {self.seed}). The checkpoint before it is kept. Lower train.lr, set "
                "train.clip_norm, or raise train.diverge_above if such losses are meant.")

    def _close_epoch(self) -> None:
        at = self.at
        loss, size, norm, norms, _ = self.world.sum(self.meter.sums().to(self.device)).tolist()
        self.meter.load(torch.zeros(5, dtype=torch.float64))
        self.log.samples += size
        line: dict[str, Any] = {"stage": at.stage, "epoch": at.epoch, "step": at.step,
                                "lr": self._last_rate(),
                                "loss": loss / max(size, 1), "grad_norm": norm / max(norms, 1)}
        at.epoch, at.batch = at.epoch + 1, 0
        if (at.epoch - 1) % self.train.evaluate_every == 0 or self.over():
            line |= self._evaluate()
            self._note_best(line)
        self.log.lines.append(line)
        self.hooks.on_epoch(line)
        self._pause(force=self.over())

    def _evaluate(self) -> dict[str, float]:
        """Rank 0 judges the whole sets, so that the numbers are those of one process."""
        numbers: dict[str, float] = {}
        if self.world.leads:
            self.judged.eval()
            with torch.no_grad():
                numbers = dict(self.task.evaluate(self.judged))
        shared: dict[str, float] = self.world.share(numbers, self.device)
        return shared

    def _note_best(self, line: dict[str, Any]) -> None:
        monitor, best = self.train.monitor, self.log.best
        if monitor not in line:
            raise RunError(f"train.monitor = {monitor!r}: the task measures {', '.join(line)}.")
        sign = 1 if self.train.better == "higher" else -1
        if best is None or sign * line[monitor] > sign * best[monitor]:
            self.log.best = dict(line)
            self.best_weights = {name: tensor.detach().clone() for name, tensor in self.judged.state_dict().items()}
        elif self.train.patience is not None:
            self.stopped_early = line["epoch"] - best["epoch"] > self.train.patience

    def _pause(self, force: bool = False) -> None:
        """A checkpoint when it is time for one; the end when someone has asked for it."""
        asked = self.hooks.stop()
        due = force or asked is not None or time.monotonic() - self.saved >= self.train.checkpoint_seconds
        if not due and self.world.size == 1:
            return
        if self.world.any(due, self.device):
            self.save()
            if self.world.any(asked is not None, self.device):
                raise Interrupted(f"{asked or 'a signal'} at epoch {self.at.epoch}, update {self.at.step}")

    def save(self) -> None:
        now = time.monotonic()
        self.log.seconds += now - self.started
        self.started = self.saved = now
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        if self.average is not None:
            tensors |= {f"ema.{name}": tensor for name, tensor in self.average.model.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best_weights.items()}
        tensors["meter"] = self.world.sum(self.meter.sums().to(self.device))
        for name, tensor in chance.random_tensors(self.device).items():  # every rank has its own
            tensors[name] = self.world.gather(tensor, self.device)
        packed = self.optimizer.state_dict()
        numbers: dict[str, dict[str, Any]] = {}
        for index, entry in packed["state"].items():
            for name, value in entry.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{index}.{name}"] = value
                else:
                    numbers.setdefault(str(index), {})[name] = value
        state = {"position": asdict(self.at), "log": asdict(self.log), "optimizer": numbers,
                 "scaler": self.update.scaler.state_dict(), "random": chance.random_json(),
                 "stopped_early": self.stopped_early}
        if self.world.leads:
            self.hooks.saver(self.at.step, tensors, state)
        self.world.wait()

    def restore(self, found: Checkpoint) -> None:
        """Become what the checkpoint describes; position and log were read by the caller."""
        groups: dict[str, dict[str, Tensor]] = {}
        for name, tensor in found.tensors.items():
            kind, _, rest = name.partition(".")
            groups.setdefault(kind, {})[rest] = tensor
        self.model.load_state_dict(groups["model"])
        if self.average is not None:
            self.average.model.load_state_dict(groups["ema"])
        self.best_weights = {name: tensor.to(self.device) for name, tensor in groups.get("best", {}).items()}
        entries: dict[int, dict[str, Any]] = {int(index): dict(v) for index, v in found.state["optimizer"].items()}
        for name, tensor in groups.get("optimizer", {}).items():
            index, _, key = name.partition(".")
            entries.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict({"state": entries, "param_groups": self.optimizer.state_dict()["param_groups"]})
        self.update.scaler.load_state_dict(found.state["scaler"])
        sums = found.tensors["meter"] if self.world.leads else torch.zeros_like(found.tensors["meter"])
        sums[4] = found.tensors["meter"][4] / self.world.size  # the sums of all ranks go to one, the count to each
        self.meter.load(sums)
        self.stopped_early = found.state["stopped_early"]
        mine = {name: tensor[min(self.world.rank, len(tensor) - 1)] for name, tensor in
                ((f"rng.{kind}", state) for kind, state in groups["rng"].items())}
        chance.restore(mine, found.state["random"], self.device)
