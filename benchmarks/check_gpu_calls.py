"""How the kernels are called on a GPU, against float64: layouts, edges, graphs and compilation. One line per check.

    python benchmarks/check_gpu_calls.py [--list] [--part I/N] [NAME ...]

Exits with status 1 when a check fails.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from check_gpu import ours, truth
from gpu_checks import EL, Checks, draw, expect, mine, row_error, run

from encouraging import curve_loss, curves
from encouraging.ops import dispatch, reference

if find_spec("triton"):  # --help and --list do without
    from encouraging.ops.triton import Tiling, autograd, hard_loss, loss_and_gradient_, operators, sums, use_tiling

check = Checks()


def as_rows(classes: int, kind: str) -> None:
    """Logits (N, C) that do not lie row by row."""
    z, y = draw(48, classes)
    logits = {"transposed": lambda: z.t().contiguous().t(),
              "strided": lambda: torch.stack([z, z], -1).flatten(1)[:, ::2],
              "sliced": lambda: torch.cat([z, z], 1)[:, 1:][:, :classes - 1]}[kind]()
    y = y.clamp(max=logits.shape[1] - 1)
    expected, slope = truth(logits, y, EL)
    loss, gradient = ours(logits, y, EL)
    expect((loss - expected).abs() <= 1e-5, f"loss of strides {logits.stride()}")
    expect(row_error(gradient, slope).max() <= 1e-5, f"gradient of strides {logits.stride()}")


def as_planes(classes: int, width: int, smoothing: float) -> None:
    """Logits (N, C, d)."""
    z, y = draw(4 * width, classes)
    image = z.reshape(4, width, classes).transpose(1, 2).contiguous().requires_grad_()
    curve_loss(image, y.reshape(4, width), EL, label_smoothing=smoothing).backward()
    _, slope = truth(z, y, EL, label_smoothing=smoothing)
    error = row_error(image.grad.transpose(1, 2).flatten(0, 1), slope).max()
    expect(error <= 1e-5, f"(N, C, d) with {classes} classes: {error:.1e}")


@check(in_parts=True)
def layouts() -> str:
    cases = [partial(as_rows, classes, kind) for classes in (19, 1000, 40000)
             for kind in ("transposed", "strided", "sliced")]
    cases += [partial(as_planes, classes, width, smoothing) for smoothing in (0.0, 0.1)
              for classes, width in ((3, 33), (21, 300), (150, 64), (900, 77), (3000, 64))]
    tried = mine(cases)
    for case in tried:
        case()
    return f"{len(tried)} of {len(cases)}: transposed, strided, sliced, (N, C, d)"


@check(seconds=12)
def edges() -> str:
    for classes in (7, 1000, 40000):
        z, _ = draw(8, classes)
        ignored = torch.full((8,), -100, device="cuda")
        for smoothing in (0.0, 0.1):
            loss, gradient = ours(z, ignored, EL, label_smoothing=smoothing)
            expect(loss.isnan() and (gradient == 0).all(), f"all ignored, {classes} classes")
            labels = torch.randint(classes, (8,), device="cuda")
            labels[3], labels[4] = classes, -100
            z[4] = math.nan
            loss, gradient = ours(z, labels, EL, torch.ones(8, device="cuda"), reduction="none",
                                  label_smoothing=smoothing)
            expect(loss.isnan().nonzero().flatten().tolist() == [3], f"label out of range, {classes} classes")
            expect(gradient.isnan().any(1).nonzero().flatten().tolist() == [3], "its gradient")
            expect((gradient[4] == 0).all(), "ignored row with NaN logits")
            _, gradient = ours(z, labels, EL, label_smoothing=smoothing)
            expect(gradient.isnan().any(1).nonzero().flatten().tolist() == [3], "its gradient, ahead")
        z[4] = 0
    empty = torch.zeros(0, 5, device="cuda")
    expect(ours(empty, torch.zeros(0, dtype=torch.int64, device="cuda"), EL)[0].isnan(), "empty batch")
    one = torch.randn(4, 1, device="cuda")
    loss, gradient = ours(one, torch.zeros(4, dtype=torch.int64, device="cuda"), curves.cross_entropy())
    expect(loss == 0 and (gradient == 0).all(), "one class")
    return "all ignored, empty, out of range, one class"


@check
def upstream_gradients() -> str:
    z, y = draw(128, 1000)
    _, slope = truth(z, y, EL)
    leaf = z.clone().requires_grad_()
    loss = hard_loss(leaf, y, EL)
    kept = [(u, torch.autograd.grad(loss, leaf, torch.tensor(u, device="cuda"), retain_graph=True)[0])
            for u in (1.0, 3.0, 0.0, -0.5, 1.0)]
    kept.append((65536.0, torch.autograd.grad(loss, leaf, torch.tensor(65536.0, device="cuda"))[0]))
    for upstream, gradient in kept:
        expect(row_error(gradient, upstream * slope).max() <= 1e-5, f"upstream {upstream}")
    for _ in range(2):  # the buffer is handed over, not copied
        leaf = z.clone().requires_grad_()
        with mock.patch.object(autograd, "few_bytes", 0):
            loss = hard_loss(leaf, y, EL)
        address = loss.grad_fn.saved_tensors[3].data_ptr()
        loss.backward()
        expect(leaf.grad.data_ptr() == address, "the gradient was copied")
    leaf = z.clone().requires_grad_()
    gradient, = torch.autograd.grad(hard_loss(leaf, y, EL), leaf, create_graph=True)
    gradient.square().sum().backward()
    exact = z.double().requires_grad_()
    gradient, = torch.autograd.grad(reference.hard_loss(exact, y, EL), exact, create_graph=True)
    gradient.square().sum().backward()
    expect(row_error(leaf.grad, exact.grad).max() <= 1e-4, "second derivatives")
    return "1, 3, 0, -0.5, 65536, twice; second derivatives"


@check(seconds=7)
def sums_by_the_last_program() -> str:
    """Always the same number, whoever arrives last; the counter is 0 again; streams have counters of their own."""
    tried = 0
    for rows, classes, dtype in ((1, 10, torch.float32), (2048, 1000, torch.float32), (2100, 1000, torch.float32),
                                 (300, 50257, torch.bfloat16), (70000, 10, torch.float32), (9000, 33, torch.bfloat16)):
        z, y = draw(rows, classes, dtype)
        y[::7] = -100 if rows > 1 else y[::7]
        expected, slope = truth(z, y, EL)
        for few_bytes in (0, autograd.few_bytes):
            with mock.patch.object(autograd, "few_bytes", few_bytes):
                first = ours(z, y, EL)
                error = (first[0] - expected).abs() / expected.abs().clamp(min=1)
                expect(error <= 2e-6, f"{rows} x {classes}: {error:.1e}")
                for _ in range(30):
                    again = ours(z, y, EL)
                    expect(all(map(torch.equal, first, again)), f"{rows} x {classes} differs from itself")
                streams = [torch.cuda.Stream() for _ in range(4)]
                results = []
                torch.cuda.synchronize()
                for stream in streams * 8:
                    with torch.cuda.stream(stream):
                        results.append(ours(z, y, EL))
                torch.cuda.synchronize()
                expect(all(torch.equal(a, b) for found in results for a, b in zip(first, found, strict=True)),
                       f"{rows} x {classes} on several streams at once")
                tried += 1
        expect(row_error(first[1], slope).max() <= (1e-5 if dtype == torch.float32 else 2.0**-8 * 1.05), "gradient")
    torch.cuda.synchronize()
    expect(all(int(each.counter) == 0 for each in sums._workspaces.values()), "a counter is not 0")
    return f"{tried} cases, 62 times each"


@check(in_parts=True)
def every_tiling_gives_the_same() -> str:
    """Made ahead, and written over the logits, all within one rounding of the truth. Both are made by one kernel; the
    one that makes a gradient later, as for so few logits, rounds in another order and is no measure here."""
    z, y = draw(300, 3001, torch.bfloat16)
    tilings = [Tiling(1, 4096, 4), Tiling(1, 4096, 16, skip=False), Tiling(2, 4096, 8), Tiling(1, 4096, 8),
               Tiling(1, 1024, 4, streamed=True, per_processor=1), Tiling(1, 2048, 8, streamed=True, per_processor=1),
               Tiling(1, 8192, 8, streamed=True, per_processor=2)]
    cases = mine(product(tilings, (0.0, 0.1)))
    for tiling, smoothing in cases:
        expected, slope = truth(z, y, EL, label_smoothing=smoothing)
        buffer = z.clone()
        with use_tiling(tiling):
            loss_and_gradient_(buffer, y, EL, label_smoothing=smoothing,
                               denominator=torch.tensor(300.0, device="cuda"))
            with mock.patch.object(autograd, "few_bytes", 0):
                loss, gradient = ours(z, y, EL, label_smoothing=smoothing)
        expect((loss - expected).abs() <= 1e-4, f"loss of {tiling}, smoothing {smoothing}")
        expect(row_error(gradient, slope).max() <= 2.0**-8 * 1.05, f"gradient of {tiling}, smoothing {smoothing}")
        expect(row_error(buffer, slope).max() <= 2.0**-8 * 1.05, f"in place with {tiling}, smoothing {smoothing}")
        differ = (buffer.float() - gradient.float()).abs() > 2.0**-7 * gradient.float().abs()
        expect(not differ.any(), f"{int(differ.sum())} numbers in place are others with {tiling}, {smoothing}")
    return f"{len(cases)} tilings, also in place"


@check
def in_place() -> str:
    z, y = draw(256, 1000)
    layer = torch.eye(1000, device="cuda", requires_grad=True)
    logits = z @ layer
    address = logits.data_ptr()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss = hard_loss(logits, y, EL, inplace=True)
    expect(torch.cuda.max_memory_allocated() - before < z.nbytes // 4, "memory of the logits' size was taken")
    loss.backward()
    expect(logits.data_ptr() == address, "moved")
    logits = z @ layer
    loss = hard_loss(logits, y, EL, inplace=True)
    try:
        (loss + logits.sum()).backward()
    except ValueError:
        return "no extra memory; a later reader gets an error"
    raise AssertionError("a later reader got garbage")


@check(seconds=4)
def cuda_graph() -> str:
    for classes, dtype, smoothing in ((10, torch.float32, 0.0), (1000, torch.float32, 0.1),
                                      (40000, torch.bfloat16, 0.1)):
        z, y = draw(512, classes, dtype)
        leaf = z.clone().requires_grad_()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                leaf.grad = None
                curve_loss(leaf, y, EL, label_smoothing=smoothing).backward()
        torch.cuda.current_stream().wait_stream(stream)
        leaf.grad = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = curve_loss(leaf, y, EL, label_smoothing=smoothing)
            loss.backward()
        fresh, labels = draw(512, classes, dtype)
        with torch.no_grad():
            leaf.copy_(fresh)
        y.copy_(labels)
        leaf.grad.fill_(math.nan)
        graph.replay()
        expected, slope = truth(fresh, labels, EL, label_smoothing=smoothing)
        expect((loss.double() - expected).abs() <= 0.02, f"loss {loss} against {expected}")
        expect(row_error(leaf.grad, slope).max() <= (1e-5 if dtype == torch.float32 else 2.0**-8 * 1.05), "gradient")
    return "captured, replayed with fresh numbers"


@check(in_parts=True)
def compiled() -> str:
    cases = mine((("mean", 0.0, torch.float32), ("none", 0.1, torch.bfloat16), ("mean", 0.1, torch.bfloat16)))
    for reduction, smoothing, dtype in cases:
        z, y = draw(256, 1000, dtype)

        @torch.compile(fullgraph=True)
        def step(logits: Tensor, labels: Tensor, reduction: str = reduction, smoothing: float = smoothing) -> Tensor:
            loss = curve_loss(2 * logits, labels, EL, reduction=reduction, label_smoothing=smoothing, impl="triton")
            return loss.sum()

        leaf = z.clone().requires_grad_()
        step(leaf, y).backward()
        exact = z.double().requires_grad_()
        reference.hard_loss((2 * exact).to(dtype).double(), y, EL, reduction=reduction,
                            label_smoothing=smoothing).sum().backward()
        worst = row_error(leaf.grad, exact.grad).max().item()
        expect(worst <= (1e-5 if dtype == torch.float32 else 2.0**-7), f"{reduction} {dtype}: {worst:.1e}")
    return f"{len(cases)} cases: fullgraph with the default backend"


@check(seconds=6)
def the_operator_is_registered_well() -> str:
    z, y = draw(16, 33)
    torch.library.opcheck(operators.curve_rows, (z.requires_grad_(), y, None, "conservative", [0.75], -100, 0.1))
    return "opcheck"


@check(seconds=3)
def transforms_take_the_reference() -> str:
    z, y = draw(8, 11)
    slope = torch.func.grad(lambda logits: curve_loss(logits, y, EL))(z)
    expect(row_error(slope, truth(z, y, EL)[1]).max() <= 1e-5, "torch.func.grad")
    per_row = torch.func.vmap(torch.func.grad(lambda logits, label: curve_loss(logits[None], label[None], EL)))(z, y)
    expect(row_error(per_row / 8, truth(z, y, EL)[1]).max() <= 1e-5, "vmap of grad")
    expect(dispatch.choose("auto", z, y, EL) == "triton", "and plain calls the kernels")
    return "grad, vmap of grad"


if __name__ == "__main__":
    run(check, __doc__)
