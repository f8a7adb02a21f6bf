"""Ways of the kernels that can be switched, timed in turn in one process on a GPU.

    python benchmarks/ways_gpu.py [--seconds 0.3] [--out FILE] [--share I/N] [PART ...]

Parts: *sums* (``sums.in_order_from``: a launch of its own for the sum of many programs, in order, and in order with
labels that a launch before has counted (``sums.counted_rows``)),
*few* (``sigmoid_autograd.few_elements``: in blocks as large as those of many, or in small ones), *torchs*
(``as_torch.few_bytes``: cross-entropy of few logits by the kernels, or by torch; wall time), *split*
(``tiling.split_from``: few long rows by one program each, or by several), *later* (gradients made in the backward pass:
without ``tiling.narrow_blocks``, ``tiling.narrow_soft`` and ``tiling.wide_for_few``, with the states of all rows of
labels (``short_launch.short_row``), without those of soft targets and squared errors
(``soft_later_launch.short_row``)), *fit* (``tiling.fitted``: long rows by as many programs as fit on the GPU at once,
or by as many as the tiling says, with as many registers as the compiler likes). Milliseconds of forward and backward,
and shares of the floor.

``--share 2/8`` takes every eighth shape from the second on: eight such processes with ``--seconds 0.001`` compile at
the same time what one process then measures.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from encouraging import curve_loss, curves, mirror_mse_loss
from encouraging.commands.bench_timing import copy_time_per_byte, medians, walls
from encouraging.ops import as_torch

EL, CE = curves.conservative(0.75), curves.cross_entropy()
SUMS = ((65536, 1000, torch.float32, 0.0), (32768, 4096, torch.float32, 0.0), (8192, 8142, torch.float32, 0.0),
        (65536, 1000, torch.bfloat16, 0.0), (131072, 100, torch.float32, 0.0), (1048576, 10, torch.float32, 0.0),
        (20000, 100, torch.float32, 0.0), (65536, 1000, torch.float32, 0.1), (8192, 8142, torch.float32, 0.1),
        (131072, 100, torch.float32, 0.1), (1048576, 10, torch.float32, 0.1))  # the last number is the smoothing

FEW = ((1018, 1975, torch.float16), (945, 701, torch.bfloat16), (300, 3000, torch.float32), (700, 90, torch.float32))
TORCHS = ((69648, 4, torch.bfloat16), (256, 1000, torch.float32), (131072, 2, torch.bfloat16))


def step(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor) -> None:
    logits.grad = None
    loss(logits, target).sum().backward()


def drawn(rows: int, classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    logits = (3 * torch.randn(rows, classes, device="cuda")).to(dtype).requires_grad_()
    return logits, torch.randint(classes, (rows,), device="cuda")


def ways_of_sums(seconds: float) -> dict[str, Any]:
    from encouraging.ops.triton import repeated_loss, sums

    record = {}
    for rows, classes, dtype, smoothing in SUMS:
        logits, target = drawn(rows, classes, dtype)
        steps = {}
        for name, programs, counted in (("a launch of its own", math.inf, 0), ("in order", 2049, math.inf),
                                        ("in order, counted before", 2049, 0)):
            repeated = repeated_loss(EL, -100, smoothing, "mean")
            with mock.patch.multiple(sums, in_order_from=programs, in_order_rows=math.inf,
                                     counted_rows=counted):  # remembered from here on
                run = partial(step, partial(lambda one, z, y, d: one(z, y, d), repeated, d=dtype), logits, target)
                run()
            steps[name] = run
        floor = (2 * logits.nbytes + target.nbytes) * copy_time_per_byte("cuda")
        times = {name: device for name, (device, _) in medians(steps, "cuda", seconds).items()}
        words = f"{rows} x {classes} {str(dtype)[6:]}{', smoothed' if smoothing else ''}"
        record[words] = {"floor": floor, **times}
        print(f"{words}: " + ", ".join(f"{name} {taken:.4f} ({floor / taken:.1%})" for name, taken in times.items()),
              flush=True)
    return record


def ways_of_few(seconds: float) -> dict[str, Any]:
    from encouraging.ops.triton import sigmoid_autograd

    record = {}
    for rows, classes, dtype in FEW:
        logits, target = drawn(rows, classes, dtype)

        def run(most: int, logits: Tensor = logits, target: Tensor = target) -> None:
            sigmoid_autograd.few_elements = most
            step(partial(mirror_mse_loss, link="sigmoid"), logits, target)

        steps = {"large blocks": partial(run, 0), "small blocks": partial(run, 1 << 21)}
        times = {name: device for name, (device, _) in medians(steps, "cuda", seconds).items()}
        record[f"{rows} x {classes} {str(dtype)[6:]}"] = times
        print(f"sigmoid's mse {rows} x {classes} {str(dtype)[6:]}: " + ", ".join(
            f"{name} {taken:.4f}" for name, taken in times.items()), flush=True)
    return record


def ways_of_torch(seconds: float) -> dict[str, Any]:
    record = {}
    for rows, classes, dtype in TORCHS:
        logits, target = drawn(rows, classes, dtype)
        times = walls({"torch": partial(step, F.cross_entropy, logits, target),
                       "handed over": partial(step, partial(curve_loss, curve=CE), logits, target)}, seconds)
        with mock.patch.object(as_torch, "few_bytes", 0):
            times |= walls({"kernels": partial(step, partial(curve_loss, curve=CE), logits, target)}, seconds)
        record[f"{rows} x {classes} {str(dtype)[6:]}"] = times
        print(f"{rows} x {classes} {str(dtype)[6:]}: " + ", ".join(
            f"{way} {taken:.4f} ({taken / times['torch']:.2f})" for way, taken in times.items()), flush=True)
    return record


def ways_of_split(seconds: float) -> dict[str, Any]:
    from encouraging.ops import repeat
    from encouraging.ops.triton import tiling

    record = {}
    for rows, classes, dtype in LONG:
        logits, target = drawn(rows, classes, dtype)
        soft = torch.randn(rows, classes, device="cuda").softmax(1).to(dtype)
        for name, loss, wanted in SPLIT:
            def run(limit: float, loss: Callable[..., Tensor] = loss, z: Tensor = logits,
                    t: Tensor = soft if wanted == "soft" else target) -> None:
                if tiling.split_from != limit:
                    tiling.split_from = limit
                    repeat.forget()
                step(loss, z, t)

            steps = {"one program": partial(run, math.inf), "several": partial(run, 1 << 14)}
            times = {way: device for way, (device, _) in medians(steps, "cuda", seconds).items()}
            record[f"{name}, {rows} x {classes} {str(dtype)[6:]}"] = times
            print(f"{name}, {rows} x {classes} {str(dtype)[6:]}: " + ", ".join(
                f"{way} {taken:.4f}" for way, taken in times.items()), flush=True)
    return record


def ways_of_fit(seconds: float) -> dict[str, Any]:
    from encouraging.ops import repeat
    from encouraging.ops.triton import tiling

    record = {}
    for name, rows, classes, dtype, loss, wanted in FIT:
        logits, target = drawn(rows, classes, dtype)
        if wanted != "labels":
            target = torch.randn(rows, classes, device="cuda").softmax(1).to(dtype)
            target.requires_grad_(wanted == "target")

        def run(fitted: bool, loss: Callable[..., Tensor] = loss, z: Tensor = logits, t: Tensor = target) -> None:
            if tiling.fitted != fitted:
                tiling.fitted = fitted
                repeat.forget()
            t.grad = None
            step(loss, z, t)

        steps = {"as many as fit": partial(run, True), "as the tiling says": partial(run, False)}
        times = {way: device for way, (device, _) in medians(steps, "cuda", seconds).items()}
        record[f"{name}, {rows} x {classes} {str(dtype)[6:]}"] = times
        print(f"{name}, {rows} x {classes} {str(dtype)[6:]}: " + ", ".join(
            f"{way} {taken:.4f}" for way, taken in times.items()), flush=True)
        run(True)
    return record


def ways_of_later(seconds: float) -> dict[str, Any]:
    from encouraging.ops import repeat
    from encouraging.ops.triton import short_launch, soft_later_launch, tiling

    usual: dict[tuple[Any, str], Any] = {
        (tiling, "narrow_blocks"): True, (tiling, "narrow_soft"): True, (tiling, "wide_for_few"): True,
        (short_launch, "short_row"): 64, (soft_later_launch, "short_row"): 256}
    ways = {"as it is": usual, "wide tiles": usual | {(tiling, "narrow_blocks"): False},
            "wide tiles of soft targets": usual | {(tiling, "narrow_soft"): False},
            "4 warps": usual | {(tiling, "wide_for_few"): False},
            "states of all labels": usual | {(short_launch, "short_row"): 0},
            "no soft states": usual | {(soft_later_launch, "short_row"): math.inf}}
    record = {}
    for name, rows, classes, dtype, loss, is_soft in LATER:
        logits, target = drawn(rows, classes, dtype)
        target = torch.randn(rows, classes, device="cuda").softmax(1).to(dtype) if is_soft else target

        def run(way: str, loss: Callable[..., Tensor] = loss, z: Tensor = logits, t: Tensor = target) -> None:
            for (module, flag), number in ways[way].items():
                if getattr(module, flag) != number:
                    setattr(module, flag, number)
                    repeat.forget()
            step(loss, z, t)

        steps = {way: partial(run, way) for way in ways}
        times = {way: device for way, (device, _) in medians(steps, "cuda", seconds).items()}
        record[f"{name}, {rows} x {classes} {str(dtype)[6:]}"] = times
        print(f"{name}, {rows} x {classes} {str(dtype)[6:]}: " + ", ".join(
            f"{way} {taken:.4f}" for way, taken in times.items()), flush=True)
        run("as it is")
    return record


LATER = (("soft, aggressive", 83645, 258, torch.float16, partial(curve_loss, curve=curves.aggressive(0.5)), True),
         ("sum, focal", 221990, 133, torch.float16, partial(curve_loss, curve=curves.focal(2.48), reduction="sum"),
          False),
         ("squared errors, soft", 295, 8050, torch.float16, mirror_mse_loss, True),
         ("none, cross-entropy", 2097152, 5, torch.float16, partial(curve_loss, curve=CE, reduction="none"), False),
         ("soft, none, halted focal", 1553, 7276, torch.bfloat16,
          partial(curve_loss, curve=curves.halted_focal(2, 0.5), reduction="none"), True),
         ("plain", 1048576, 10, torch.float16, partial(curve_loss, curve=EL), False),
         ("plain", 262144, 100, torch.float16, partial(curve_loss, curve=EL), False),
         ("soft", 65536, 1000, torch.float16, partial(curve_loss, curve=EL), True),
         ("squared errors, soft", 8192, 32000, torch.float16, mirror_mse_loss, True),
         ("soft, none, normal", 16581, 147, torch.float32,
          partial(curve_loss, curve=curves.normal(1e-5), reduction="none"), True),
         ("soft, normal", 60000, 147, torch.float32, partial(curve_loss, curve=curves.normal(1e-5)), True),
         ("soft", 60000, 300, torch.bfloat16, partial(curve_loss, curve=EL), True))
LONG = ((2, 245034, torch.float32), (15, 72322, torch.float32), (17, 210607, torch.float16),
        (64, 32000, torch.bfloat16), (120, 16384, torch.float32), (131, 50257, torch.bfloat16))
SPLIT = (("soft, poly", partial(curve_loss, curve=curves.poly(1.0)), "soft"),
         ("soft, cross-entropy", partial(curve_loss, curve=CE), "soft"),
         ("squared errors", partial(mirror_mse_loss, bonus=False), "labels"),
         ("plain", partial(curve_loss, curve=EL), "labels"),
         ("smoothed", partial(curve_loss, curve=EL, label_smoothing=0.1), "labels"),
         ("smoothed, power", partial(curve_loss, curve=curves.power(2.0, 0.5), label_smoothing=0.1), "labels"))
WEIGHTS: dict[int, Tensor] = {}


def weighted(logits: Tensor, target: Tensor, **arguments: Any) -> Tensor:
    """The encouraging loss with class weights."""
    classes = logits.shape[1]
    if classes not in WEIGHTS:
        WEIGHTS[classes] = torch.rand(classes, device=logits.device) + 0.5
    return curve_loss(logits, target, EL, weight=WEIGHTS[classes], **arguments)


FIT = (("soft, cross-entropy", 8192, 32000, torch.bfloat16, partial(curve_loss, curve=CE), "soft"),
       ("soft, cross-entropy", 2048, 128256, torch.bfloat16, partial(curve_loss, curve=CE), "soft"),
       ("soft, cross-entropy", 4096, 32000, torch.float32, partial(curve_loss, curve=CE), "soft"),
       ("soft, focal", 4096, 32000, torch.float32, partial(curve_loss, curve=curves.focal(2.0)), "soft"),
       ("soft, targets with gradients", 4096, 32000, torch.bfloat16, partial(curve_loss, curve=EL), "target"),
       ("soft, weighted and smoothed", 4096, 32001, torch.bfloat16, partial(weighted, label_smoothing=0.1), "soft"),
       ("soft, weighted", 8192, 8142, torch.bfloat16, weighted, "soft"),
       ("plain", 8192, 32000, torch.bfloat16, partial(curve_loss, curve=EL), "labels"),
       ("plain", 8192, 32000, torch.float32, partial(curve_loss, curve=EL), "labels"),
       ("weighted", 8192, 32000, torch.bfloat16, weighted, "labels"),
       ("weighted and smoothed", 8192, 32000, torch.bfloat16, partial(weighted, label_smoothing=0.1), "labels"),
       ("weighted and smoothed", 8192, 32001, torch.float32, partial(weighted, label_smoothing=0.1), "labels"),
       ("none", 8192, 32000, torch.bfloat16, partial(curve_loss, curve=EL, reduction="none"), "labels"),
       ("norm matching", 8192, 32000, torch.bfloat16, partial(curve_loss, curve=EL, match_norm=True), "labels"),
       ("squared errors without bonus", 992, 93299, torch.float32, partial(mirror_mse_loss, bonus=False), "labels"),
       ("squared errors, soft", 8192, 32000, torch.bfloat16, mirror_mse_loss, "soft"),
       ("soft, poly", 4734, 414, torch.bfloat16, partial(curve_loss, curve=curves.poly(1.0)), "soft"),
       ("soft, weighted", 60000, 147, torch.float32, weighted, "soft"))
PARTS = {"sums": ways_of_sums, "few": ways_of_few, "torchs": ways_of_torch, "split": ways_of_split,
         "later": ways_of_later, "fit": ways_of_fit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these: {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, help="write the times as JSON")
    parser.add_argument("--seconds", type=float, default=0.3, help="per time (default: %(default)s)")
    parser.add_argument("--share", default="1/1", metavar="I/N", help="of the shapes, only these")
    args = parser.parse_args()
    first, every = map(int, args.share.split("/"))
    for shapes in ("SUMS", "FEW", "TORCHS", "LONG", "LATER", "FIT"):
        globals()[shapes] = globals()[shapes][first - 1::every]
    for unknown in set(args.parts) - set(PARTS):
        parser.error(f"no part is called {unknown!r}; they are {', '.join(PARTS)}")
    record: dict[str, Any] = {}
    for name in args.parts or PARTS:
        record[name] = PARTS[name](args.seconds)
        if args.out:
            args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
