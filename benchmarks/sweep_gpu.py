"""Tilings of the kernels, tried one by one on a GPU: the bare kernel that writes loss and gradient.

    python benchmarks/sweep_gpu.py --both --out results/bench/h200-sweep.json
    python benchmarks/sweep_gpu.py --shape 32000 128256

Prints one table per shape, best first, with the share of a copy's speed. The copy is one of this very tensor, timed
alone; `encouraging bench` takes the bandwidth of a large copy instead, which a small tensor does not reach. All
variants are compiled beforehand in parallel processes; the kernels' own cache hands them over.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import torch

from encouraging import curves

if find_spec("triton"):  # --help does without
    from triton.testing import do_bench

    from encouraging.ops.triton import Tiling, tiling_for, use_tiling
    from encouraging.ops.triton.curves import constants
    from encouraging.ops.triton.later_launch import scale
    from encouraging.ops.triton.launch import loss_sum
    from encouraging.ops.triton.problem import Problem
    from encouraging.ops.triton.sums import denominator, total

SHAPES = [(8192, 32000, torch.bfloat16), (8192, 128256, torch.bfloat16), (4096, 262144, torch.bfloat16),
          (65536, 1000, torch.float32), (1048576, 10, torch.float32), (8192, 8142, torch.float32)]
CURVE = curves.conservative(0.75)


def whole(block: int, *cuts: tuple[int, int]) -> list[Tiling]:
    return [Tiling(rows, block, warps, skip=skip) for rows, warps in cuts for skip in (True, False)]


def streamed(*cuts: tuple[int, int, int]) -> list[Tiling]:
    return [Tiling(1, block, warps, streamed=True, per_processor=per) for block, warps, per in cuts]


def long() -> list[Tiling]:
    return streamed((8192, 8, 1), (8192, 8, 2), (8192, 8, 3), (8192, 8, 4), (4096, 8, 2), (4096, 8, 4), (4096, 4, 4),
                    (4096, 4, 8), (8192, 16, 1), (8192, 16, 2), (16384, 16, 1), (16384, 16, 2), (16384, 32, 1),
                    (2048, 4, 8))


def candidates(classes: int) -> list[Tiling]:
    return {
        32000: [*whole(32768, (1, 16), (1, 32)),
                *streamed((8192, 8, 2), (8192, 8, 4), (4096, 8, 4), (4096, 4, 8), (8192, 16, 2), (16384, 16, 2),
                          (32768, 32, 1), (4096, 4, 5), (2048, 2, 10))],
        1000: whole(1024, (1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4), (1, 8)),
        10: whole(16, (32, 1), (64, 1), (64, 2), (64, 4), (128, 4), (128, 2), (256, 4), (256, 8)),
        8142: [*whole(8192, (1, 4), (1, 8), (1, 16), (1, 32)), *streamed((2048, 4, 8), (4096, 8, 4))],
    }.get(classes) or long()


def problem(shape: tuple[int, int, torch.dtype], smoothing: float) -> tuple[Problem, torch.Tensor]:
    rows, classes, dtype = shape
    logits = torch.randn(rows, classes, dtype=dtype, device="cuda").mul_(3)
    target = torch.randint(classes, (rows,), device="cuda")
    return Problem(logits, target, None, constants(CURVE), -100, smoothing), torch.empty_like(logits)


def compile_one(shape: tuple[int, int, torch.dtype], tiling: Tiling, smoothing: float) -> str:
    try:
        work, grad = problem(shape, smoothing)
        with use_tiling(tiling):
            loss_sum(work, True, partial_weights(work), grad=grad)
        torch.cuda.synchronize()
    except Exception as error:  # a tiling that does not fit the chip is a result too
        return f"{type(error).__name__}: {error}"[:90]
    return ""


def partial_weights(work: Problem) -> torch.Tensor:
    return denominator(work.target, work.weight, work.logits.shape[1], work.ignore_index)


def milliseconds(run: object) -> float:
    return float(do_bench(run, warmup=15, rep=60, quantiles=[0.5]))


def sweep(shape: tuple[int, int, torch.dtype], smoothing: float, failed: dict[Tiling, str]) -> list[dict[str, object]]:
    work, grad = problem(shape, smoothing)
    over = partial_weights(work)
    floor = milliseconds(lambda: grad.copy_(work.logits))
    print(f"\n{shape[0]} x {shape[1]} {shape[2]} smoothing {smoothing}: copy {floor:.4f} ms")
    found = []
    chosen = tiling_for(shape[1], smooth=smoothing > 0)
    for tiling in [chosen, *(tiling for tiling in candidates(shape[1]) if tiling != chosen)]:
        if tiling in failed:
            print(f"   failed  {failed[tiling]}  {tiling}")
            continue
        with use_tiling(tiling):
            grad.fill_(float("nan"))
            loss_sum(work, True, over, grad=grad)
            if grad.isnan().any():
                print(f"   WRONG   {tiling}")
                continue
            time_taken = milliseconds(lambda: loss_sum(work, True, over, grad=grad))
            found.append((time_taken, tiling))
    for time_taken, tiling in sorted(found, key=lambda pair: pair[0]):
        mark = "  <- in use" if tiling == chosen else ""
        kind = f"streamed block {tiling.block}" if tiling.streamed else f"whole rows {tiling.rows}"
        print(f"{time_taken:9.4f} ms {floor / time_taken:6.1%}  {kind} warps {tiling.warps} per_processor "
              f"{tiling.per_processor} registers {tiling.registers} skip {tiling.skip}{mark}")
    shares = torch.zeros(shape[0], device="cuda")
    one = torch.ones((), device="cuda")
    print(f"   around it: denominator {milliseconds(lambda: partial_weights(work)):.4f}, a sum of all rows "
          f"{milliseconds(lambda: total(shares, shape[0], over)):.4f}, scale by 1 "
          f"{milliseconds(lambda: scale(grad, one, grad)):.4f}, by 2 "
          f"{milliseconds(lambda: scale(grad, one + one, grad)):.4f} ms", flush=True)
    return [{"milliseconds": time_taken, "share": floor / time_taken, **asdict(tiling)} for time_taken, tiling in found]


def main() -> None:
    counts = [shape[1] for shape in SHAPES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs="*", choices=counts, metavar="CLASSES",
                        help=f"only the shapes with these class counts, of {', '.join(map(str, counts))}")
    parser.add_argument("--smoothing", action="store_true", help="with label smoothing of 0.1 only")
    parser.add_argument("--both", action="store_true", help="without and with label smoothing of 0.1")
    parser.add_argument("--jobs", type=int, default=12, help="processes that compile beforehand (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    options = parser.parse_args()
    if not torch.cuda.is_available() or not find_spec("triton"):
        parser.exit(1, "needs a CUDA device and Triton\n")
    smoothings = [0.0, 0.1] if options.both else [0.1 if options.smoothing else 0.0]
    cases = [(shape, smoothing) for shape in SHAPES for smoothing in smoothings
             if not options.shape or shape[1] in options.shape]
    start = time.perf_counter()
    jobs = [(shape, tiling, smoothing) for shape, smoothing in cases for tiling in candidates(shape[1])]
    failed: dict[tuple[object, ...], str] = {}
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for job, words in zip(jobs, pool.map(compile_one, *zip(*jobs, strict=True)), strict=True):
            if words:
                failed[job] = words
    print(f"{len(jobs)} variants compiled in {time.perf_counter() - start:.0f} s")
    record = {}
    for shape, smoothing in cases:
        broken = {tiling: words for (s, tiling, smooth), words in failed.items() if s == shape and smooth == smoothing}
        record[f"{shape[0]}x{shape[1]} smoothing {smoothing}"] = sweep(shape, smoothing, broken)
    if options.out:
        options.out.write_text(json.dumps(record, indent=1))
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
