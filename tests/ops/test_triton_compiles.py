"""Triton's compiler takes the kernels in: the interpreter, which runs all other tests, allows more of Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
# What is launched is translated for compute capability 9.0, and the compiler's later stages, which take seconds per
# kernel, are left out.
TRANSLATE = '''
from unittest import mock

import torch
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from host_time import no_launches
from registers import NoDriver

from encouraging import curve_loss, curves
from encouraging.ops.triton import Tiling, mse_loss, use_tiling


class Translated(Exception):
    pass


def stop(*_):
    raise Translated


driver.set_active(NoDriver(90))
CUDABackend.make_ttir = staticmethod(stop)
translate, translated = JITFunction.run, set()


def translate_and_pretend(kernel, *arguments, grid, warmup, **options):
    try:
        translate(kernel, *arguments, grid=grid, warmup=True, **options)
    except Translated:
        translated.add(kernel.__name__)
    return pretend(kernel, *arguments, grid=grid, warmup=warmup, **options)


with no_launches():
    pretend = JITFunction.run
    for tiling in (Tiling(1, 256, 4, streamed=True), Tiling(1, 256, 4, streamed=True, segments=2)):
        with use_tiling(tiling), mock.patch.object(JITFunction, "run", translate_and_pretend):
            # An odd class count has ends; float16 keeps the states of the rows.
            for classes, dtype in ((600, torch.float32), (601, torch.float16)):
                logits = torch.zeros(2, classes, dtype=dtype).requires_grad_()
                for target in (torch.zeros(2, classes, dtype=dtype), torch.zeros(2, dtype=torch.int64)):
                    for reduction in ("mean", "none"):
                        losses = [mse_loss(logits, target, bonus=False, reduction=reduction)]
                        for smoothing in (0.0, 0.1):
                            losses.append(curve_loss(logits, target, curves.poly(1.0), label_smoothing=smoothing,
                                                     reduction=reduction, impl="triton"))
                        for loss in losses:
                            loss.backward(torch.rand(loss.shape).to(loss.dtype))
print(*sorted(translated))
'''


# Only the last stage is left out, that which turns PTX into machine code. Prints the kernels, and how many bits their
# loads and stores have.
TO_PTX = """
import re
from unittest import mock

import torch
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from host_time import no_launches
from registers import NoDriver

from encouraging import curves
from encouraging.ops.triton import sigmoid_loss


class Compiled(Exception):
    pass


def stop(self, ptx, *_):
    raise Compiled(ptx)


driver.set_active(NoDriver(90))
CUDABackend.make_cubin = stop
compile = JITFunction.run


def compile_and_pretend(kernel, *arguments, grid, warmup, **options):
    try:
        compile(kernel, *arguments, grid=grid, warmup=True, **options)
    except Compiled as made:
        moves = re.findall(r"(?:ld|st)\\.global(?:\\.v(\\d))?\\.b(\\d+)", str(made))
        print(kernel.__name__, *sorted({int(count or 1) * int(bits) for count, bits in moves}))
    return pretend(kernel, *arguments, grid=grid, warmup=warmup, **options)


with no_launches():
    pretend = JITFunction.run
    with mock.patch.object(JITFunction, "run", compile_and_pretend):
        logits = torch.zeros(1002, 1002).requires_grad_()
        loss = sigmoid_loss(logits, torch.zeros_like(logits), curves.cross_entropy())
        loss.backward(torch.tensor(2.0))
"""


def _output(program: str, cache: Path) -> list[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.splitlines()


def test_elements_are_read_in_vectors_also_where_their_number_is_no_multiple_of_16(tmp_path: Path) -> None:
    """1002 x 1002 is one of 4. What is left are the shares of the sum and, for the second, the upstream gradient."""
    assert _output(TO_PTX, tmp_path) == ["sigmoid_kernel 32 128", "scale_kernel 32 128"]


def test_kernels_of_long_rows(tmp_path: Path) -> None:
    """An argument that is not given is None, which no function of a kernel may return."""
    found, = _output(TRANSLATE, tmp_path)
    assert found.split() == [
        "later_kernel", "mse_later_kernel", "mse_split_end_kernel", "mse_split_kernel", "mse_split_sums_kernel",
        "mse_streamed_kernel", "scale_kernel", "soft_later_kernel", "soft_split_end_kernel", "soft_split_kernel",
        "soft_split_sums_kernel", "soft_streamed_kernel", "split_end_kernel", "split_kernel", "split_sums_kernel",
        "streamed_kernel", "streamed_smooth_kernel"]
