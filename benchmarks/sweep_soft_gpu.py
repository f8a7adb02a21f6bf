"""Tilings of the kernels of soft targets, tried one by one on a GPU: the bare kernel that writes loss and gradient.

    python benchmarks/sweep_soft_gpu.py --out results/bench/h200-soft-sweep.json

Prints one table per case, best first, with the share of the floor: logits and targets read once and the gradient
written once, at the speed of a copy of the logits. All variants are compiled beforehand in parallel processes.
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
from typing import NamedTuple

import torch

from encouraging import curves

if find_spec("triton"):  # --help does without
    from triton.testing import do_bench

    from encouraging.ops.triton import Tiling, use_tiling
    from encouraging.ops.triton.curves import LIKE_CROSS_ENTROPY, constants
    from encouraging.ops.triton.soft_launch import SoftProblem, soft_loss_sum
    from encouraging.ops.triton.tiling import soft_tiling_for

CURVES = {"CE": curves.cross_entropy(), "EL": curves.conservative(0.75)}


class Case(NamedTuple):
    rows: int
    classes: int
    dtype: torch.dtype
    curve: str


CASES = [Case(rows, classes, dtype, curve) for rows, classes, dtype in (
    (8192, 8142, torch.float32), (8192, 8142, torch.bfloat16), (6700, 10007, torch.float32),
    (1048576, 10, torch.float32)) for curve in CURVES]


def candidates(classes: int) -> list[Tiling]:
    if classes <= 16:
        return [Tiling(rows, 16, warps, registers=registers) for rows, warps in ((32, 1), (64, 2), (128, 4))
                for registers in (0, 64, 80)]
    block = 1 << (classes - 1).bit_length()
    whole = [Tiling(1, block, warps * block // 8192, registers=registers)
             for warps, registers in ((8, 0), (8, 128), (16, 64), (16, 0)) if warps * block // 8192 <= 32]
    return [*whole, Tiling(1, 2048, 4, streamed=True, per_processor=8), Tiling(1, 4096, 8, streamed=True,
                                                                              per_processor=4)]


def problem(case: Case) -> SoftProblem:
    logits = torch.randn(case.rows, case.classes, dtype=case.dtype, device="cuda").mul_(3)
    target = torch.rand(case.rows, case.classes, device="cuda")
    target = (target / target.sum(1, keepdim=True)).to(case.dtype)
    return SoftProblem(logits, target, None, constants(CURVES[case.curve]), 0.0)


def compile_one(case: Case, tiling: Tiling) -> str:
    try:
        work = problem(case)
        with use_tiling(tiling):
            soft_loss_sum(work, 0.1, grad=torch.empty_like(work.logits))
        torch.cuda.synchronize()
    except Exception as error:  # a tiling that does not fit the chip is a result too
        return f"{type(error).__name__}: {error}"[:90]
    return ""


def sweep(case: Case, failed: dict[tuple[Case, Tiling], str]) -> list[dict[str, object]]:
    work = problem(case)
    grad = torch.empty_like(work.logits)
    floor = 1.5 * milliseconds(lambda: grad.copy_(work.logits))
    chosen = soft_tiling_for(case.classes, constants(CURVES[case.curve]).tail == LIKE_CROSS_ENTROPY.value, lean=True)
    print(f"\n{case.rows} x {case.classes} {case.dtype} {case.curve}: floor {floor:.4f} ms")
    found = []
    for tiling in dict.fromkeys([chosen, *candidates(case.classes)]):
        if (case, tiling) in failed:
            print(f"   failed  {failed[case, tiling]}  {tiling}")
            continue
        with use_tiling(tiling):
            grad.fill_(float("nan"))
            soft_loss_sum(work, 0.1, grad=grad)
            if grad.isnan().any():
                print(f"   WRONG   {tiling}")
                continue
            found.append((milliseconds(lambda: soft_loss_sum(work, 0.1, grad=grad)), tiling))
    for taken, tiling in sorted(found, key=lambda pair: pair[0]):
        print(f"{taken:9.4f} ms {floor / taken:6.1%}  {tiling}{'  <- in use' if tiling == chosen else ''}", flush=True)
    return [{"milliseconds": taken, "share": floor / taken, **asdict(tiling)} for taken, tiling in found]


def milliseconds(run: object) -> float:
    return float(do_bench(run, warmup=10, rep=40, quantiles=[0.5]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=12, help="processes that compile beforehand (default: %(default)s)")
    parser.add_argument("--compile", action="store_true", help="compile only")
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    asked = parser.parse_args()
    if not torch.cuda.is_available() or not find_spec("triton"):
        parser.exit(1, "needs a CUDA device and Triton\n")
    start = time.perf_counter()
    jobs = [(case, tiling) for case in CASES for tiling in candidates(case.classes)]
    with ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn")) as pool:
        words = list(pool.map(compile_one, *zip(*jobs, strict=True)))
    failed = {job: error for job, error in zip(jobs, words, strict=True) if error}
    print(f"{len(jobs)} variants compiled in {time.perf_counter() - start:.0f} s", flush=True)
    if asked.compile:
        return
    record: dict[str, object] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    record |= {f"{case.rows} x {case.classes} {case.dtype} {case.curve}": sweep(case, failed) for case in CASES}
    if asked.out:
        asked.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
