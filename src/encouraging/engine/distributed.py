"""Training one model with several processes that torchrun started. With one process everything here is a no-op."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import RunError

T = TypeVar("T")
TIMEOUT = timedelta(minutes=10)  # how long a rank waits for one that has died without a message
BEAT = 2.0  # seconds between two heartbeats of rank 0 while the others wait for it
GRACE = 0.1  # seconds for gloo's threads to release their last work
_TURNS = count()  # calls of by_leader: the store never forgets a key, so a process must not use a number twice


@dataclass(frozen=True)
class World:
    """This process among the others of the run, and what they exchange."""

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
        """Whether the flag is set on any rank: all of them must leave a loop at the same step."""
        if self.size == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=device)).item())

    def first(self, number: int | None, device: torch.device) -> int | None:
        """The smallest of the ranks' numbers; None if no rank has one."""
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
        """Rank 0's value on every rank. JSON must be able to hold it."""
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
        """The pieces of all ranks on rank 0, in the order of ranks; an empty list on the other ranks."""
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

    def by_leader(self, function: Callable[[], T], device: torch.device) -> T:
        """Call a function on rank 0 alone and return its result, which JSON must be able to hold, on every rank.

        It may take any time: the other ranks wait for heartbeats and not in a collective, which would time out.
        """
        if self.size == 1:
            return function()
        store = dist.distributed_c10d._get_default_store()
        key = f"encouraging/{next(_TURNS)}"
        result: Any = None
        if self.leads:
            done = threading.Event()
            heartbeats = threading.Thread(target=_send_heartbeats, args=(store, f"{key}/alive", done), daemon=True)
            heartbeats.start()
            try:
                result = function()
            except BaseException:
                store.set(f"{key}/end", "failed")
                raise
            finally:
                done.set()
                heartbeats.join()
            store.set(f"{key}/end", "done")
        else:
            _wait_for_leader(store, key)
        shared: T = self.share(result, device)
        return shared

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


def join(device: str) -> World:
    """The world that torchrun describes in environment variables, with nccl on GPUs and gloo elsewhere."""
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
    """Destroy the process group; torch warns when a process ends without this.

    A model in an uncollected reference cycle would keep gloo's threads alive until the interpreter exits, which can
    abort it: hence the garbage collection. A gloo thread needs the GIL to release its last work, and torch holds the
    GIL while it waits for the thread: hence the pause.
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


def _send_heartbeats(store: Any, key: str, done: threading.Event) -> None:
    for number in count():
        store.set(key, str(number))
        if done.wait(BEAT):
            return


def _wait_for_leader(store: Any, key: str) -> None:
    """Wait until rank 0 has finished, as long as its heartbeats arrive."""
    last, since, pause = b"", time.monotonic(), 0.001
    while not store.check([f"{key}/end"]):
        beat = store.get(f"{key}/alive") if store.check([f"{key}/alive"]) else b""
        if beat != last:
            last, since = beat, time.monotonic()
        elif time.monotonic() - since > TIMEOUT.total_seconds():
            raise RunError(f"rank 0 has shown no sign of life for {TIMEOUT}: it has probably died. Run the same "
                           "command again to continue from the last checkpoint.")
        time.sleep(pause)
        pause = min(0.2, pause * 2)
    if store.get(f"{key}/end") != b"done":
        raise RunError("rank 0 has failed; its own message says why.")
