"""Registers, spills and instructions of the kernels that a call launches, compiled for a GPU on a machine without one.

    python benchmarks/registers.py [--shape 8192x8142] [--dtype float32] [--capability 90] [--processors 132] [PATH ...]

The paths are those of ``host_time.py``. Every launch is compiled by Triton for the given compute capability instead of
being made, and the compiled code is read by the tools that come with Triton; *fit* is how many programs a
multiprocessor of an H100 or H200 holds at once. Two versions of a kernel compared so
show why one of them is slower before a GPU has seen them: registers decide how many programs fit on a multiprocessor.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from host_time import Paths, no_launches

_REGISTERS, _THREADS = 65536, 2048  # of a multiprocessor


class NoDriver:
    """What Triton asks a driver before it compiles."""

    def __init__(self, capability: int) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def usage(compiled: Any) -> str:
    """One line on a compiled kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        resources = _tool("cuobjdump", "-res-usage", file.name)
        code = _tool("nvdisasm", "-c", file.name)
    found = {name: int(number) for name, number in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", resources)}
    instructions = len(re.findall(r"^\s+/\*[0-9a-f]+\*/", code, re.MULTILINE))
    local = len(re.findall(r"\b(?:STL|LDL)\b", code))
    threads = compiled.metadata.num_warps * 32
    fit = min(_REGISTERS // (-(-found["REG"] // 8) * 8 * threads), _THREADS // threads)
    return (f"{found['REG']:4d} registers x {threads:4d} threads, {fit:2d} fit, {found['SHARED']:6d} bytes "
            f"shared, {found['STACK']:4d} bytes of stack, {local:3d} spills, {instructions:5d} instructions")


def _tool(name: str, *words: str) -> str:
    from triton.backends import nvidia

    tool = Path(nvidia.__file__).parent / "bin" / name
    return subprocess.run([tool, *words], check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these paths, such as plain or 'own curve'")
    parser.add_argument("--shape", default="8192x8142")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--capability", type=int, default=90)
    parser.add_argument("--processors", type=int, default=132, help="multiprocessors of the GPU, which decide how rows "
                        "are divided among programs (default: %(default)s, an H200's)")
    asked = parser.parse_args()
    import triton
    from triton.runtime import driver

    from encouraging.ops.triton import launch, mse_autograd, soft_launch, tiling

    rows, classes = map(int, asked.shape.split("x"))
    paths = Paths(rows, classes, getattr(torch, asked.dtype))
    driver.set_active(NoDriver(asked.capability))
    for module in (launch, mse_autograd, soft_launch, tiling):
        module.processors = lambda device: asked.processors
    run = triton.runtime.jit.JITFunction.run
    for path in asked.paths or ["plain"]:
        print(f"{path}, {asked.shape} {asked.dtype}")
        with no_launches():
            pretend = triton.runtime.jit.JITFunction.run

            def compile_and_pretend(kernel: Any, *args: Any, grid: Any, warmup: bool, _as: Any = pretend,
                                    **options: Any) -> Any:
                if "TOGETHER" in options:  # which depends on the tensors being on a GPU
                    options["TOGETHER"] = options["num_warps"] > 1
                if not warmup:  # a persistent kernel is compiled before it is launched
                    compiled = run(kernel, *args, grid=grid, warmup=True, **options)
                    print(f"  {kernel.__name__:28s}{usage(compiled)}", flush=True)
                return _as(kernel, *args, grid=grid, warmup=warmup, **options)

            with mock.patch.object(triton.runtime.jit.JITFunction, "run", compile_and_pretend):
                paths.step(path)()


if __name__ == "__main__":
    main()
