"""The state of a trainer in a checkpoint: weights, their average and the best ones, optimiser, sums, random state."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import random_state
from .checkpoint import Checkpoint
from .meter import OWN, UPDATES
from .optim import pack, unpack

if TYPE_CHECKING:
    from .train import Trainer


def capture(trainer: Trainer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the other state. All ranks must call this; only rank 0's result is complete."""
    world, device = trainer.world, trainer.device
    tensors = {f"model.{name}": tensor for name, tensor in trainer.model.state_dict().items()}
    if trainer.average is not None:
        tensors |= {f"ema.{name}": tensor for name, tensor in trainer.average.model.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in trainer.best_weights.items()}
    tensors["meter"] = world.sum(trainer.meter.sums().to(device))
    for name, tensor in random_state.random_tensors(device).items():  # every rank has its own
        tensors[name] = world.gather(tensor, device)
    optimizer_tensors, numbers = pack(trainer.optimizer)
    tensors |= {f"optimizer.{name}": tensor for name, tensor in optimizer_tensors.items()}
    return tensors, {"position": asdict(trainer.at), "log": asdict(trainer.log), "optimizer": numbers,
                     "scaler": trainer.update.scaler.state_dict(), "random": random_state.random_json(),
                     "stopped_early": trainer.stopped_early}


def restore(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """Restore everything except position and log."""
    world, device, state = trainer.world, trainer.device, checkpoint.state
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in checkpoint.tensors.items():
        group, _, key = name.partition(".")
        groups.setdefault(group, {})[key] = tensor
    trainer.model.load_state_dict(groups["model"])
    if trainer.average is not None:
        trainer.average.model.load_state_dict(groups["ema"])
    trainer.best_weights = {name: tensor.to(device) for name, tensor in groups.get("best", {}).items()}
    unpack(trainer.optimizer, groups.get("optimizer", {}), state["optimizer"])
    trainer.update.scaler.load_state_dict(state["scaler"])
    totals = torch.zeros(len(OWN) + len(trainer.task.sums), dtype=torch.float64)
    saved = checkpoint.tensors["meter"]
    totals[: len(saved)] = saved  # early checkpoints lack the task's own sums
    sums = totals.clone() if world.leads else torch.zeros_like(totals)
    sums[UPDATES] = totals[UPDATES] / world.size  # rank 0 gets all sums, but every rank counts its updates
    trainer.meter.load(sums)
    trainer.stopped_early = state["stopped_early"]
    own_states = {f"rng.{kind}": states[min(world.rank, len(states) - 1)] for kind, states in groups["rng"].items()}
    random_state.restore(own_states, state["random"], device)
