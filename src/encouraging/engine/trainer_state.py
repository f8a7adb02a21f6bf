"""A trainer as a checkpoint holds it: weights, their average and the best ones, optimiser, sums, random state."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import random_state
from .checkpoint import Checkpoint
from .meter import OWN
from .optim import pack, unpack

if TYPE_CHECKING:
    from .train import Trainer


def taken(trainer: Trainer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the rest. Every rank takes part; only rank 0's result is whole."""
    world, device = trainer.world, trainer.device
    tensors = {f"model.{name}": tensor for name, tensor in trainer.model.state_dict().items()}
    if trainer.average is not None:
        tensors |= {f"ema.{name}": tensor for name, tensor in trainer.average.model.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in trainer.best_weights.items()}
    tensors["meter"] = world.sum(trainer.meter.sums().to(device))
    for name, tensor in random_state.random_tensors(device).items():  # every rank has its own
        tensors[name] = world.gather(tensor, device)
    more, numbers = pack(trainer.optimizer)
    tensors |= {f"optimizer.{name}": tensor for name, tensor in more.items()}
    return tensors, {"position": asdict(trainer.at), "log": asdict(trainer.log), "optimizer": numbers,
                     "scaler": trainer.update.scaler.state_dict(), "random": random_state.random_json(),
                     "stopped_early": trainer.stopped_early}


def restore(trainer: Trainer, found: Checkpoint) -> None:
    """Make the trainer what the checkpoint describes, but for position and log."""
    world, device = trainer.world, trainer.device
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in found.tensors.items():
        kind, _, rest = name.partition(".")
        groups.setdefault(kind, {})[rest] = tensor
    trainer.model.load_state_dict(groups["model"])
    if trainer.average is not None:
        trainer.average.model.load_state_dict(groups["ema"])
    trainer.best_weights = {name: tensor.to(device) for name, tensor in groups.get("best", {}).items()}
    unpack(trainer.optimizer, groups.get("optimizer", {}), found.state["optimizer"])
    trainer.update.scaler.load_state_dict(found.state["scaler"])
    whole = torch.zeros(len(OWN) + len(trainer.task.sums), dtype=torch.float64)
    whole[: len(found.tensors["meter"])] = found.tensors["meter"]  # an older one has no sums of the task's own
    sums = whole.clone() if world.leads else torch.zeros_like(whole)
    sums[4] = whole[4] / world.size  # the sums of all ranks go to one, the count to each
    trainer.meter.load(sums)
    trainer.stopped_early = found.state["stopped_early"]
    mine = {name: tensor[min(world.rank, len(tensor) - 1)] for name, tensor in
            ((f"rng.{kind}", state) for kind, state in groups["rng"].items())}
    random_state.restore(mine, found.state["random"], device)
