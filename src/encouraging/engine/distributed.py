"""One model on several processes, as torchrun starts them. One process is the case of size 1, with nothing to do."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class World:
    """This process among its peers, and the few things that they tell each other."""

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def leads(self) -> bool:
        """Rank 0 writes, prints, evaluates and decides."""
        return self.rank == 0

    def wrap(self, model: nn.Module, device: torch.device) -> nn.Module:
        if self.size == 1:
            return model
        return nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)

    def sum(self, tensor: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether any rank says so: all must leave a loop at the same step."""
        if self.size == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=device)).item())

    def gather(self, tensor: Tensor, device: torch.device) -> Tensor:
        """Every rank's tensor, stacked."""
        if self.size == 1:
            return tensor[None]
        parts = [torch.empty_like(tensor, device=device) for _ in range(self.size)]
        dist.all_gather(parts, tensor.to(device))
        return torch.stack(parts).cpu()

    def share(self, value: Any, device: torch.device) -> Any:
        """Rank 0's value, which JSON can hold, on every rank."""
        if self.size == 1:
            return value
        content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(device)
        length = torch.tensor(len(content) if self.leads else 0, device=device)
        dist.broadcast(length, 0)
        if not self.leads:
            content = torch.empty(int(length.item()), dtype=torch.uint8, device=device)
        dist.broadcast(content, 0)
        return json.loads(bytes(content.cpu().tolist()))

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


def join(device: str) -> World:
    """The world that torchrun describes in the environment: nccl where there are GPUs, else gloo."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World()
    world = World(int(os.environ["RANK"]), size, int(os.environ.get("LOCAL_RANK", "0")))
    if not dist.is_initialized():
        if device == "cuda":
            torch.cuda.set_device(world.local)
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
    return world


def leave() -> None:
    """Take part no longer; torch warns where a process ends without it."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
