"""Sums in the order of the programs, and calls that are handed to torch, on a GPU. One line per check.

    python benchmarks/check_gpu_in_order.py [--list] [--part I/N] [NAME ...]

Programs wait for others here, which the interpreter, with one program at a time, cannot show: whatever goes wrong is
a number that differs, a word that is not empty afterwards, or a launch that never ends. Give it a ``timeout``. Exits
with status 1 when a check fails.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from gpu_checks import EL, ULP, Checks, draw, expect, mine, row_error, run, spacing

from encouraging import curve_loss, curves
from encouraging.ops import as_torch, reference, repeat

if find_spec("triton"):  # --help and --list do without
    from encouraging.ops.triton import autograd, in_order, sums

check = Checks()
# One row to a program and many, aligned and not, few programs on a multiprocessor and many, rows in blocks.
SIZES = ((65536, 1000, torch.float32), (8192, 8142, torch.float32), (5000, 1001, torch.bfloat16),
         (100000, 10, torch.float32), (4096, 16384, torch.bfloat16), (600, 50257, torch.bfloat16),
         (3000, 701, torch.float16))
_A_MOMENT = 40_000_000  # cycles, some 20 ms


@contextmanager
def way(from_programs: float, few_bytes: int | None = None, counted: float = math.inf) -> Iterator[None]:
    """Sums in order from so many programs on; gradients made later up to so many bytes; labels of up to so many rows
    counted by the first programs."""
    repeat.forget()
    with (mock.patch.multiple(sums, in_order_from=from_programs, in_order_rows=math.inf, counted_rows=counted),
          mock.patch.object(autograd, "few_bytes", autograd.few_bytes if few_bytes is None else few_bytes)):
        yield
    repeat.forget()


def step(z: Tensor, y: Tensor, **arguments: object) -> tuple[Tensor, Tensor]:
    leaf = z.detach().requires_grad_()
    leaf.grad = None
    loss = curve_loss(leaf, y, EL, impl="triton", **arguments)
    loss.backward()
    return loss.detach(), leaf.grad


def words_are_empty() -> bool:
    torch.cuda.synchronize()
    return all(bool((each == in_order.EMPTY.value).all()) for each in sums._words.values())


def differing(first: tuple[Tensor, Tensor], again: tuple[Tensor, Tensor]) -> Tensor:
    return sum((a != b).sum() for a, b in zip(first, again, strict=True))


@check(in_parts=True)
def sums_in_order_are_right() -> str:
    """Ahead and later, means and sums, with ignored rows, weights, a divisor and smoothing; few programs, too."""
    cases = mine((size, few) for size in SIZES for few in (0, 1 << 40))
    for (rows, classes, dtype), few in cases:
        z, y = draw(rows, classes, dtype)
        y[torch.rand(rows, device="cuda") < 0.3] = -100
        weight = torch.rand(classes, device="cuda") + 0.5
        for arguments in ({}, {"reduction": "sum"}, {"weight": weight}, {"divisor": torch.tensor(7.0, device="cuda")},
                          {"label_smoothing": 0.1}, {"label_smoothing": 0.1, "weight": weight}):
            found = []
            for from_programs in (1, math.inf):
                with way(from_programs, few):
                    found.append([step(z, y, **arguments) for _ in range(3)])
            words = f"{rows} x {classes} {dtype} {list(arguments)} {'later' if few else 'ahead'}"
            for one in found:
                expect(differing(one[1], one[2]) == 0, f"{words}: not the same twice")
            new, old = found[0][1], found[1][1]
            apart, eps = (new[0].double() - old[0].double()).abs(), torch.finfo(dtype).eps
            expect(apart <= (eps + 64 * ULP) * old[0].double().abs().clamp(min=1),
                   f"{words}: loss {new[0].item()} and {old[0].item()}")
            bound = eps + 8 * ULP + 2 * spacing(old[1].double(), dtype)
            expect((row_error(new[1], old[1].double()) <= bound).all(), f"{words}: gradient")
            expect(words_are_empty(), f"{words}: a word is not empty")
    return f"{len(cases)} sizes, 6 kinds each"


@check(in_parts=True)
def a_thousand_times_the_same_in_order() -> str:
    """While other work comes and goes, so that the programs begin and end in ever other orders."""
    beside, noise = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda")
    cases = mine(SIZES)
    for rows, classes, dtype in cases:
        z, y = draw(rows, classes, dtype)
        with way(1):
            first, wrong = step(z, y), torch.zeros((), dtype=torch.int64, device="cuda")
            step(z, y)
            first = step(z, y)
            first = first[0].clone(), first[1].clone()
            for i in range(1000 if rows * classes <= 1 << 23 else 200):
                with torch.cuda.stream(beside):
                    noise[:128 << i % 5] @ noise
                wrong += differing(first, step(z, y))
            expect(wrong == 0, f"{rows} x {classes}: {int(wrong)} numbers differ")
            expect(words_are_empty(), f"{rows} x {classes}: a word is not empty")
    return f"{len(cases)} sizes"


@check(in_parts=True)
def streams_that_wait_beside_each_other() -> str:
    """Eight streams whose launches all begin at once: none may keep what another waits for from beginning."""
    cases = mine(size for size in SIZES if size[0] * size[1] <= 1 << 27)
    for rows, classes, dtype in cases:
        drawn = [draw(rows, classes, dtype) for _ in range(8 if rows * classes < 1 << 26 else 4)]
        with way(1):
            first = []
            for z, y in drawn:
                step(z, y)
                value, gradient = step(z, y)
                first.append((value.clone(), gradient.clone()))
            streams = [torch.cuda.Stream() for _ in drawn]
            wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in drawn]
            torch.cuda.synchronize()
            for stream in streams:
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(_A_MOMENT)
            for _ in range(10):
                for i, stream in enumerate(streams):
                    with torch.cuda.stream(stream):
                        wrong[i] += differing(first[i], step(*drawn[i]))
            torch.cuda.synchronize()
            counts = [int(count) for count in wrong]
            expect(not any(counts), f"{rows} x {classes}: numbers that differ, by stream: {counts}")
            expect(words_are_empty(), f"{rows} x {classes}: a word is not empty")
    return f"{len(cases)} sizes"


@check(in_parts=True)
def graphs_of_sums_in_order() -> str:
    """Two graphs from one stream, replayed on two others beside eager calls on the first."""
    cases = mine(SIZES[:5])
    for rows, classes, dtype in cases:
        drawn = [draw(rows, classes, dtype) for _ in range(3)]
        with way(1):
            first, graphs, home = [], [], torch.cuda.Stream()
            for i, (z, y) in enumerate(drawn):
                leaf = z.detach().clone().requires_grad_()
                home.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(home):
                    for _ in range(3):
                        leaf.grad = None
                        value = curve_loss(leaf, y, EL, impl="triton")
                        value.backward()
                torch.cuda.synchronize()
                first.append((value.detach().clone(), leaf.grad.clone()))
                if i < 2:
                    leaf.grad, graph = None, torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, stream=home):
                        value = curve_loss(leaf, y, EL, impl="triton")
                        value.backward()
                    graphs.append((graph, (value.detach(), leaf.grad), leaf))
            streams = [torch.cuda.Stream(), torch.cuda.Stream(), home]
            wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in streams]
            torch.cuda.synchronize()
            for _ in range(30):
                for i, stream in enumerate(streams):
                    with torch.cuda.stream(stream):
                        if i < 2:
                            graph, found, _ = graphs[i]
                            found[0].fill_(math.nan)
                            graph.replay()
                        else:
                            found = step(*drawn[i])
                        wrong[i] += differing(first[i], found)
            torch.cuda.synchronize()
            counts = [int(count) for count in wrong]
            expect(not any(counts), f"{rows} x {classes}: numbers that differ: {counts}")
            expect(words_are_empty(), f"{rows} x {classes}: a word is not empty")
    return f"{len(cases)} sizes, 30 replays"


@check(seconds=2)
def few_logits_are_torchs() -> str:
    """Bit for bit, and within the errors of the kernels; what torch does not have stays with the kernels."""
    ce, tried = curves.cross_entropy(), 0
    for rows, classes, dtype in ((69648, 4, torch.bfloat16), (256, 1000, torch.float32), (64, 10, torch.float16)):
        z, y = draw(rows, classes, dtype)
        y[::5] = -100
        weight = torch.rand(classes, device="cuda").to(dtype)
        calls: list[tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = [
            (lambda x: curve_loss(x, y, ce), lambda x: F.cross_entropy(x, y)),  # noqa: B023
            (lambda x: curve_loss(x, y, ce, weight), lambda x: F.cross_entropy(x, y, weight)),  # noqa: B023
            (lambda x: curve_loss(x, y, ce, reduction="none"),  # noqa: B023
             lambda x: F.cross_entropy(x, y, reduction="none"))]  # noqa: B023
        if dtype is torch.float16:  # a sum of weights may be infinite there: such calls stay with the kernels
            del calls[1]
        for ours, theirs in calls:
            results = []
            for loss in (ours, theirs):
                leaf = z.clone().requires_grad_()
                value = loss(leaf)
                value.sum().backward()
                results.append((value.detach(), leaf.grad))
            expect(results[0][0].dtype == results[1][0].dtype, f"{rows} x {classes}: another type")
            expect(differing(*results) == 0, f"{rows} x {classes} {dtype}: not torch's bits")
            tried += 1
    with mock.patch.object(as_torch, "few_bytes", 0):
        z, y = draw(256, 1000)
        leaf, exact = z.clone().requires_grad_(), z.double().requires_grad_()
        curve_loss(leaf, y, ce).backward()
        reference.hard_loss(exact, y, ce).backward()
        expect(row_error(leaf.grad, exact.grad).max() <= 1e-5, "the kernels")
    return f"{tried} calls"


if __name__ == "__main__":
    run(check, __doc__)
