"""The kernels on a GPU against float64: accuracy, sizes, layouts, graphs and compilation. One line per check.

    python benchmarks/check_gpu.py [--list] [--part I/N] [NAME ...]
    python benchmarks/check_gpu_arguments.py [--list] [--part I/N] [NAME ...]
    python benchmarks/check_gpu_streams.py [--list] [--part I/N] [NAME ...]
    python benchmarks/check_gpu_in_order.py [--list] [--part I/N] [NAME ...]
    python benchmarks/check_gpu_all.py [--list] [--part I/N] [NAME ...]

The second file has soft targets, rows that are not aligned, the sigmoid link, squared errors, norm matching and curves
of one's own; the third has streams, graphs and threads beside each other; the fourth has sums in which programs wait
for others, and calls that are handed to torch; the fifth is all of them in one process. Most of the time is
compilation: in parts, which may run beside each other, each takes a minute or two.

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
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from gpu_checks import CURVES, EL, TYPES, ULP, Checks, draw, expect, gaps_of, mine, row_error, run, spacing

from encouraging import curve_loss, curves
from encouraging.commands.bench_formulas import softmax_loss
from encouraging.curves import Curve
from encouraging.ops import dispatch, reference

if find_spec("triton"):  # --help and --list do without
    from encouraging.ops.triton import Tiling, autograd, hard_loss, loss_and_gradient_, operators, sums, use_tiling

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
