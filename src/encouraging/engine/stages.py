"""Training in stages: first the features, then (where a recipe asks for it) a new output layer on top of them.

The paper needs this three times: to ask what the features are worth, and to re-balance a long-tailed classifier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..errors import RunError
from .checkpoint import Checkpoint
from .distributed import World
from .settings import Train
from .task import Task
from .train import Hooks, Log, Position, Trainer

BASE = ("stage", "epoch", "step", "lr", "loss", "grad_norm")


def train_in_stages(task: Task, plan: Sequence[Train], hooks: Hooks, found: Checkpoint | None, *, seed: int,
                    world: World, device: torch.device) -> tuple[Trainer, dict[str, Any]]:
    """Run every stage from where the checkpoint stands; the last trainer, and the numbers of all stages."""
    at = Position(**found.state["position"]) if found else Position()
    log = Log(**found.state["log"]) if found else Log()
    log.resumed += found is not None
    model = task.build()
    if device.type == "cuda" and plan[0].channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for stage, train in enumerate(plan, 1):
        if stage < at.stage:
            continue
        if stage > 1:
            renew_head(task, model)
        if stage > at.stage:
            at.stage, at.epoch, at.batch, at.stage_step = stage, 1, 0, 0
            log.best = None
        trainer = Trainer(task, model, train, at, log, hooks, world, device, seed)
        if found is not None:
            trainer.restore(found)
            found = None
        elif stage == 1 and world.size > 1:
            torch.manual_seed(seed * world.size + world.rank)  # equal weights so far; dropout must differ from here on
        trainer.run()
        if len(log.finished) < stage:
            log.finished.append(summary(log, trainer))
    numbers = dict(log.finished[-1])
    numbers |= {f"stage{i}": earlier for i, earlier in enumerate(log.finished[:-1], 1)}
    return trainer, numbers


def renew_head(task: Task, model: nn.Module) -> None:
    """A fresh output layer that learns, on features that do not."""
    head = task.head(model)
    renew = getattr(head, "reset_parameters", None)
    if renew is None:
        raise RunError(f"the output layer is a {type(head).__name__} without reset_parameters: a second stage cannot "
                       "make it anew.")
    model.requires_grad_(False)
    head.requires_grad_(True)
    renew()


def summary(log: Log, trainer: Trainer) -> dict[str, Any]:
    """The last epoch's numbers, and those of the best epoch with ``best_`` before them."""
    last, best = log.lines[-1], log.best
    assert best is not None
    return {**measured(last), "train_loss": last["loss"], "grad_norm": last["grad_norm"],
            **{f"best_{name}": value for name, value in measured(best).items()},
            "best_epoch": best["epoch"], "epochs": last["epoch"], "steps": last["step"]}


def measured(line: Mapping[str, Any]) -> dict[str, Any]:
    """What the task measured, without what the engine did."""
    return {name: value for name, value in line.items() if name not in BASE}
