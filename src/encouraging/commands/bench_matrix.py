"""``encouraging bench --matrix`` and ``--random``: is any call slower than the same formula in torch?

Every case is one call of a loss, forward and backward, beside the same formula in plain torch and in ``torch.compile``.
Its *ratio* is our time over the better of the two: device time from 1 MiB of logits on, wall time below. The report has
one line per case, the worst ratio first.
"""

from __future__ import annotations

import datetime
import importlib
import json
import math
import re
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import __version__
from ..errors import ArgumentError
from .bench_cases import Case, Loss, check, inputs, losses, matrix, random_cases
from .bench_timing import copy_time_per_byte, medians

SMALL_BYTES = 1 << 20  # below, the host decides, and wall time is what a user has
ALLOWED = 1.03


def measure(case: Case, seconds: float) -> dict[str, Any]:
    """Times of our loss, torch's and the compiled one, forward and backward, and the ratio."""
    logits, target = inputs(case, "cuda")
    ours, formula = losses(case, "cuda")
    compiled = torch.compile(formula, dynamic=False)
    contenders: dict[str, Loss] = {"ours": ours, "torch": formula, "torch.compile": compiled}
    steps = {name: partial(_step, loss, logits, target) for name, loss in contenders.items()}
    failed = {}
    for name in list(steps):
        try:
            steps[name]()
        except Exception as error:  # a contender that cannot run here is a result
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            del steps[name]
    small = logits.nbytes < SMALL_BYTES
    times = {name: taken[0] for name, taken in medians(steps, "cuda", seconds).items()} if not small else (
        {name: _wall(step, seconds) for name, step in steps.items()})
    rivals = [taken for name, taken in times.items() if name != "ours"]
    floor = (2 * logits.nbytes + target.nbytes) * copy_time_per_byte("cuda")
    torch._dynamo.reset()
    return {**case._asdict(), "case": str(case), "measured": "wall" if small else "device", "milliseconds": times,
            "failed": failed, "floor_milliseconds": floor,
            "ratio": times["ours"] / min(rivals) if rivals and "ours" in times else math.inf}


def _step(loss: Loss, logits: Tensor, target: Tensor) -> None:
    logits.grad = None
    loss(logits, target).sum().backward()  # type: ignore[no-untyped-call]


def _wall(step: Callable[[], None], seconds: float) -> float:
    """Median milliseconds until a step is done, by the clock."""
    taken: list[float] = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(taken) < 5:
        torch.cuda.synchronize()
        before = time.perf_counter()
        step()
        torch.cuda.synchronize()
        taken.append(1e3 * (time.perf_counter() - before))
    return statistics.median(taken)


def run_matrix(*, count: int | None = None, seed: int = 0, part: str = "1/1", out: Path | None = None,
               seconds: float = 0.2, checks: bool = False, merge: Sequence[Path] = ()) -> dict[str, Any]:
    """Measure (or with ``checks`` only check, also in Triton's interpreter, at small sizes) the matrix or ``count``
    random cases, or ``merge`` records of parts; print one line per case, the worst ratio first; write and return the
    record."""
    if merge:
        return _finish(merged(json.loads(path.read_text()) for path in merge), out)
    cases = part_of(matrix() if count is None else random_cases(count, seed), part)
    if checks:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        errors = {str(case.small()): check(case.small(), device) for case in cases}
        return _finish({"checks": errors}, out)
    if not torch.cuda.is_available():
        raise ArgumentError("--matrix and --random compare kernels on a CUDA device, and there is none. With "
                            "TRITON_INTERPRET=1 their correctness can be checked on a CPU: --check.")
    record: dict[str, Any] = {
        "encouraging": __version__, "torch": torch.__version__, "device": torch.cuda.get_device_name(),
        "triton": importlib.import_module("triton").__version__, "date": datetime.date.today().isoformat(),
        "drawn": None if count is None else {"count": count, "seed": seed}, "cases": []}
    for i, case in enumerate(cases):
        try:
            record["cases"].append(measure(case, seconds))
        except torch.cuda.OutOfMemoryError:
            record["cases"].append({**case._asdict(), "case": str(case), "skipped": "out of memory"})
        torch.cuda.empty_cache()
        print(f"{i + 1} of {len(cases)}: {line(record['cases'][-1])}", flush=True)
        _write(record, out)
    return _finish(record, out)


def part_of(cases: Sequence[Case], part: str) -> list[Case]:
    """Every n-th case, from the i-th on, for a part ``i/n``.

    >>> [case.classes for case in part_of([Case("plain", 1, n, "float32") for n in range(5)], "2/3")]
    [1, 4]
    """
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", part)
    if not match or int(match[1]) > int(match[2]):
        raise ArgumentError(f"--part {part}: expected I/N such as 2/5, the second of five parts.")
    return list(cases)[int(match[1]) - 1::int(match[2])]


def merged(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """One record of several parts, which must come from the same device and versions."""
    parts = list(records)
    whole = {**parts[0], "cases": [case for record in parts for case in record["cases"]]}
    for record in parts[1:]:
        for name in ("device", "torch", "triton", "encouraging"):
            if record[name] != whole[name]:
                raise ArgumentError(f"--merge: parts of {name} {whole[name]} and {record[name]}: expected parts from "
                                    "one machine with one set of versions.")
    return whole


def line(case: dict[str, Any]) -> str:
    """What a case shows."""
    if "ratio" not in case:
        return f"      {case['case']}: {case['skipped']}"
    times = ", ".join(f"{name} {taken:.3f}" for name, taken in case["milliseconds"].items())
    return f"{case['ratio']:5.2f} {case['case']}: {times} ms ({case['measured']})"


def _finish(record: dict[str, Any], out: Path | None) -> dict[str, Any]:
    """Sort, print and write."""
    if "checks" in record:
        for name, error in sorted(record["checks"].items(), key=lambda item: -item[1]):
            print(f"{error:.1e} {name}")
    else:
        record["cases"].sort(key=lambda case: -case.get("ratio", 0.0))
        ratios = [case["ratio"] for case in record["cases"] if "ratio" in case]
        print("\n".join(line(case) for case in record["cases"]))
        if ratios:
            above = sum(ratio > ALLOWED for ratio in ratios)
            record |= {"worst_ratio": max(ratios), "median_ratio": statistics.median(ratios)}
            print(f"{len(ratios)} cases: the worst {max(ratios):.2f}, the median {statistics.median(ratios):.2f}, "
                  f"{above} above {ALLOWED}")
    _write(record, out)
    return record


def _write(record: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n")
