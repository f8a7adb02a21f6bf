"""``encouraging bench --matrix`` and ``--random``: is any call slower than the same formula in torch?

Every case is one call of a loss, forward and backward, beside the same formula in plain torch and in ``torch.compile``.
Its *ratio* is our time over the better of the two: device time from 1 MiB of logits on, wall time below. The report has
one line per case, the worst ratio first.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import __version__
from ..errors import ArgumentError
from .bench_cases import TOLERANCE, Case, Loss, check, inputs, losses, matrix, random_cases
from .bench_records import finish, line, now, write
from .bench_timing import copy_time_per_byte, medians, walls
from .bench_workers import Workers

SMALL_BYTES = 1 << 20  # below it the host is the limit, and wall time is what a user sees
LONGER = 4  # times as long is a case measured whose ratio is near the limit
SETTLE = 2.0  # seconds until a GPU whose other work was suspended has done what was queued

_prepared: dict[Case, tuple[dict[str, Loss], dict[str, str]]] = {}


def prepare(case: Case) -> None:
    """Compile everything that a case needs, for :func:`measure` in the same process. No GPU memory stays in use."""
    if case in _prepared:
        return
    no_memory = ""
    try:
        _prepared[case] = _first_calls(case)
    except torch.cuda.OutOfMemoryError as error:
        no_memory = str(error)  # raised below, without the frames that hold tensors
    gc.collect()  # cycles that a compilation leaves may hold its inputs
    torch.cuda.empty_cache()
    if no_memory:
        raise torch.cuda.OutOfMemoryError(no_memory)


def _first_calls(case: Case) -> tuple[dict[str, Loss], dict[str, str]]:
    """The contenders that can run, each called once, and the words of those that cannot."""
    logits, target = inputs(case, "cuda")
    ours, formula = losses(case, "cuda")
    contenders: dict[str, Loss] = {"ours": ours, "torch": formula, "torch.compile": _compiled(formula)}
    failed = {}
    for name, loss in list(contenders.items()):
        try:
            _step(loss, logits, target)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # a contender that cannot run here is a result
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            del contenders[name]
    return contenders, failed


def _compiled(formula: Any) -> Loss:
    """The formula compiled. Every case gets a code object of its own, because the compiler caches by code object: with
    a common one it would search all cases in every call, and give up after eight."""
    function, arguments = formula.func, formula.keywords

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        return function(logits, target, **arguments)  # type: ignore[no-any-return]

    own_function = FunctionType(loss.__code__.replace(), loss.__globals__, loss.__name__, None, loss.__closure__)
    return torch.compile(own_function, dynamic=False)


def measure(case: Case, seconds: float, longer_above: float = math.inf) -> dict[str, Any]:
    """Times of our loss, torch's and the compiled one, forward and backward, and the ratio.

    Where the ratio is above ``longer_above`` the case is measured again at once, :data:`LONGER` times as long, and the
    second measurement is the result.
    """
    prepare(case)
    contenders, failed = _prepared.pop(case)
    logits, target = inputs(case, "cuda")
    steps = {name: partial(_step, loss, logits, target) for name, loss in contenders.items()}
    small = logits.nbytes < SMALL_BYTES
    times, host_times = _times(steps, small, seconds)
    if longer_above < _ratio(times) < math.inf:
        times, host_times = _times(steps, small, LONGER * seconds)
    floor = (2 * logits.nbytes + target.nbytes) * copy_time_per_byte("cuda")
    del logits, target, steps
    torch.cuda.empty_cache()
    return {**case._asdict(), "case": str(case), "measured": "wall" if small else "device", "milliseconds": times,
            "host_milliseconds": host_times, "failed": failed, "floor_milliseconds": floor, "ratio": _ratio(times)}


def _times(steps: dict[str, Any], small: bool, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds by contender, and those of the host where they were measured too."""
    if small:
        return walls(steps, seconds), {}
    both = medians(steps, "cuda", seconds)
    return {name: device for name, (device, _) in both.items()}, {name: host for name, (_, host) in both.items()}


def _ratio(times: dict[str, float]) -> float:
    rivals = [milliseconds for name, milliseconds in times.items() if name != "ours"]
    return times["ours"] / min(rivals) if rivals and "ours" in times else math.inf


def _step(loss: Loss, logits: Tensor, target: Tensor) -> None:
    logits.grad = None
    loss(logits, target).sum().backward()  # type: ignore[no-untyped-call]


def run_matrix(*, count: int | None = None, seed: int = 0, part: str | None = None, out: Path | None = None,
               seconds: float = 0.2, jobs: int = 1) -> dict[str, Any]:
    """Measure the matrix or ``count`` random cases; print one line per case, the worst ratio first.

    Args:
        count, seed: so many random cases instead of the matrix.
        part: ``I/N`` for the I-th of N parts.
        out: where to write the record, after every case.
        seconds: how long each contender of a case is measured.
        jobs: processes that compile beside each other. They then measure one after the other, alone on the GPU.
    """
    cases = _cases(count, seed, part)
    record = new_record([] if count is None else [{"count": count, "seed": seed}])
    run_plans([Plan(cases, record, out)], seconds, jobs, lambda plan: finish(plan.record, plan.out))
    return record


