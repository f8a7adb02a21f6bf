"""The training loop: epochs of updates, an evaluation after each, a checkpoint now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from ..data import Clock
from ..errors import DivergenceError, RunError, did_you_mean
from . import trainer_state
from .checkpoint import Checkpoint
from .compiled import Compiled
from .distributed import World
from .ema import Average
from .graph import Replay
from .lone_example import told_of_lone_examples
from .meter import OWN, DeviceMeter, HostMeter, Meter
from .numbers import plain_numbers
from .optim import build_optimizer, set_rate
from .pace import Pace
from .precision import float32_is
from .probe import Probe
from .schedule import learning_rate
from .settings import StagePlan
from .signals import Interrupted
from .state import Hooks, Log, Position
from .sync_norm import share_batch_norms
from .task import Conclusion, Predictions, Task
from .update import Update

__all__ = ["Hooks", "Log", "Position", "Trainer"]
MEASURE_EVERY = 32  # updates of an epoch between two looks at the gradient's norm; a CUDA graph looks every time
AGREE_EVERY = 50  # updates between two questions to the other ranks
LOOK_EVERY = 500  # updates between two questions to a GPU whether the loss is still sound; it must wait to be asked


class Trainer:
    """One stage of one run."""

    def __init__(self, task: Task[Any], model: nn.Module, plan: StagePlan, at: Position, log: Log, hooks: Hooks,
                 world: World, device: torch.device, seed: int) -> None:
        train = plan.train
        if train.sync_norm and world.size > 1:
            model = share_batch_norms(model, device)
        self.task, self.model, self.plan, self.train, self.at, self.log = task, model, plan, train, at, log
        self.hooks, self.world, self.device, self.seed = hooks, world, device, seed
        self.source = task.source(at.stage)
        self.optimizer = build_optimizer(train, task.groups(model), device)
        self.meter: Meter = DeviceMeter(train.diverge_above, device, task.sums) if device.type == "cuda" \
            else HostMeter(train.diverge_above, task.sums)
        taught = world.wrap(model, device)  # every rank has rank 0's weights from here on
        self.average = Average(model, train.ema) if train.ema is not None else None
        if train.compiles(device.type):
            taught = Compiled(taught)
        update = Update(task, taught, self.optimizer, train, self.meter, self.average, world, device)
        recordable = train.cuda_graph and device.type == "cuda" and world.size == 1 and train.precision != "fp16"
        self.update, self.replay = update, Replay(update, recordable)
        self.probe = Probe(task, model, update.autocast, world, device)
        self.pace = Pace(train, hooks.on_progress) if hooks.on_progress is not None else None
        self.best_weights: dict[str, Tensor] = {}
        self.started = self.saved = time.monotonic()
        self.stopped_early = False

    @property
    def evaluated(self) -> nn.Module:
        """The model that is evaluated: the average of the weights where there is one."""
        return self.average.model if self.average is not None else self.model

    def run(self) -> None:
        """Train to the end of the stage."""
        with float32_is("tf32" if self.train.precision == "tf32" else "ieee"), told_of_lone_examples(self.train):
            while not self.over():
                if not self._enough():  # else it was stopped in the last evaluation, which is all that is left
                    self._epoch()
                self._close_epoch()
        if self.train.epochs == 0 and not self.log.lines:
            self._only_evaluate()
        self.evaluated.eval()

    def over(self) -> bool:
        closed = self.at.batch == 0  # an epoch is over when it was evaluated, and not with its last update
        return self.at.epoch > self.train.epochs or (self._enough() and closed) or self.stopped_early

    def _enough(self) -> bool:
        return self.train.max_steps is not None and self.at.stage_step >= self.train.max_steps

    def _epoch(self) -> None:
        at, train, task = self.at, self.train, self.task
        self._set_mode()
        if self.pace is not None:
            self.pace.start_epoch()
        length = self.source.length(at.clock)
        steps = math.ceil(length / train.accumulate)
        update, every = (self.replay, 1) if self.replay.reason is None else (self.update, MEASURE_EVERY)
        look_every = AGREE_EVERY if self.world.size > 1 else 1 if self.device.type == "cpu" else LOOK_EVERY
        batches = iter(self.source.batches(at.clock, at.batch, self.world.rank, self.world.size))
        rate = math.nan
        while group := list(islice(batches, train.accumulate)):
            wanted = learning_rate(train, at.epoch, at.stage_step, steps)
            if wanted != rate:
                set_rate(self.optimizer, wanted)
                rate = wanted
            clock = at.clock
            objective = task.objective(clock)
            if train.probe_every and at.stage_step % train.probe_every == 0:
                self._take_probe(group, objective, clock)
            if at.step < train.trace:
                self._traced(group, objective)
            else:
                update(group, objective, at.batch // train.accumulate % every == 0)
            at.batch += len(group)
            at.step += 1
            at.stage_step += 1
            if self.pace is not None:
                self.pace(at.stage, at.epoch, at.batch, length, at.stage_step, at.step)
            if at.step % look_every == 0:
                self._check_loss(length)
            if self._enough():
                break
            if self.world.size == 1 or at.step % AGREE_EVERY == 0:
                self._pause()
        self._check_loss(length)

    def _only_evaluate(self) -> None:
        """A stage without epochs: one line, about the weights that it starts with."""
        line = {"stage": self.at.stage, "epoch": 0, "step": self.at.step, **self._evaluate()}
        self._note_best(line)
        self.log.lines.append(line)
        self.hooks.on_epoch(line, 0)
        self._pause(force=True)

    def _take_probe(self, group: Sequence[Any], objective: Hashable, clock: Clock) -> None:
        norms = {**self.probe(group, {"own": objective, **self.task.probes(clock)}), "number": 1.0}
        for sums in (self.log.probed, self.log.epoch_probed):
            for name, value in norms.items():
                sums[name] = sums.get(name, 0.0) + value

    def _traced(self, group: Sequence[Any], objective: Hashable) -> None:
        """An update whose own numbers are kept, as the difference of the epoch's sums before and after it."""
        before = self.world.sum(self.meter.sums().to(self.device))
        self.replay(group, objective, True)
        loss, size, norm, norms, _, *more = (self.world.sum(self.meter.sums().to(self.device)) - before).tolist()
        numbers = self._training_numbers(self._named(more))
        self.log.trace.append({"loss": loss / max(size, 1e-300), "grad_norm": norm / max(norms, 1), **numbers})

    def _named(self, sums: Sequence[float]) -> dict[str, float]:
        return dict(zip(self.task.sums, sums, strict=True))

    def _training_numbers(self, sums: Mapping[str, float]) -> dict[str, float]:
        return plain_numbers(self.task.training_numbers(sums), "training_numbers")

    def _last_rate(self) -> float:
        """From the position and not from what was set: a run may resume when all updates of the epoch are done."""
        steps = math.ceil(self.source.length(self.at.clock) / self.train.accumulate)
        return learning_rate(self.train, self.at.epoch, self.at.stage_step - 1, steps)

    def _set_mode(self) -> None:
        self.model.train()
        if self.train.freeze_norm:  # frozen features keep their statistics too
            parts = self.task.parts(self.model)
            for name in self.plan.freeze:
                parts[name].eval()

    def _check_loss(self, length: int) -> None:
        """All ranks end at the same step, although the loss of one of them alone may be bad."""
        bad = self.meter.bad()
        if self.world.size > 1:
            bad = self.world.first(bad, self.device)
        if bad is not None:
            at, first = self.at, bad * self.train.accumulate
            raise DivergenceError(
                f"the loss became NaN, infinite or larger than {self.train.diverge_above:g} at update "
                f"{at.step - math.ceil(at.batch / self.train.accumulate) + bad + 1}: batch {first + 1} of {length} in "
                f"epoch {at.epoch} (seed {self.seed}). The checkpoint before it is kept. Lower train.lr, set "
                "train.clip_norm, or raise train.diverge_above if such losses are meant.")

    def _close_epoch(self) -> None:
        """Evaluate, and only then count the epoch as done: a run that is stopped in here resumes before it."""
        at, log = self.at, self.log
        loss, size, norm, norms, _, *more = self.world.sum(self.meter.sums().to(self.device)).tolist()
        sums = self._named(more)
        line: dict[str, Any] = {"stage": at.stage, "epoch": at.epoch, "step": at.step, "lr": self._last_rate(),
                                "loss": loss / (size or 1.0), "grad_norm": norm / max(norms, 1)}
        line |= self._training_numbers(sums)
        line |= {f"probe_{name}": value / log.epoch_probed["number"] for name, value in log.epoch_probed.items()
                 if name != "number"}
        if self.train.evaluates(at.epoch) or self._enough():
            line |= self._evaluate()
            self._note_best(line)
        if self.train.conclude_on == "average" and self.world.leads:
            self.hooks.keep(at.epoch, self.evaluated.state_dict(), self.train.average_last)
        self.meter.load(torch.zeros(len(OWN) + len(self.task.sums), dtype=torch.float64))
        log.samples += sums.get("examples", size)  # the mean may be over weights instead
        log.epoch_probed = {}
        at.epoch, at.batch = at.epoch + 1, 0
        log.lines.append(line)
        self.hooks.on_epoch(line, log.best["epoch"] if log.best is not None else None)
        if at.stage == 1 and line["epoch"] in self.hooks.leaves:
            self.save(branch=line["epoch"])
        self._pause(force=self.over())

    def predictions(self, model: nn.Module, final: bool) -> list[Predictions]:
        """Every rank's share of what the model says, on rank 0; a signal is obeyed after the piece at hand."""
        model.eval()
        self.world.copy_buffers(model)
        pieces, asked = [], None
        with nullcontext() if self.task.predicts_with_gradients else torch.no_grad(), float32_is("ieee"):
            for piece in self.task.predict(model, final, self.world.rank, self.world.size):
                pieces.append(piece)
                asked = self.hooks.stop()
                if asked is not None:
                    break
        if self.world.any(asked is not None, self.device):
            self.save()
            part = "in the evaluation at the end" if final else f"while evaluating epoch {self.at.epoch}"
            raise Interrupted(f"{asked or 'a signal'} {part}")
        return self.world.collect(pieces)

    def _evaluate(self) -> dict[str, float]:
        """Rank 0 evaluates what all ranks predicted, so that the numbers are those of one process."""
        start, at = time.monotonic(), self.at
        if self.pace is not None:
            self.pace.evaluate(at.stage, at.epoch, self.source.length(at.clock), at.stage_step, at.step)
        pieces = self.predictions(self.evaluated, final=False)
        numbers = self.world.by_leader(lambda: plain_numbers(self.task.evaluate(pieces), "evaluate"), self.device)
        if self.pace is not None:
            self.pace.evaluation = time.monotonic() - start
        return numbers

    def conclude(self, model: nn.Module) -> Conclusion | None:
        """What is measured at the end; rank 0 has it."""
        if self.pace is not None:
            self.pace.conclude(self.at.stage, self.log.lines[-1]["epoch"], self.at.step)
        pieces = self.predictions(model, final=True)
        kept: list[Conclusion] = []
        last = {**self.log.lines[-1], **({"best_epoch": self.log.best["epoch"]} if self.log.best else {}),
                "lines": [line for line in self.log.lines if line["stage"] == self.at.stage]}

        def work() -> None:
            with nullcontext() if self.task.predicts_with_gradients else torch.no_grad():
                kept.append(self.task.conclude(pieces, last))

        self.world.by_leader(work, self.device)
        return kept[0] if kept else None

    def _note_best(self, line: dict[str, Any]) -> None:
        primary = next((metric for metric in self.task.metrics if metric.primary), None)
        monitor = self.train.monitor or (primary.path if primary else "accuracy")
        better, best = self.train.better, self.log.best
        if self.train.monitor is None and primary is not None:
            better = primary.better
        if monitor not in line:
            raise RunError(f"train.monitor = {monitor!r}: the task measures {', '.join(line)}."
                           + did_you_mean(monitor, line))
        sign = 1 if better == "higher" else -1
        if best is None or math.isnan(best[monitor]) or sign * line[monitor] > sign * best[monitor]:
            self.log.best = dict(line)
            self.best_weights = {name: tensor.detach().clone() for name, tensor in self.evaluated.state_dict().items()}
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

    def save(self, branch: int | None = None) -> None:
        now = time.monotonic()
        self.log.seconds += now - self.started
        self.started = self.saved = now
        tensors, state = trainer_state.taken(self)
        if self.world.leads:
            self.hooks.saver(self.at.step, tensors, state, branch)
        self.world.wait()

    def restore(self, found: Checkpoint) -> None:
        """Become what the checkpoint describes; position and log were read by the caller."""
        trainer_state.restore(self, found)
