"""What two ranks do in the tests of compiled models."""

from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from encouraging.engine import Train, execute, load_weights
from encouraging.engine.distributed import World
from toy_tasks import Blobs, run_spec


def exchanges(world: World, folder: Path, compiled: bool) -> tuple[int, dict[str, Tensor]]:
    """How often the ranks exchange gradients in one epoch of four updates, each of two batches; and the weights."""
    count = 0

    class Watched(World):
        def wrap(self, model: nn.Module, device: torch.device) -> nn.Module:
            def hook(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
                nonlocal count
                count += 1
                return allreduce_hook(dist.group.WORLD, bucket)

            wrapped = super().wrap(model, device)
            wrapped.register_comm_hook(None, hook)
            return wrapped

    torch.compile = partial(torch.compile, backend="eager")
    train = Train(epochs=1, lr=0.1, batch_size=16, accumulate=2, compile=compiled)
    execute(run_spec(folder, Blobs(dropout=0.0, count=128), (train,), world=Watched(world.rank, world.size)))
    return count, load_weights(folder)