def new_record(drawn: list[dict[str, int]]) -> dict[str, Any]:
    """A record without cases, of this machine and today."""
    if not torch.cuda.is_available():
        raise ArgumentError("--matrix and --random compare kernels on a CUDA device, and there is none. With "
                            "TRITON_INTERPRET=1 their correctness can be checked on a CPU: --check.")
    return {"encouraging": __version__, "torch": torch.__version__, "device": torch.cuda.get_device_name(),
            "triton": importlib.import_module("triton").__version__, "date": now(), "drawn": drawn, "cases": []}


class Plan(NamedTuple):
    """Cases to measure, and the record and the file that get the results."""

    cases: list[Case]
    record: dict[str, Any]
    out: Path | None


def run_plans(plans: Sequence[Plan], seconds: float, jobs: int, finished: Callable[[Plan], object], *,
              ahead: bool = False, longer_above: float = math.inf) -> None:
    """Measure the cases of all plans, a case that several of them have once. Each record is written after every case.

    Args:
        plans: what to measure, in this order.
        seconds: how long each contender of a case is measured.
        jobs: processes that compile beside each other. They then measure one after the other, alone on the GPU.
        finished: called with each plan when its last case was measured.
        ahead: compile in other processes before anything is measured, also with one job, and print a line that begins
            with "measuring" before the first case and "measured" after the last.
        longer_above: see :func:`measure`.
    """
    cases = list(dict.fromkeys(case for plan in plans for case in plan.cases))
    results: dict[Case, dict[str, Any]] = {}
    with Workers(min(jobs, len(cases)), apart=ahead) as workers:
        workers.prepare(prepare, cases, again_after=(torch.cuda.OutOfMemoryError,), report_every=20 if ahead else 0)
        if ahead:
            print(f"measuring {len(cases)} cases", flush=True)
            time.sleep(SETTLE)
        for plan in plans:
            for case in plan.cases:
                if case not in results:
                    results[case] = _result(workers, case, seconds, longer_above)
                    print(f"{len(results)} of {len(cases)}: {line(results[case])}", flush=True)
                plan.record["cases"].append(results[case])
                write(plan.record, plan.out)
            finished(plan)
        if ahead:
            print("measured", flush=True)


def _result(workers: Workers, case: Case, seconds: float, longer_above: float) -> dict[str, Any]:
    try:
        return workers.result(measure, case, seconds, longer_above)
    except Exception as error:  # out of memory, or a process that ended: the other cases are still measured
        words = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return {**case._asdict(), "case": str(case), "skipped": words}


def run_checks(*, count: int | None = None, seed: int = 0, part: str | None = None, out: Path | None = None) -> int:
    """Check the gradients of all cases at small sizes against the formula in float64, on a GPU or in Triton's
    interpreter; print one line per case, the largest error first. Returns the exit status: 1 where one is too large."""
    cases = sorted({case.small() for case in _cases(count, seed, part)})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ArgumentError("--check runs the kernels, and there is no CUDA device. Set TRITON_INTERPRET=1 in the "
                            "environment to run them in Triton's interpreter.")
    errors = {case: check(case, device) / TOLERANCE[case.dtype] for case in cases}
    for case, error in sorted(errors.items(), key=lambda item: -item[1]):
        print(f"{error:5.2f} of what is allowed: {case}")
    wrong = sum(not error <= 1 for error in errors.values())
    print(f"{len(cases)} cases, {wrong} of them wrong")
    write({"encouraging": __version__, "torch": torch.__version__, "device": device, "date": now(),
           "share_of_allowed_error": {str(case): error for case, error in errors.items()}}, out)
    return 1 if wrong else 0


def _cases(count: int | None, seed: int, part: str | None) -> list[Case]:
    cases = matrix() if count is None else random_cases(count, seed)
    return part_of(cases, part or "1/1")


def part_of(cases: Sequence[Case], part: str) -> list[Case]:
    """Every n-th case, from the i-th on, for a part ``i/n``.

    >>> [case.classes for case in part_of([Case("plain", 1, n, "float32") for n in range(5)], "2/3")]
    [1, 4]
    """
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", part)
    if not match or int(match[1]) > int(match[2]):
        raise ArgumentError(f"--part {part}: expected I/N such as 2/5, the second of five parts.")
    chosen = list(cases)[int(match[1]) - 1::int(match[2])]
    if not chosen:
        raise ArgumentError(f"--part {part}: there are {len(cases)} cases, and this part has none of them. Ask for "
                            f"at most {len(cases)} parts.")
    return chosen
