"""Every kind of call on a CPU beside the same formula in torch: eager beside eager, compiled beside compiled.

    python benchmarks/matrix_cpu.py --out results/bench/cpu-matrix.json
    python benchmarks/matrix_cpu.py --shape 256x10 --curve focal:2.0 --call soft --call smoothed

The calls are those of ``encouraging bench --matrix``, forward and backward, with one thread. A figure is the
processor's time of a step, the shortest tenth of many, so that other work on the machine counts for little. The
compiler takes some seconds per call.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from encouraging.commands.bench_cases import CALLS, Case, Loss, inputs, losses

SHAPES = ["4096x1000", "256x10"]
CURVES = ["conservative:0.75", "focal:2.0"]


def shortest(run: Callable[[], None], seconds: float) -> float:
    """Microseconds of a step: a tenth of all take less."""
    for _ in range(3):
        run()
    taken, start = [], time.thread_time()
    while (time.thread_time() - start < seconds and len(taken) < 3000) or len(taken) < 5:
        before = time.thread_time_ns()
        run()
        taken.append((time.thread_time_ns() - before) / 1e3)
    return sorted(taken)[len(taken) // 10]


def step(loss: Loss, logits: Tensor, target: Tensor) -> None:
    logits.grad = None
    loss(logits, target).sum().backward()  # type: ignore[no-untyped-call]


def compiled(loss: Any) -> Loss:
    """A graph of its own: the compiler finds what it has compiled by the code of a function."""
    torch._dynamo.reset()
    function, arguments = loss.func, loss.keywords
    return torch.compile(lambda logits, target: function(logits, target, **arguments), dynamic=False)


def measure(case: Case, seconds: float) -> dict[str, Any]:
    logits, target = inputs(case, "cpu")
    ours, formula = losses(case, "cpu")
    result: dict[str, Any] = {**case._asdict(), "case": str(case)}
    for how, form in (("eager", lambda loss: loss), ("compiled", compiled)):
        mine, theirs = (shortest(partial(step, form(loss), logits, target), seconds) for loss in (ours, formula))
        result[how] = {"ours_us": mine, "torch_us": theirs, "ratio": mine / theirs}
    return result


def case_of(call: str, shape: str, curve: str) -> Case:
    name, _, numbers = curve.partition(":")
    rows, classes = map(int, shape.split("x"))
    if CALLS[call].link == "mse":
        return Case(call, rows, classes, "float32", "square", (1.0,))
    if call == "match_norm":
        return Case(call, rows, classes, "float32", "normal", (0.0,))
    return Case(call, rows, classes, "float32", name, tuple(map(float, numbers.split(","))) if numbers else ())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", metavar="ROWSxCLASSES", help=f"default: {' and '.join(SHAPES)}")
    parser.add_argument("--curve", action="append", metavar="NAME[:NUMBERS]", help=f"default: {' and '.join(CURVES)}")
    parser.add_argument("--call", action="append", choices=list(CALLS), help="default: all")
    parser.add_argument("--seconds", type=float, default=0.4, help="per contender (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    cases = dict.fromkeys(case_of(call, shape, curve) for shape in args.shape or SHAPES
                          for curve in args.curve or CURVES for call in args.call or CALLS)
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(), "torch": torch.__version__, "machine": platform.machine(),
        "python": platform.python_version(), "threads": 1, "capability": torch.backends.cpu.get_cpu_capability(),
        "cases": []}
    for case in cases:
        result = measure(case, args.seconds)
        record["cases"].append(result)
        print(f"{result['case']:60}" + "   ".join(
            f"{how} {result[how]['ratio']:5.2f} ({result[how]['ours_us']:.0f} beside {result[how]['torch_us']:.0f} us)"
            for how in ("eager", "compiled")), flush=True)
        if args.out:
            args.out.write_text(json.dumps(record, indent=1) + "\n")
    for how in ("eager", "compiled"):
        ratios = sorted(result[how]["ratio"] for result in record["cases"])
        print(f"{how}: {len(ratios)} calls, median {statistics.median(ratios):.2f}, slowest {ratios[-1]:.2f}, "
              f"{sum(ratio > 1.03 for ratio in ratios)} above 1.03")


if __name__ == "__main__":
    main()
