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
from .meter import OWN, DeviceMeter, HostMeter, Meter
from .numbers import plain_numbers
from .optim import build_optimizer, set_rate
from .pace import Pace
from .precision import float32_is
from .probe import Probe
from .schedule import learning_rate
from .settings import StagePlan
from .signals import Interrupted
from .single_example import explain_single_example_batches
from .state import Hooks, Log, Position
from .sync_norm import share_batch_norms
from .task import Conclusion, Predictions, Task
from .update import Update

__all__ = ["Hooks", "Log", "Position", "Trainer"]
MEASURE_EVERY = 32  # updates of an epoch between two gradient norms; a CUDA graph measures every one
AGREE_EVERY = 50  # updates between two exchanges with the other ranks
CHECK_EVERY, CHECK_EVERY_ON_CPU = 500, 1  # updates between two checks of the loss, each of which waits for a GPU


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
        fp16 = train.precision == "fp16"
        self.meter: Meter = DeviceMeter(train.diverge_above, device, task.sums, skip_infinite=fp16) \
            if device.type == "cuda" else HostMeter(train.diverge_above, task.sums, skip_infinite=fp16)
        wrapped = world.wrap(model, device)  # every rank has rank 0's weights from here on
        self.average = Average(model, train.ema) if train.ema is not None else None
        if train.compiles(device.type):
            wrapped = Compiled(wrapped)
        update = Update(task, wrapped, self.optimizer, train, self.meter, self.average, world, device)
        recordable = train.cuda_graph and device.type == "cuda" and world.size == 1 and train.precision != "fp16"
        self.update, self.replay = update, Replay(update, recordable)
        self.probe = Probe(task, model, update.autocast, world, device)
        self.pace = Pace(train, hooks.on_progress) if hooks.on_progress is not None else None
        self.best_weights: dict[str, Tensor] = {}
        self.started = self.saved = time.monotonic()
        self.stopped_early = False

    @property
    def evaluated(self) -> nn.Module:
        """The model that is evaluated: the moving average of the weights if there is one."""
        return self.average.model if self.average is not None else self.model

    def run(self) -> None:
        """Train to the end of the stage."""
        with float32_is("tf32" if self.train.precision == "tf32" else "ieee"), \
                explain_single_example_batches(self.train):
            while not self.over():
                if not self._enough():  # otherwise it was interrupted in the last evaluation, which alone is left
                    self.train_epoch()
                self._close_epoch()
        if self.train.epochs == 0 and all(line["stage"] != self.at.stage for line in self.log.lines):
            self._only_evaluate()
        self.evaluated.eval()

    def over(self) -> bool:
        closed = self.at.batch == 0  # an epoch ends with its evaluation, and not with its last update
        return self.at.epoch > self.train.epochs or (self._enough() and closed) or self.stopped_early

    def _enough(self) -> bool:
        """Whether all updates of ``train.max_steps`` are done."""
        return self.train.max_steps is not None and self.at.stage_step >= self.train.max_steps

    def train_epoch(self) -> None:
        at, train, task = self.at, self.train, self.task
        self._set_mode()
        if self.pace is not None:
            self.pace.start_epoch()
        length = self.source.length(at.clock)
        steps = math.ceil(length / train.accumulate)
        update, measure_every = (self.replay, 1) if self.replay.reason is None else (self.update, MEASURE_EVERY)
        check_every = AGREE_EVERY if self.world.size > 1 else (
            CHECK_EVERY_ON_CPU if self.device.type == "cpu" else CHECK_EVERY)
        batches = iter(self.source.batches(at.clock, at.batch, self.world.rank, self.world.size))
        rate = math.nan
        while group := list(islice(batches, train.accumulate)):
            new_rate = learning_rate(train, at.epoch, at.stage_step, steps)
            if new_rate != rate:
                set_rate(self.optimizer, new_rate)
                rate = new_rate
            clock = at.clock
            objective = task.objective(clock)
            if train.probe_every and at.stage_step % train.probe_every == 0:
                self._take_probe(group, objective, clock)
            if at.step < train.trace:
                self._traced_update(group, objective)
            else:
                update(group, objective, at.batch // train.accumulate % measure_every == 0)
            at.batch += len(group)
            at.step += 1
            at.stage_step += 1
            if self.pace is not None:
                self.pace(at.stage, at.epoch, at.batch, length, at.stage_step, at.step)
            if at.step % check_every == 0:
                self._check_loss()
            if self._enough():
                break
            if self.world.size == 1 or at.step % AGREE_EVERY == 0:
                self._save_or_stop()
        self._check_loss()

    def _only_evaluate(self) -> None:
        """A stage without epochs has one line, of the weights that it starts with."""
        line = {"stage": self.at.stage, "epoch": 0, "step": self.at.step, **self.evaluate()}
        self._keep_best(line)  # the only one, whatever the monitor: it may be a number of training
        self._keep_weights(0)
        self.log.lines.append(line)
        self.hooks.on_epoch(line, 0)
        self._save_or_stop(force=True)

    def _take_probe(self, group: Sequence[Any], objective: Hashable, clock: Clock) -> None:
        norms = {**self.probe(group, {"own": objective, **self.task.probes(clock)}), "number": 1.0}
        for sums in (self.log.probed, self.log.epoch_probed):
            for name, value in norms.items():
                sums[name] = sums.get(name, 0.0) + value

    def _traced_update(self, group: Sequence[Any], objective: Hashable) -> None:
        """An update whose own numbers are kept: the differences of the epoch's sums before and after it."""
        before = self.world.sum(self.meter.sums().to(self.device))
        self.replay(group, objective, True)
        own_sums = self.world.sum(self.meter.sums().to(self.device)) - before
        loss, size, norm_sum, norm_count, _, *more = own_sums.tolist()
        numbers = self._training_numbers(self._named(more))
        self.log.trace.append({"loss": loss / max(size, 1e-300), "grad_norm": norm_sum / max(norm_count, 1), **numbers})

    def _named(self, sums: Sequence[float]) -> dict[str, float]:
        return dict(zip(self.task.sums, sums, strict=True))

    def _training_numbers(self, sums: Mapping[str, float]) -> dict[str, float]:
        return plain_numbers(self.task.training_numbers(sums), "training_numbers")

    def _last_rate(self) -> float:
        """Computed from the position: a run that resumes after the last update of an epoch has not set a rate."""
        steps = math.ceil(self.source.length(self.at.clock) / self.train.accumulate)
        return learning_rate(self.train, self.at.epoch, self.at.stage_step - 1, steps)

    def _set_mode(self) -> None:
        self.model.train()
        if self.train.freeze_norm:  # frozen features keep their statistics too
            parts = self.task.parts(self.model)
            for name in self.plan.freeze:
                parts[name].eval()

    def _check_loss(self) -> None:
        """Raise on all ranks at the same step, even if the loss of only one of them is bad."""
        bad = self.meter.bad()
        if self.world.size > 1:
            bad = self.world.first(bad, self.device)
        if bad is not None:
            at, first, length = self.at, bad * self.train.accumulate, self.source.length(self.at.clock)
            raise DivergenceError(
                f"the loss became NaN, infinite or larger than {self.train.diverge_above:g} at update "
                f"{at.step - math.ceil(at.batch / self.train.accumulate) + bad + 1}: batch {first + 1} of {length} in "
                f"epoch {at.epoch} (seed {self.seed}). The checkpoint before it is kept. Lower train.lr, set "
                "train.clip_norm, or raise train.diverge_above if such losses are expected.")

    def _close_epoch(self) -> None:
        """Evaluate, and only then count the epoch as done: a run that is interrupted here evaluates it again."""
        at, log = self.at, self.log
        loss, size, norm_sum, norm_count, _, *more = self.world.sum(self.meter.sums().to(self.device)).tolist()
        sums = self._named(more)
        line: dict[str, Any] = {"stage": at.stage, "epoch": at.epoch, "step": at.step, "lr": self._last_rate(),
                                "loss": loss / (size or 1.0), "grad_norm": norm_sum / max(norm_count, 1)}
        line |= self._training_numbers(sums)
        line |= {f"probe_{name}": value / log.epoch_probed["number"] for name, value in log.epoch_probed.items()
                 if name != "number"}
        if self.train.evaluates(at.epoch) or self._enough():
            line |= self.evaluate()
            self._note_best(line)
        self._keep_weights(at.epoch)
        self.meter.load(torch.zeros(len(OWN) + len(self.task.sums), dtype=torch.float64))
        log.samples += sums.get("examples", size)  # the size may be a sum of weights
        log.epoch_probed = {}
        at.epoch, at.batch = at.epoch + 1, 0
        log.lines.append(line)
        self.hooks.on_epoch(line, log.best["epoch"] if log.best is not None else None)
        if at.stage == 1 and line["epoch"] in self.hooks.leaves:
            self.save(branch=line["epoch"])
        self._save_or_stop(force=self.over())

    def _keep_weights(self, epoch: int) -> None:
        if self.train.conclude_on == "average" and self.world.leads:
            self.hooks.keep(epoch, self.evaluated.state_dict(), self.train.average_last)

    def predictions(self, model: nn.Module, final: bool) -> list[Predictions]:
        """The predictions of all ranks, on rank 0. A signal interrupts after the current piece."""
        model.eval()
        self.world.copy_buffers(model)
        pieces, signal = [], None
        with nullcontext() if self.task.predicts_with_gradients else torch.no_grad(), float32_is("ieee"):
            for piece in self.task.predict(model, final, self.world.rank, self.world.size):
                pieces.append(piece)
                signal = self.hooks.stop()
                if signal is not None:
                    break
        if self.world.any(signal is not None, self.device):
            self.save()
            when = "in the final evaluation" if final else f"while evaluating epoch {self.at.epoch}"
            raise Interrupted(f"{signal or 'a signal'} {when}")
        return self.world.collect(pieces)

    def evaluate(self) -> dict[str, float]:
        """Rank 0 evaluates the predictions of all ranks, so that the numbers are those of one process."""
        start, at = time.monotonic(), self.at
        if self.pace is not None:
            self.pace.evaluate(at.stage, at.epoch, self.source.length(at.clock), at.stage_step, at.step)
        pieces = self.predictions(self.evaluated, final=False)
        numbers = self.world.by_leader(lambda: plain_numbers(self.task.evaluate(pieces), "evaluate"), self.device)
        if self.pace is not None:
            self.pace.evaluation = time.monotonic() - start
        return numbers

    def conclude(self, model: nn.Module) -> Conclusion | None:
        """The results of the final evaluation on rank 0; None on the other ranks."""
        if self.pace is not None:
            self.pace.conclude(self.at.stage, self.log.lines[-1]["epoch"], self.at.step)
        pieces = self.predictions(model, final=True)
        conclusions: list[Conclusion] = []  # by_leader returns only what JSON can hold
        last = {**self.log.lines[-1], **({"best_epoch": self.log.best["epoch"]} if self.log.best else {}),
                "lines": [line for line in self.log.lines if line["stage"] == self.at.stage]}

        def conclude() -> None:
            with nullcontext() if self.task.predicts_with_gradients else torch.no_grad():
                conclusions.append(self.task.conclude(pieces, last))

        self.world.by_leader(conclude, self.device)
        return conclusions[0] if conclusions else None

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
            self._keep_best(line)
        elif self.train.patience is not None:
            self.stopped_early = line["epoch"] - best["epoch"] > self.train.patience

    def _keep_best(self, line: dict[str, Any]) -> None:
        self.log.best = dict(line)
        self.best_weights = {name: tensor.detach().clone() for name, tensor in self.evaluated.state_dict().items()}

    def _save_or_stop(self, force: bool = False) -> None:
        """Write a checkpoint if one is due and no loss before it was bad, and raise Interrupted if the run was asked to
        stop."""
        signal = self.hooks.stop()
        due = force or signal is not None or time.monotonic() - self.saved >= self.train.checkpoint_seconds
        if not due and self.world.size == 1:
            return
        if self.world.any(due, self.device):
            self._check_loss()
            self.save()
            if self.world.any(signal is not None, self.device):
                raise Interrupted(f"{signal or 'a signal'} at epoch {self.at.epoch}, update {self.at.step}")

    def save(self, branch: int | None = None) -> None:
        now = time.monotonic()
        self.log.seconds += now - self.started
        self.started = self.saved = now
        tensors, state = trainer_state.capture(self)
        if self.world.leads:
            self.hooks.saver(self.at.step, tensors, state, branch)
        self.world.wait()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the state of a checkpoint; the caller has read position and log."""
        trainer_state.restore(self, checkpoint)
