"""The kernels beside each other on a GPU: streams, graphs, threads, modes. One line per check.

    python benchmarks/check_gpu_streams.py [--list] [--part I/N] [NAME ...]

A sum is made by the program that arrives last, which a counter finds out. That goes wrong only where programs really
run at once, which the interpreter cannot show. Exits with status 1 when a check fails.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))
from gpu_checks import EL, Checks, draw, expect, mine, row_error, run

from encouraging import curve_loss, curves, mirror_mse_loss, sigmoid_curve_loss
from encouraging.ops import repeat

if find_spec("triton"):  # --help and --list do without

    from encouraging.ops.triton import in_order, sums

check = Checks()
Loss = Callable[[Tensor], Tensor]
OWN = curves.custom(lambda gap: torch.nn.functional.softplus(-gap) - gap, lambda gap: 1 + torch.sigmoid(-gap))
# Many programs and few, rows on chip and in blocks, sums of one launch and of two, gradients ahead and later.
SIZES = ((2048, 1000, torch.float32), (2100, 1001, torch.float32), (300, 50257, torch.bfloat16),
         (70000, 10, torch.float32), (20000, 512, torch.bfloat16), (16, 17, torch.float32))
_A_MOMENT = 40_000_000  # cycles, some 20 ms: streams that wait so long have all their launches when they begin


def losses_of(y: Tensor, classes: int) -> dict[str, Loss]:
    """Every kernel that makes a sum."""
    weight = torch.rand(classes, device="cuda") + 0.5
    soft = torch.rand(y.shape[0], classes, device="cuda")
    soft /= soft.sum(1, keepdim=True)
    divisor = torch.tensor(7.0, device="cuda")
    return {"mean": lambda x: curve_loss(x, y, EL), "sum": lambda x: curve_loss(x, y, EL, reduction="sum"),
            "weighted": lambda x: curve_loss(x, y, EL, weight), "own": lambda x: curve_loss(x, y, OWN),
            "smoothed": lambda x: curve_loss(x, y, EL, label_smoothing=0.1),
            "divisor": lambda x: curve_loss(x, y, EL, divisor=divisor),
            "matched": lambda x: curve_loss(x, y, EL, match_norm=True), "soft": lambda x: curve_loss(x, soft, EL),
            "sigmoid": lambda x: sigmoid_curve_loss(x, soft, EL), "mse": lambda x: mirror_mse_loss(x, y)}


def step(loss: Loss, z: Tensor) -> tuple[Tensor, Tensor]:
    leaf = z.detach().clone().requires_grad_()
    value = loss(leaf)
    value.backward()
    return value.detach(), leaf.grad


def differing(first: tuple[Tensor, Tensor], again: tuple[Tensor, Tensor]) -> Tensor:
    """How many numbers differ, on the device, so that nothing waits."""
    return sum((a != b).sum() for a, b in zip(first, again, strict=True))


def counters_are_zero() -> bool:
    torch.cuda.synchronize()
    return (all(int(each.counter) == 0 for each in sums._workspaces.values())
            and all(bool((each == in_order.EMPTY.value).all()) for each in sums._words.values()))


@check(in_parts=True)
def a_thousand_times_the_same() -> str:
    """While other work comes and goes on the GPU, so that the programs arrive in ever other orders."""
    cases = mine((size, name) for size in SIZES for name in losses_of(torch.zeros(1, device="cuda").long(), 2))
    beside, noise = torch.cuda.Stream(), torch.randn(1024, 1024, device="cuda")
    for (rows, classes, dtype), name in cases:
        z, y = draw(rows, classes, dtype)
        loss = losses_of(y, classes)[name]
        first, wrong = step(loss, z), torch.zeros((), dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        for i in range(1000 if rows * classes <= 1 << 22 else 100):
            with torch.cuda.stream(beside):
                noise[:64 << i % 5] @ noise
            wrong += differing(first, step(loss, z))
        expect(not first[1].isnan().any(), f"{name} {rows} x {classes}: NaN")
        expect(wrong == 0, f"{name} {rows} x {classes}: {int(wrong)} numbers differ")
    expect(counters_are_zero(), "a counter is not 0")
    return f"{len(cases)} cases"


@check(in_parts=True)
def streams_beside_each_other() -> str:
    """Other numbers on every stream; all launches are there before the first begins."""
    cases = mine((size, name) for size in SIZES for name in ("mean", "own", "matched", "sigmoid"))
    for (rows, classes, dtype), name in cases:
        drawn = [draw(rows, classes, dtype) for _ in range(6)]
        work = [(losses_of(y, classes)[name], z) for z, y in drawn]
        first = [step(*each) for each in work]
        streams, results = [torch.cuda.Stream() for _ in work], [[] for _ in work]
        torch.cuda.synchronize()
        for stream in streams:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(_A_MOMENT)
        for _ in range(10):
            for stream, each, found in zip(streams, work, results, strict=True):
                with torch.cuda.stream(stream):
                    found.append(step(*each))
        torch.cuda.synchronize()
        wrong = sum(int(differing(one, other)) for one, found in zip(first, results, strict=True) for other in found)
        expect(wrong == 0, f"{name} {rows} x {classes}: {wrong} numbers differ")
    expect(counters_are_zero(), "a counter is not 0")
    return f"{len(cases)} cases on 6 streams"


def captured(loss: Loss, z: Tensor,
             stream: torch.cuda.Stream) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor], Tensor]:
    """A step as a graph, where its results will be, and the logits, which have to live as long."""
    leaf = z.detach().clone().requires_grad_()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            leaf.grad = None
            loss(leaf).backward()
    torch.cuda.synchronize()
    leaf.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        value = loss(leaf)
        value.backward()
    return graph, (value.detach(), leaf.grad), leaf


@check(in_parts=True)
def graphs_beside_each_other_and_beside_eager_calls() -> str:
    """Two graphs that were captured on one stream, replayed on two others, with eager calls on the stream of the
    capture and on the default one."""
    cases = mine((size, name) for size in SIZES[:4] for name in ("mean", "own", "matched", "soft", "mse"))
    for (rows, classes, dtype), name in cases:
        drawn = [draw(rows, classes, dtype) for _ in range(4)]
        work = [(losses_of(y, classes)[name], z) for z, y in drawn]
        first, home = [step(*each) for each in work], torch.cuda.Stream()
        graphs = [captured(*each, home) for each in work[:2]]
        streams = [torch.cuda.Stream(), torch.cuda.Stream(), home, torch.cuda.current_stream()]
        wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in work]
        torch.cuda.synchronize()
        for stream in streams:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(_A_MOMENT)
        for _ in range(50):
            for i, stream in enumerate(streams):
                with torch.cuda.stream(stream):
                    if i < 2:
                        graph, found, _ = graphs[i]
                        found[0].fill_(math.nan)
                        graph.replay()
                    else:
                        found = step(*work[i])
                    wrong[i] += differing(first[i], found)
        torch.cuda.synchronize()
        counts = [int(count) for count in wrong]
        expect(not any(counts), f"{name} {rows} x {classes}: numbers that differ, graphs and streams: {counts}")
    expect(counters_are_zero(), "a counter is not 0")
    return f"{len(cases)} cases, 50 replays each"


@check(seconds=1)
def threads_beside_each_other() -> str:
    """Four threads on the default stream, and four on streams of their own; nothing is remembered before."""
    drawn = [draw(1000, 1000) for _ in range(8)]
    work = [(losses_of(y, 1000)["mean"], z) for z, y in drawn]
    first, wrong = [step(*each) for each in work], [0] * 8
    torch.cuda.synchronize()
    repeat.forget()
    sums._workspaces.clear()

    def work_on(i: int) -> None:
        stream = torch.cuda.default_stream() if i < 4 else torch.cuda.Stream()
        with torch.cuda.stream(stream):
            count = torch.zeros((), dtype=torch.int64, device="cuda")
            for _ in range(200):
                count += differing(first[i], step(*work[i]))
            wrong[i] = int(count)

    threads = [threading.Thread(target=work_on, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not any(wrong), f"numbers that differ, by thread: {wrong}")
    expect(counters_are_zero(), "a counter is not 0")
    return "8 threads, 200 steps each"


@check(seconds=8)
def compiled_to_graphs_beside_eager_calls() -> str:
    z, y = draw(512, 1000)
    first = step(lambda x: curve_loss(x, y, EL), z)

    @torch.compile(mode="reduce-overhead", fullgraph=True)
    def loss(logits: Tensor) -> Tensor:
        return curve_loss(logits, y, EL, impl="triton")

    for _ in range(6):
        value, gradient = step(loss, z)
        expect((value - first[0]).abs() <= 1e-5, "loss")
        expect(row_error(gradient, first[1].double()).max() <= 1e-5, "gradient")
        expect(differing(first, step(lambda x: curve_loss(x, y, EL), z)) == 0, "eager calls between")
    return "6 steps"


@check(seconds=5)
def modes_hooks_and_checkpoints() -> str:
    z, y = draw(700, 1001)
    wide = torch.cat([z, z.roll(1)], 1)

    def loss(logits: Tensor) -> Tensor:
        return curve_loss(logits[:, :1001], y, EL)

    repeat.forget()
    torch.cuda.synchronize()
    sums._workspaces.clear()
    with torch.inference_mode():
        value = loss(wide)
    first = step(loss, wide)
    expect((value - first[0]).abs() <= 1e-5, "inference mode")
    for _ in range(2):  # alternately: the copies that come back are aligned, the logits were not
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            _, gradient = step(loss, wide)
        expect(row_error(gradient, first[1].double()).max() <= 1e-6, "save_on_cpu")
        expect(differing(first, step(loss, wide)) == 0, "after save_on_cpu")
    for reentrant in (False, True):
        again = step(lambda x: checkpoint(loss, x, use_reentrant=reentrant), wide)  # noqa: B023
        expect(differing(first, again) == 0, f"checkpoint, reentrant: {reentrant}")
    for _ in range(2):
        logits = 1 * z.clone().requires_grad_()
        value = curve_loss(logits, y, EL)
        logits.mul_(2)
        try:
            value.backward()
        except RuntimeError:
            continue
        raise AssertionError("logits that were changed gave a gradient")
    return "inference mode, save_on_cpu, checkpoints, logits that change"


if __name__ == "__main__":
    run(check, __doc__)
