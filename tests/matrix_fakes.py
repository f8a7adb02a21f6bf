"""Stands for a GPU in the tests of ``benchmarks/matrix_gpu.py``: every worker process imports this file anew.

As a program it is matrix_gpu.py with these in place of the real preparation and measurement.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch

from encouraging.commands import bench_matrix
from encouraging.commands.bench_cases import Case

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "matrix_gpu.py"
_prepared: set[Case] = set()


def prepare(case: Case) -> None:
    if case.call == "sum":
        os._exit(1)
    if case.call == "none":
        raise torch.cuda.OutOfMemoryError("no memory is left")
    _prepared.add(case)


def measure(case: Case, seconds: float, longer_above: float) -> dict[str, Any]:
    assert case in _prepared, "measured by a process that has not prepared it"
    _prepared.remove(case)  # so that nothing is measured twice
    assert (seconds, longer_above) == (0.04, 0.9)
    ratio = case.classes % 100 / 90
    return {**case._asdict(), "case": str(case), "measured": "device", "milliseconds": {"ours": ratio, "torch": 1.0},
            "host_milliseconds": {}, "failed": {}, "floor_milliseconds": 0.1, "ratio": ratio}


def patch(patched: Any = setattr) -> None:
    patched(torch.cuda, "is_available", lambda: True)
    patched(torch.cuda, "get_device_name", lambda: "a GPU")
    patched(bench_matrix, "prepare", prepare)
    patched(bench_matrix, "measure", measure)
    patched(bench_matrix, "SETTLE", 0.0)


if __name__ == "__main__":
    import matrix_fakes  # by its name, which workers can import

    matrix_fakes.patch()
    sys.argv = [str(SCRIPT), *sys.argv[1:]]
    runpy.run_path(str(SCRIPT), run_name="__main__")
