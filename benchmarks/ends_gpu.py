"""Rows of float32 on chip that do not start at a multiple of 16 bytes: element by element, or in vectors with two ends.

    python benchmarks/ends_gpu.py [--out FILE]

One line per class count: milliseconds of the kernel that writes loss and gradient, both ways, beside the aligned
neighbour and a copy of the tensor, and those of the launches around it. Which way is in use says
``tiling.FLOAT32_ENDS_ON_CHIP``.
"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from encouraging import curve_loss, curves
from encouraging.commands.bench_timing import medians

if find_spec("triton"):  # --help does without
    from encouraging.ops.triton import launch, tiling
    from encouraging.ops.triton.cached_launch import Kept
    from encouraging.ops.triton.curves import constants
    from encouraging.ops.triton.problem import Problem

EL = curves.conservative(0.75)
SHAPES = ((67041, 1001), (65536, 1001), (32776, 2047), (16388, 4095))


def kernel(logits: Tensor, target: Tensor, seconds: float) -> float:
    """Milliseconds of the one kernel, the denominator given."""
    problem = Problem(logits, target, None, constants(EL), -100, 0.0)
    grad, over = torch.empty_like(logits), torch.ones(1, device=logits.device)
    return medians({"kernel": lambda: launch.loss_sum(problem, True, over, grad=grad)}, logits.device.type,
                   seconds)["kernel"][0]


def measure(rows: int, classes: int, device: str, seconds: float) -> dict[str, float]:
    """Both ways, the aligned neighbour, a copy, and the whole step through autograd."""
    target = torch.randint(classes - 1, (rows,), device=device)
    logits = torch.randn(rows, classes, device=device)
    other = torch.empty_like(logits)
    times = {"copy": medians({"copy": lambda: other.copy_(logits)}, device, seconds)["copy"][0]}
    neighbour = torch.randn(rows, classes // 4 * 4, device=device)
    times["aligned neighbour"] = kernel(neighbour, target % neighbour.shape[1], seconds)
    for words, ends in (("elements", False), ("vectors and ends", True)):
        with mock.patch.object(tiling, "FLOAT32_ENDS_ON_CHIP", ends), mock.patch.object(launch, "_sums", Kept()):
            times[words] = kernel(logits, target, seconds)
    leaf = logits.requires_grad_()

    def step() -> None:
        leaf.grad = None
        curve_loss(leaf, target, EL, impl="triton").backward()

    times["a step as it is"] = medians({"step": step}, device, seconds)["step"][0]
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the times as JSON")
    parser.add_argument("--seconds", type=float, default=0.1, help="per time (default: %(default)s)")
    parser.add_argument("--device", default="cuda", help="cpu tries it out in the interpreter, at small sizes")
    args = parser.parse_args()
    record = {}
    for rows, classes in SHAPES if args.device == "cuda" else ((3, 1001),):
        record[f"{rows} x {classes}"] = times = measure(rows, classes, args.device, args.seconds)
        print(f"{rows} x {classes}: " + ", ".join(f"{name} {taken:.4f}" for name, taken in times.items()), flush=True)
        if args.out:
            args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
