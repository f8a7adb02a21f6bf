"""Losses over images (N, C, H, W) on a GPU: torch's, ours read as they lie, ours rearranged first.

    python benchmarks/images_gpu.py

Milliseconds for forward and backward through autograd, by the clock: a step of this size takes Python longer to queue
than the GPU to compute, so the host's share decides. The copy is the GPU's time alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from encouraging import encouraging_loss

SHAPES = [((8, 19, 512, 1024), torch.float32), ((8, 21, 513, 513), torch.bfloat16),
          ((8, 150, 256, 256), torch.bfloat16), ((8, 150, 256, 256), torch.float32),
          ((2, 1000, 128, 128), torch.float32)]


def milliseconds(run: Callable[[], object]) -> float:
    from triton.testing import do_bench

    return float(do_bench(run, warmup=20, rep=80, quantiles=[0.5]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    if not torch.cuda.is_available() or not find_spec("triton"):
        parser.exit(1, "needs a CUDA device and Triton\n")
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
