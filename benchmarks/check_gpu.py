"""The kernels on a GPU against float64: every curve, size and type. One line per check.

    python benchmarks/check_gpu.py [--list] [--part I/N] [NAME ...]

| file | checks |
| --- | --- |
| `check_gpu.py` | the accuracy of labels |
| `check_gpu_calls.py` | layouts, edges, upstream gradients, tilings, CUDA graphs, `torch.compile` |
| `check_gpu_arguments.py` | soft targets, unaligned rows, the sigmoid link, squared errors, norm matching, own curves |
| `check_gpu_split.py` | few long rows, several programs per row |
| `check_gpu_streams.py` | streams, graphs and threads beside each other |
| `check_gpu_launches.py` | launches by address, the ends of unaligned rows, another GPU |
| `check_gpu_in_order.py` | sums in which programs wait for others, and calls that are handed to torch |
| `check_gpu_all.py` | all of them in one process |

All take the same arguments. Most of the time is compilation: in parts, which may run beside each other, each takes a
minute or two. Exits with status 1 when a check fails.
"""

from __future__ import annotations

import math
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from gpu_checks import CURVES, EL, TYPES, ULP, Checks, draw, expect, gaps_of, mine, row_error, run, spacing

from encouraging import curves
from encouraging.commands.bench_formulas import softmax_loss
from encouraging.curves import Curve
from encouraging.ops import reference

if find_spec("triton"):  # --help and --list do without
    from encouraging.ops.triton import autograd, hard_loss

check = Checks()


def truth(logits: Tensor, target: Tensor, curve: Curve, upstream: Tensor | None = None,
          **arguments: object) -> tuple[Tensor, Tensor]:
    z = logits.detach().double().requires_grad_()
    if isinstance(arguments.get("weight"), Tensor):
        arguments["weight"] = arguments["weight"].double()
    loss = reference.hard_loss(z, target, curve, **arguments)
    loss.backward(None if upstream is None else upstream.double())
    return loss.detach(), z.grad


def ours(logits: Tensor, target: Tensor, curve: Curve, upstream: Tensor | None = None,
         **arguments: object) -> tuple[Tensor, Tensor]:
    z = logits.detach().clone().requires_grad_()
    loss = hard_loss(z, target, curve, **arguments)
    loss.backward(upstream)
    return loss.detach(), z.grad


def torchs_error(logits: Tensor, target: Tensor, curve: Curve, upstream: Tensor, slope: Tensor, *,
                 label_smoothing: float, weight: Tensor | None = None) -> Tensor:
    """The error of the same formula in plain torch, float32, on the same numbers."""
    z = logits.detach().float().clone().requires_grad_()
    softmax_loss(z, target, curve, weight=weight, smoothing=label_smoothing, reduction="none").backward(upstream)
    return row_error(z.grad, slope).nan_to_num(0.0)


def accuracy(rows: int, classes: int, dtype: torch.dtype, curve: Curve, means: bool = True, **arguments: object) -> str:
    """Of the losses of all rows, and with ``means`` of the mean, whose gradient is made ahead or later."""
    z, y = draw(rows, classes, dtype)
    upstream = torch.randn(rows, device="cuda")
    loss, gradient = ours(z, y, curve, upstream, reduction="none", **arguments)
    expected, slope = truth(z, y, curve, upstream, reduction="none", **arguments)
    size = gaps_of(z, y).abs().clamp(min=4 if arguments.get("label_smoothing") else 1)
    value = ((loss.double() - expected).abs() / (ULP * size)).max().item()
    bound = 6 * ULP * size.clamp(min=4)
    if arguments.get("label_smoothing"):  # a gradient that is a small difference of large terms: torch's own error
        bound = torch.maximum(bound, torchs_error(z, y, curve, upstream, slope, **arguments))
    bound += torch.finfo(dtype).eps * 0.51
    error = (row_error(gradient, slope) / (bound + spacing(slope, dtype))).max().item()
    _, mean = truth(z, y, curve, **arguments)
    for few_bytes in (0, autograd.few_bytes) if means else ():  # made ahead, and later
        with mock.patch.object(autograd, "few_bytes", few_bytes):
            _, reduced = ours(z, y, curve, **arguments)
        error = max(error, (row_error(reduced, mean) / (bound + spacing(mean, dtype))).max().item())
    words = f"{classes} {str(dtype)[6:]} {curve!r}: values {value:.1f} ulp, gradients {error:.2f} of the bound"
    expect(value <= 8, words)
    expect(error <= 1, words)
    return words


@check(in_parts=True)
def every_curve() -> str:
    cases = [(rows, classes, curve) for rows, classes in ((512, 1000), (64, 50257)) for curve in CURVES]
    # Long rows are read in blocks, whatever the curve: its means are those of every_size.
    words = [accuracy(rows, classes, torch.float32, curve, classes < 5000) for rows, classes, curve in mine(cases)]
    return f"{len(words)} cases; last: {words[-1] if words else None}"


@check(in_parts=True)
def every_curve_smoothed() -> str:
    weights = torch.rand(1000, device="cuda") + 0.5
    cases = [(*size, curve, weight) for size, weight in (
        ((512, 1000, torch.float32), None), ((512, 1000, torch.float32), weights),
        ((64, 50257, torch.float32), None), ((64, 50257, torch.bfloat16), None))
        for curve in (curves.cross_entropy(), curves.normal(), EL, curves.poly(1.0), curves.focal(2.0))]
    words = [accuracy(*case, label_smoothing=0.1, weight=weight) for *case, weight in mine(cases)]
    return f"{len(words)} cases; last: {words[-1] if words else None}"


