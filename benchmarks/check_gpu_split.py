"""Few long rows on a GPU, each by several programs, against float64. One line per check.

    python benchmarks/check_gpu_split.py [--list] [--part I/N] [NAME ...]

Every case is computed by several programs per row and by one, so that both ways are checked at these sizes. Exits with
status 1 when a check fails.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from check_gpu_arguments import allowed, at_odd_place, soft_case, soft_targets, squared_error_case
from gpu_checks import CURVES, EL, TYPES, ULP, Checks, draw, expect, mine, row_error, run

from encouraging import curve_loss, curves, mirror_mse_loss
from encouraging.curves import Curve
from encouraging.ops import reference, repeat

if find_spec("triton"):  # --help and --list do without
    from encouraging.ops.triton import hard_loss, loss_and_gradient_, tiling

check = Checks()
FEW = ((2, 245034), (15, 72322), (17, 50257), (1, 16384), (3, 131071))


@contextmanager
def splitting(long: float) -> Iterator[None]:
    """Rows of so many classes are split inside the block; ``math.inf`` for none."""
    before, tiling.split_from = tiling.split_from, long
    repeat.forget()
    try:
        yield
    finally:
        tiling.split_from = before
        repeat.forget()


def both_ways(case: Callable[[], float]) -> float:
    with splitting(math.inf):
        one = case()
    return max(one, case())


@check(in_parts=True)
def few_long_rows_of_soft_targets() -> str:
    whole, half = (torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16)
    cases = [(*FEW[0], *whole, curve, 0) for curve in CURVES]
    cases += [(*size, *pair, EL, offset) for size in FEW[1:] for pair in (whole, half, (torch.float16, torch.float32))
              for offset in (0, 3)]
    worst = [both_ways(lambda case=case: soft_case(*case)) for case in mine(cases)]
    weight = torch.rand(50257, device="cuda") + 0.5
    for curve in mine((curves.cross_entropy(), EL, curves.normal(eps=0), curves.focal(2.0))):
        worst.append(both_ways(lambda curve=curve: soft_case(17, 50257, *half, curve, 1, weight=weight,
                                                             label_smoothing=0.1)))
    return f"{len(worst)} cases: at most {max(worst, default=0):.2f} of what is allowed"


@check(in_parts=True)
def few_long_rows_of_squared_errors() -> str:
    cases = mine(product(FEW, TYPES))
    worst = [both_ways(lambda size=size, dtype=dtype: squared_error_case(*size, dtype, ("softmax",)))
             for size, dtype in cases]
    return f"{4 * len(cases)} cases: at most {max(worst, default=0):.2f} of what is allowed"


def labels_case(rows: int, classes: int, dtype: torch.dtype, curve: Curve, offset: int, smoothing: float,
                weighted: bool) -> float:
    """Losses of the rows and their gradient in place, and the mean with its gradient."""
    z, y = draw(rows, classes, dtype)
    if rows > 2:
        y[1] = -100
        z[2, (y[2] + classes // 2) % classes] = z[2].float().max() + 12  # a certain mistake, in another segment
    if rows > 3:  # two equal classes far above all others, in segments of their own
        z[3] -= 40
        z[3, [(y[3] + classes // 3) % classes, (y[3] + 2 * classes // 3) % classes]] = 20.25
    weight = torch.rand(classes, device="cuda") + 0.5 if weighted else None
    view, storage = at_odd_place(z, offset)
    arguments = {"weight": weight, "label_smoothing": smoothing}
    exact, plain = z.double().requires_grad_(), z.detach().float().requires_grad_()
    wide = {**arguments, "weight": None if weight is None else weight.double()}
    expected = reference.hard_loss(exact, y, curve, reduction="none", **wide)
    expected.sum().backward()
    reference.hard_loss(plain, y, curve, reduction="sum", **arguments).backward()
    bound = allowed(plain.grad, exact.grad, dtype)
    words = f"{rows} x {classes} {dtype} {curve!r} offset {offset} smoothing {smoothing} weighted {weighted}"
    leaf = view.detach().requires_grad_()
    mean = hard_loss(leaf, y, curve, **arguments)
    mean.backward(torch.full_like(mean, 64.0))
    truth = reference.hard_loss(z.double(), y, curve, **wide)
    over = float((y != -100).sum()) if weight is None else float(weight[y[y != -100]].double().sum())
    loss = loss_and_gradient_(view, y, curve, **arguments)
    outside = torch.cat([storage[:offset], storage[offset + z.numel():]])
    value = ((loss.double() - expected).abs() / (ULP * expected.abs().clamp(min=16))).max().item()
    error = (row_error(view, exact.grad) / bound).max().item()
    slope = 64 / over * exact.grad
    of_mean = (row_error(leaf.grad, slope) / allowed(64 / over * plain.grad, slope, dtype)).max().item()
    expect(value <= 8, f"values {words}: {value:.1f} ulp")
    expect((mean.double() - truth).abs() <= 16 * ULP * truth.abs().clamp(min=16), f"mean {words}")
    expect(error <= 1, f"gradients {words}: {error:.2f} of what is allowed")
    expect(of_mean <= 2, f"gradients of the mean {words}: {of_mean:.2f} of what is allowed")
    expect(outside.isnan().all(), f"{words}: written outside")
    return max(error, of_mean / 2)


@check(in_parts=True)
def few_long_rows_of_labels() -> str:
    cases = [(*FEW[0], torch.float32, curve, 0, smoothing, False) for curve in CURVES for smoothing in (0.0, 0.1)]
    cases += [(*size, dtype, EL, offset, smoothing, weighted) for size in FEW[1:] for dtype in TYPES
              for offset, smoothing, weighted in ((0, 0.0, False), (3, 0.0, True), (0, 0.1, False), (5, 0.1, True))]
    cases += [(17, 50257, dtype, curve, 1, 0.1, True) for dtype in TYPES for curve in CURVES[:3]]
    worst = [both_ways(lambda case=case: labels_case(*case)) for case in mine(cases)]
    return f"{len(worst)} cases: at most {max(worst, default=0):.2f} of what is allowed"


@check
def soft_targets_that_begin_anywhere() -> str:
    """Repeated calls whose targets are slices of one tensor: each begins at another alignment."""
    rows, classes = 2, 50257
    for dtype in TYPES:
        z, y = draw(rows, classes, dtype)
        target = soft_targets(rows, classes, y, dtype)
        expected = None
        for offset in (0, 0, 1, 3, 1, 0):
            view, _ = at_odd_place(target, offset)
            leaf = z.clone().requires_grad_()
            curve_loss(leaf, view, EL).backward()
            expected = leaf.grad if expected is None else expected
            expect(bool(torch.allclose(leaf.grad.float(), expected.float(), rtol=2e-2, atol=1e-6)),
                   f"{dtype}, offset {offset}")
    return f"{len(TYPES)} types at six places"


def losses_of(y: Tensor, classes: int) -> dict[str, Callable[[Tensor], Tensor]]:
    soft = soft_targets(y.shape[0], classes, y, torch.float32)
    return {"soft": lambda x: curve_loss(x, soft, EL),
            "soft, none": lambda x: curve_loss(x, soft, EL, reduction="none"),
            "soft, cross-entropy": lambda x: curve_loss(x, soft, curves.cross_entropy(), reduction="sum"),
            "mean": lambda x: curve_loss(x, y, EL), "none": lambda x: curve_loss(x, y, EL, reduction="none"),
            "matched": lambda x: curve_loss(x, y, EL, match_norm=True),
            "smoothed": lambda x: curve_loss(x, y, curves.poly(1.0), label_smoothing=0.1),
            "mse": lambda x: mirror_mse_loss(x, y, bonus=False), "mse, soft": lambda x: mirror_mse_loss(x, soft),
            "mse, none": lambda x: mirror_mse_loss(x, y, reduction="none")}


@check(in_parts=True)
def few_long_rows_have_the_same_bits_every_time() -> str:
    """Eagerly, while other work comes and goes on the GPU, and replayed as a graph."""
    names = losses_of(torch.zeros(2, device="cuda").long(), 2)
    cases = mine(product(FEW[:3], TYPES, names))
    beside, noise = torch.cuda.Stream(), torch.randn(1024, 1024, device="cuda")
    for (rows, classes), dtype, name in cases:
        z, y = draw(rows, classes, dtype)
        loss = losses_of(y, classes)[name]

        def step(leaf: Tensor, loss: Callable[[Tensor], Tensor] = loss) -> tuple[Tensor, Tensor]:
            leaf.grad = None
            value = loss(leaf)
            value.sum().backward()
            return value.detach(), leaf.grad

        first, wrong = step(z.clone().requires_grad_()), torch.zeros((), dtype=torch.int64, device="cuda")
        for i in range(200):
            with torch.cuda.stream(beside):
                noise[:64 << i % 5] @ noise
            again = step(z.clone().requires_grad_())
            wrong += sum((a != b).sum() for a, b in zip(first, again, strict=True))
        leaf, graph, home = z.clone().requires_grad_(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
        home.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(home):
            for _ in range(3):
                step(leaf)
        torch.cuda.synchronize()
        leaf.grad = None
        with torch.cuda.graph(graph, stream=home):
            again = step(leaf)
        for _ in range(20):
            graph.replay()
            wrong += sum((a != b).sum() for a, b in zip(first, again, strict=True))
        expect(wrong == 0, f"{name} {rows} x {classes} {dtype}: {int(wrong)} numbers differ")
    return f"{len(cases)} cases, 220 times each"


if __name__ == "__main__":
    run(check, __doc__)
