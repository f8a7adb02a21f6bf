"""Training in stages: each has its own optimiser, and may reset some parts of the model and freeze others.

The paper uses stages to measure the quality of features and to re-balance a long-tailed classifier. A change that keeps
momentum and schedule (a late bonus, deferred re-weighting) is a change of the objective and not a stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import RunError, did_you_mean
from . import random_state
from .checkpoint import Checkpoint
from .distributed import World
from .numbers import ENGINE, TRAINING_LOSS
from .settings import StagePlan
from .task import Task
from .train import Hooks, Log, Position, Trainer
from .weights import load_run_weights


def train_in_stages(task: Task[Any], stages: Sequence[StagePlan], hooks: Hooks, checkpoint: Checkpoint | None, *,
                    seed: int, world: World, device: torch.device,
                    start_from: Path | None = None) -> tuple[Trainer, dict[str, Any]]:
    """Train all stages, or those that are left after a checkpoint; returns the last trainer and the numbers of all
    stages.

    ``start_from`` is the directory of a finished run: the first stage starts with its final weights instead of freshly
    initialised ones.
    """
    _check_stages(task, stages)
    at = Position(**checkpoint.state["position"]) if checkpoint else Position()
    log = Log(**checkpoint.state["log"]) if checkpoint else Log()
    model = task.build()
    if start_from is not None and checkpoint is None:
        model.load_state_dict(load_run_weights(start_from, model))
    if device.type == "cuda" and stages[0].train.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    start_state = random_state.random_tensors(device)
    for number, plan in enumerate(stages, 1):
        # Each rank has its own dropout, but all must reset a part with the numbers that one process would draw.
        own_state = random_state.random_tensors(device)
        if world.size > 1:
            random_state.restore_torch(start_state, device)
        prepare(task, model, plan)
        if world.size > 1:
            start_state = random_state.random_tensors(device)
            random_state.restore_torch(own_state, device)
        if number < at.stage:
            continue
        if number > at.stage:
            at.stage, at.epoch, at.batch, at.stage_step = number, 1, 0, 0
            log.best, log.probed = None, {}  # both are per stage
        trainer = Trainer(task, model, plan, at, log, hooks, world, device, seed)
        if checkpoint is not None:
            trainer.restore(checkpoint)
            checkpoint = None
        elif number == 1 and world.size > 1:
            torch.manual_seed(seed * world.size + world.rank)  # the weights are equal by now; dropout must differ
        trainer.run()
        if len(log.finished) < number:
            log.finished.append(summary(log))
    numbers = dict(log.finished[-1])
    numbers |= {f"stage{i}": earlier for i, earlier in enumerate(log.finished[:-1], 1)}
    return trainer, numbers


def _check_stages(task: Task[Any], stages: Sequence[StagePlan]) -> None:
    for number, (plan, following) in enumerate(pairwise(stages), 2):
        if plan.train.sync_norm and not following.train.sync_norm:
            raise RunError(f"stage {number} has train.sync_norm = false after a stage with true: batch norms that "
                           "processes share stay shared. Set it to true in all stages after the first that has it.")
    for plan in stages:
        if plan.train.monitor in ENGINE and plan.train.monitor != TRAINING_LOSS:
            names = [*(metric.path for metric in task.metrics), TRAINING_LOSS]
            raise RunError(f"train.monitor = {plan.train.monitor!r} does not say how good an epoch was. Expected one "
                           f"of {', '.join(names)}.")


def prepare(task: Task[Any], model: nn.Module, plan: StagePlan) -> None:
    """Reset and freeze the parts of the model that a stage names; all other parts learn."""
    parts = task.parts(model)
    for name in (*plan.reset, *plan.freeze):
        if name not in parts:
            raise RunError(f"a stage names the part {name!r}; the model has {', '.join(parts) or 'none'}."
                           + did_you_mean(name, parts))
    for name in plan.reset:
        layers = [layer for layer in parts[name].modules() if hasattr(layer, "reset_parameters")]
        if not layers:
            raise RunError(f"the part {name!r} is a {type(parts[name]).__name__} without reset_parameters: a stage "
                           "cannot reset it. Give one of its layers this method, or reset another part.")
        for layer in layers:
            layer.reset_parameters()  # type: ignore[operator]
    model.requires_grad_(True)
    for name in plan.freeze:
        parts[name].requires_grad_(False)


def summary(log: Log) -> dict[str, Any]:
    """The last epoch's numbers, and those of the best epoch with the prefix ``best_``."""
    last, best = log.lines[-1], log.best
    assert best is not None
    trained = {"train_loss": last["loss"], "grad_norm": last["grad_norm"]} if "loss" in last else {}
    return {**measured(last), **trained,
            **{f"best_{name}": value for name, value in measured(best).items()},
            "best_epoch": best["epoch"], "epochs": last["epoch"], "steps": last["step"], **_probes_and_trace(log)}


def _probes_and_trace(log: Log) -> dict[str, Any]:
    """Ratios of gradient norms from the probes, and the numbers of the first updates."""
    numbers: dict[str, Any] = {}
    own = log.probed.get("own", 0.0)
    ratios = {name: own / value for name, value in log.probed.items() if name not in ("own", "number") and value}
    if ratios:
        numbers["gradient_norm_ratio"] = ratios
    if log.trace:
        numbers["first_updates"] = {name: sum(line[name] for line in log.trace) / len(log.trace)
                                    for name in log.trace[0]}
        numbers["trace"] = {name: [line[name] for line in log.trace] for name in log.trace[0]}
    return numbers


def measured(line: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of the task, without those of the engine."""
    return {name: value for name, value in line.items() if name not in ENGINE}
