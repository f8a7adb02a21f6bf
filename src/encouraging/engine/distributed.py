"""One model on several processes, as torchrun starts them. One process is the case of size 1, with nothing to do."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import RunError

T = TypeVar("T")
TIMEOUT = timedelta(minutes=10)  # how long a rank waits for the others, when one of them has died in silence
BEAT = 2.0  # seconds between two signs of life of rank 0 while the others wait for it
GRACE = 0.1  # seconds for the threads of gloo to put their last work away
_TURNS = count()  # of rank 0 working alone: a store keeps what was said, so no number may come twice in a process


@dataclass(frozen=True)
class World:
    """This process among its peers, and the few things that they tell each other."""

    rank: int = 0
    size: int = 1
    local: int = 0
    turns: count[int] = field(default_factory=lambda: _TURNS, compare=False)

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
        """Whether any rank says so: all must end a loop at the same step."""
        if self.size == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=device)).item())

    def first(self, number: int | None, device: torch.device) -> int | None:
        """The smallest of the ranks' numbers, of which some may have none."""
        numbers = self.gather(torch.tensor(-1 if number is None else number), device).tolist()
        return min((number for number in numbers if number >= 0), default=None)

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

    def collect(self, pieces: list[Any]) -> list[Any]:
        """Every rank's pieces on rank 0, its own first; nothing on the others."""
        if self.size == 1:
            return pieces
        parts: list[Any] | None = [None] * self.size if self.leads else None
        dist.gather_object(_on_host(pieces), parts)
        return [piece for part in parts or () for piece in part]

    def copy_buffers(self, model: nn.Module) -> None:
        """Rank 0's batch-norm statistics on every rank."""
        if self.size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, 0)

    def by_leader(self, work: Callable[[], T], device: torch.device) -> T:
        """What rank 0 makes of it, on every rank. However long that takes: the others wait for signs of life and not
        in a collective, which would run into its time-out. The result is something that JSON can hold."""
        if self.size == 1:
            return work()
        store = dist.distributed_c10d._get_default_store()
        key = f"encouraging/{next(self.turns)}"
        result: Any = None
        if self.leads:
            done = threading.Event()
            beat = threading.Thread(target=_beat, args=(store, f"{key}/alive", done), daemon=True)
            beat.start()
            try:
                result = work()
            except BaseException:
                store.set(f"{key}/end", "failed")
                raise
            finally:
                done.set()
                beat.join()
            store.set(f"{key}/end", "done")
        else:
            _await(store, key)
        shared: T = self.share(result, device)
        return shared

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
        dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=TIMEOUT)
    return world


def leave() -> None:
    """Take part no longer; torch warns where a process ends without it.

    A model that is garbage in a cycle would keep the threads of gloo alive until Python ends, which can abort it. A
    thread of gloo takes Python's lock to put its last work away, and torch holds the lock while it waits for the
    thread: it gets time before.
    """
    if dist.is_available() and dist.is_initialized():
        gc.collect()
        time.sleep(GRACE)
        dist.destroy_process_group()


def _on_host(tree: Any) -> Any:
    """Tensors in lists and dicts, moved to the CPU."""
    if isinstance(tree, Tensor):
        return tree.cpu()
    if isinstance(tree, dict):
        return {key: _on_host(value) for key, value in tree.items()}
    return [_on_host(item) for item in tree] if isinstance(tree, list) else tree


def _beat(store: Any, key: str, done: threading.Event) -> None:
    for number in count():
        store.set(key, str(number))
        if done.wait(BEAT):
            return


def _await(store: Any, key: str) -> None:
    """Wait for rank 0's end, as long as it shows signs of life."""
    last, since, pause = b"", time.monotonic(), 0.001
    while not store.check([f"{key}/end"]):
        beat = store.get(f"{key}/alive") if store.check([f"{key}/alive"]) else b""
        if beat != last:
            last, since = beat, time.monotonic()
        elif time.monotonic() - since > TIMEOUT.total_seconds():
            raise RunError(f"rank 0 has shown no sign of life for {TIMEOUT}: it has probably died.")
        time.sleep(pause)
        pause = min(0.2, pause * 2)
    if store.get(f"{key}/end") != b"done":
        raise RunError("rank 0 has failed; its own message says why.")
