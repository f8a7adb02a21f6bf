"""Losses over images (N, C, H, W) on a GPU: torch's, ours read as they lie, ours rearranged first.

    python benchmarks/images_gpu.py

Milliseconds for forward and backward through autograd, the host's share included.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from triton.testing import do_bench

from encouraging import encouraging_loss

SHAPES = [((8, 19, 512, 1024), torch.float32), ((8, 21, 513, 513), torch.bfloat16),
          ((8, 150, 256, 256), torch.bfloat16), ((8, 150, 256, 256), torch.float32),
          ((2, 1000, 128, 128), torch.float32)]


def milliseconds(run: Callable[[], object]) -> float:
    return float(do_bench(run, warmup=20, rep=80, quantiles=[0.5]))


def main() -> None:
    for shape, dtype in SHAPES:
        logits = torch.randn(shape, device="cuda", dtype=dtype).mul_(3).requires_grad_()
        target = torch.randint(shape[1], (shape[0], *shape[2:]), device="cuda")
        copy = torch.empty_like(logits)

        def step(loss: Callable[[Tensor], Tensor], logits: Tensor = logits) -> float:
            def run() -> None:
                logits.grad = None
                loss(logits).backward()
            return milliseconds(run)

        def rearranged(z: Tensor, target: Tensor = target) -> Tensor:
            return encouraging_loss(z.movedim(1, -1).flatten(0, -2), target.flatten())

        found = {
            "copy": milliseconds(lambda copy=copy, logits=logits: copy.copy_(logits)),
            "torch CE": step(lambda z, target=target: F.cross_entropy(z, target)),
            "ours, rearranged": step(rearranged),
            "ours": step(lambda z, target=target: encouraging_loss(z, target)),
            "ours, smoothed": step(lambda z, target=target: encouraging_loss(z, target, label_smoothing=0.1)),
        }
        print(f"{shape} {dtype}: " + ", ".join(f"{name} {time:.3f}" for name, time in found.items()), flush=True)


if __name__ == "__main__":
    main()