@check(in_parts=True)
def certain_mistakes_and_ties_smoothed() -> str:
    """Where smoothing is hardest: rows that are sure of a wrong class, and rows with several classes on top."""
    worst, tried = 0.0, 0
    losses = ((EL, False), (EL, True), (curves.normal(eps=0), False), (curves.focal(2.0), False),
              (curves.normal(), True))
    for classes, (curve, weighted) in mine((classes, loss) for classes in (3, 17, 512, 1000, 8142, 50257)
                                           for loss in losses):
        rows = 256 if classes < 5000 else 32
        z, y = draw(rows, classes)
        wrong = (y + 1) % classes
        z[::4] = z[::4].scatter_add(1, wrong[::4, None], 30 * torch.rand(rows // 4, 1, device="cuda"))
        rivals = z.scatter(1, y[:, None], -math.inf)
        z[1::4] = torch.where(rivals >= rivals.topk(min(3, classes - 1))[0][:, -1:], rivals.amax(1)[:, None], z)[1::4]
        upstream = torch.randn(rows, device="cuda")
        arguments = {"label_smoothing": 0.1, "weight": torch.rand(classes, device="cuda") + 0.5 if weighted else None,
                     "reduction": "none"}
        plain = z.clone().requires_grad_()
        reference.hard_loss(plain, y, curve, **arguments).backward(upstream)
        loss, gradient = ours(z, y, curve, upstream, **arguments)
        expected, slope = truth(z, y, curve, upstream, **arguments)
        usual = (4 * row_error(plain.grad, slope)).clamp(min=24 * ULP)
        _, ahead = ours(z, y, curve, **{**arguments, "reduction": "sum"})
        _, slope_ahead = truth(z, y, curve, **{**arguments, "reduction": "sum"})
        error = max((row_error(gradient, slope) / usual).max(), (row_error(ahead, slope_ahead) / usual).max())
        words = f"{classes} {curve!r} {'weighted' if weighted else ''}"
        value = ((loss.double() - expected).abs() / (ULP * gaps_of(z, y).abs().clamp(min=8))).max()
        expect(value <= 12, f"values {words}: {value:.1f} ulp")
        expect(error <= 1, f"gradients {words}: {error:.2f} of the bound")
        worst, tried = max(worst, float(error)), tried + 1
    return f"{tried} cases: at most {worst:.2f} of the bound"


@check(in_parts=True)
def every_size() -> str:
    sizes = [2, 3, 10, 17, 33, 100, 101, 512, 1000, 1001, 4096, 8142, 10007, 16384, 32000, 32769, 65537, 128256,
             262144]
    cases = mine((classes, dtype) for classes in sizes for dtype in TYPES)
    for classes, dtype in cases:
        accuracy(257 if classes < 5000 else 33, classes, dtype, EL)
    return f"{len(cases)} cases, up to {sizes[-1]} classes"


@check(seconds=5)
def cross_entropy_is_at_most_as_wrong_as_torchs() -> str:
    words = []
    for rows, classes in ((4096, 10), (4096, 1000), (256, 32000), (64, 128256)):
        for dtype in (torch.float32, torch.bfloat16):
            z, y = draw(rows, classes, dtype)
            leaf = z.clone().requires_grad_()
            theirs = F.cross_entropy(leaf, y, reduction="none")
            theirs.sum().backward()
            loss, gradient = ours(z, y, curves.cross_entropy(), torch.ones(rows, device="cuda"), reduction="none")
            expected, slope = truth(z, y, curves.cross_entropy(), torch.ones(rows, device="cuda"), reduction="none")
            mine, his = (loss - expected).abs().max().item(), (theirs.double() - expected).abs().max().item()
            ulp = torch.finfo(dtype).eps
            expect(mine <= his + ulp, f"values {classes} {dtype}: {mine:.2e} against torch's {his:.2e}")
            by_mine, by_his = (gradient - slope).abs().max().item(), (leaf.grad.double() - slope).abs().max().item()
            expect(by_mine <= by_his + ulp, f"gradients {classes} {dtype}: {by_mine:.2e} against torch's {by_his:.2e}")
            words.append(f"{mine:.1e}/{his:.1e}")
    return "ours/torch's: " + " ".join(words)


@check(seconds=2)
def more_than_two_to_the_31_elements() -> str:
    rows, classes = 16500, 131072
    logits = torch.randn(rows, classes, device="cuda", dtype=torch.bfloat16)
    target = torch.randint(classes, (rows,), device="cuda")
    leaf = logits.requires_grad_()
    hard_loss(leaf, target, EL, reduction="sum").backward()
    some = torch.tensor([0, 1, rows // 2, rows - 2, rows - 1], device="cuda")
    _, slope = truth(logits.detach()[some], target[some], EL, reduction="sum")
    error = row_error(leaf.grad[some], slope).max().item()
    expect(error <= 2.0**-8 * 1.05, f"error {error:.2e}")
    expect(not leaf.grad.isnan().any(), "NaN in the gradient")
    upstream = torch.full((rows,), 2.0, device="cuda")
    gradient, = torch.autograd.grad(hard_loss(leaf, target, EL, reduction="none"), leaf, upstream)
    error = row_error(gradient[some], 2 * slope).max().item()
    expect(error <= 2.0**-8 * 1.05, f"later: error {error:.2e}")
    return f"{rows} x {classes}: error {error:.1e}"


if __name__ == "__main__":
    run(check, __doc__)
