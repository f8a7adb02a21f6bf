"""Soft targets by the kernels, in Triton's interpreter: every curve, gradients on both sides, edges and layouts."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton")

import triton
from triton import language as tl

from encouraging import curve_loss, curves, linear_curve_loss
from encouraging.curves import Curve
from encouraging.ops import reference
from encouraging.ops.triton import Tiling, loss_and_gradient_, soft_loss, soft_operators, use_tiling
from encouraging.ops.triton.soft_rows import at_largest, row_terms
from encouraging.ops.triton.tiling import soft_tiling_for
from kernel_cases import CLASSES, CURVES, MARKS, SIXTEEN, STREAMED, TAILS, ULP, draw, row_error

pytestmark = MARKS
TILINGS = pytest.mark.parametrize("tiling", [SIXTEEN, STREAMED], ids=["whole", "streamed"])


def draw_soft(rows: int, classes: int = CLASSES, seed: int = 0, **arguments: object) -> tuple[Tensor, Tensor]:
    """Logits at any confidence, with targets of every kind: one class, two, all, nearly one, and not summing to 1."""
    z, y = draw(rows, classes, seed=seed, **arguments)
    g = torch.Generator().manual_seed(seed + 1)
    hot = F.one_hot(y, classes).double()
    other = hot[torch.randperm(rows, generator=g)]
    spread = torch.randn(rows, classes, generator=g, dtype=torch.float64).mul(2).softmax(1)
    share = torch.rand(rows, 1, generator=g, dtype=torch.float64)
    kinds = [hot, share * hot + (1 - share) * other, spread, hot * (1 - 1e-4) + 1e-4 * spread, 3 * share * spread]
    return z, torch.stack(kinds)[torch.arange(rows) % len(kinds), torch.arange(rows)].float()


def truth(logits: Tensor, target: Tensor, curve: Curve, upstream: Tensor | None = None,
          **arguments: object) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and both gradients of the reference in float64."""
    z, q = (tensor.detach().double().requires_grad_() for tensor in (logits, target))
    if isinstance(arguments.get("weight"), Tensor):
        arguments["weight"] = arguments["weight"].double()
    loss = reference.soft_loss(z, q, curve, **arguments)
    loss.backward(None if upstream is None else upstream.double())
    return loss.detach(), z.grad, q.grad


def ours(logits: Tensor, target: Tensor, curve: Curve, upstream: Tensor | None = None,
         **arguments: object) -> tuple[Tensor, Tensor, Tensor]:
    z, q = (tensor.detach().clone().requires_grad_() for tensor in (logits, target))
    loss = soft_loss(z, q, curve, **arguments)
    loss.backward(upstream)
    return loss.detach(), z.grad, q.grad


def plain_error(logits: Tensor, target: Tensor, curve: Curve, slope: Tensor, **arguments: object) -> Tensor:
    """Errors of the plain code in float32: the measure where a gradient is a small difference of large terms."""
    leaf = logits.detach().clone().requires_grad_()
    reference.soft_loss(leaf, target, curve, reduction="sum", **arguments).backward()
    return row_error(leaf.grad, slope)


@TILINGS
@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_every_curve_is_float64s_at_any_confidence(curve: Curve, tiling: Tiling) -> None:
    z, q = draw_soft(15 if tiling is SIXTEEN else 5)
    z[3, [2, 5]] = z[3].max() + 2  # two on top
    arguments = {"reduction": "sum"}
    expected, slope, by_target = truth(z, q, curve, **arguments)
    with use_tiling(tiling):
        loss, gradient, on_target = ours(z, q, curve, **arguments)
    each, _, _ = truth(z, q, curve, torch.ones(len(z)), reduction="none")
    assert abs(loss.item() - expected.item()) <= 8 * ULP * each.abs().clamp(min=4).sum()
    assert (row_error(gradient, slope) <= (2 * plain_error(z, q, curve, slope)).clamp(min=24 * ULP)).all()
    assert ((on_target - by_target).abs() <= 8 * ULP * by_target.abs().clamp(min=4)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_cross_entropy_is_at_most_as_wrong_as_torchs(dtype: torch.dtype) -> None:
    z, q = draw_soft(60, seed=1)
    z = z.to(dtype)
    leaf = z.clone().requires_grad_()
    theirs = F.cross_entropy(leaf, q.to(dtype), reduction="none")
    theirs.sum().backward()
    expected, slope, _ = truth(z, q.to(dtype), curves.cross_entropy(), torch.ones(60), reduction="none")
    loss, gradient, _ = ours(z, q.to(dtype), curves.cross_entropy(), torch.ones(60), reduction="none")
    ulp = torch.finfo(dtype).eps
    assert (loss - expected).abs().max() <= (theirs.double() - expected).abs().max() + ulp
    assert (gradient - slope).abs().max() <= (leaf.grad.double() - slope).abs().max() + ulp * slope.abs().max()


def test_a_certain_row_keeps_the_digits_that_torch_loses() -> None:
    z, q = torch.tensor([[17.0, 0.0, -1.0], [0.5, 15.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    for curve in (curves.cross_entropy(), curves.conservative(0.75)):
        _, slope, _ = truth(z, q, curve, reduction="sum")
        _, gradient, _ = ours(z, q, curve, reduction="sum")
        assert row_error(gradient, slope).max() <= 8 * ULP
    leaf = z.clone().requires_grad_()
    F.cross_entropy(leaf, q, reduction="sum").backward()
    assert row_error(leaf.grad, truth(z, q, curves.cross_entropy(), reduction="sum")[1]).max() > 1e-3


@TILINGS
@pytest.mark.parametrize("curve", TAILS, ids=repr)
def test_weights_smoothing_and_any_upstream_gradient(curve: Curve, tiling: Tiling) -> None:
    rows = 15 if tiling is SIXTEEN else 5
    z, q = draw_soft(rows, seed=2)
    weight = torch.rand(CLASSES) + 0.5
    weight[4] = 0.0
    upstream = torch.randn(rows)
    arguments = {"weight": weight, "label_smoothing": 0.1}
    with use_tiling(tiling):
        loss, gradient, on_target = ours(z, q, curve, upstream, reduction="none", **arguments)
    expected, slope, by_target = truth(z, q, curve, upstream, reduction="none", **arguments)
    assert ((loss - expected).abs() <= 8 * ULP * expected.abs().clamp(min=8)).all()
    measure = plain_error(z, q, curve, slope / upstream[:, None], **arguments)
    assert (row_error(gradient, slope) <= (2 * measure).clamp(min=32 * ULP)).all()
    assert ((on_target - by_target).abs() <= 8 * ULP * by_target.abs().clamp(min=8)).all()


@pytest.mark.parametrize("classes", [1, 2, 3, 10, 17, 100, 101, 513, 1000])
def test_the_tilings_in_use_are_right_in_every_row(classes: int) -> None:
    rows = 41 if classes < 64 else 7
    z, q = draw_soft(rows, classes, seed=3)
    for curve in TAILS:
        expected, slope, _ = truth(z, q, curve)
        loss, gradient, _ = ours(z, q, curve)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-5)
        measure = plain_error(z, q, curve, slope * rows)
        assert (row_error(gradient, slope) <= (2 * measure).clamp(min=32 * ULP)).all()


@TILINGS
def test_edges(tiling: Tiling) -> None:
    inf, nan = math.inf, math.nan
    z = torch.tensor([
        [1.0, -inf, 0.5, -inf],   # masked classes without mass
        [1.0, -inf, 0.5, 0.0],    # a masked class with mass
        [1.0, -inf, -inf, -inf],  # no rival is left
        [nan, 1.0, 2.0, 0.0],
        [inf, 0.0, 0.0, 0.0],
        [-inf, -inf, -inf, -inf],
        [0.0, 0.0, 0.0, 0.0],
    ])
    q = torch.tensor([[0.5, 0.0, 0.5, 0.0], [0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0],
                      [0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    for curve in TAILS:
        leaf = z.clone().requires_grad_()
        rows = reference.soft_loss(leaf, q, curve, reduction="none")
        rows.sum().backward()
        with use_tiling(tiling):
            loss, gradient, _ = ours(z, q, curve, torch.ones(7), reduction="none")
        torch.testing.assert_close(loss, rows.detach(), equal_nan=True)
        finite = [0, 1, 2, 6]
        torch.testing.assert_close(gradient[finite], leaf.grad[finite], atol=1e-6, rtol=1e-5)
        assert gradient[3:6].isnan().any(1).all()


def test_a_pull_without_end_is_right_beyond_the_smallest_number() -> None:
    z = torch.tensor([[0.0, 200.0, -30.0, 20.0], [0.0, 120.0, 119.0, -3.0], [150.0, 150.0, 0.0, 1.0]])
    q = torch.tensor([[0.2, 0.7, 0.0, 0.1], [0.0, 1.0, 0.0, 0.0], [0.5, 0.3, 0.1, 0.1]])
    for curve in (curves.normal(eps=0), curves.aggressive(0.5, eps=0)):
        expected, slope, _ = truth(z, q, curve, reduction="sum")
        for tiling in (Tiling(4, 16, 4), Tiling(1, 16, 4, streamed=True)):
            with use_tiling(tiling):
                loss, gradient, _ = ours(z, q, curve, reduction="sum")
            assert loss.item() == pytest.approx(expected.item(), rel=4 * ULP)
            assert row_error(gradient, slope).max() <= 16 * ULP


@pytest.mark.parametrize("tiling", [Tiling(8, 32, 4), Tiling(1, 16, 4, streamed=True)], ids=["whole", "streamed"])
def test_every_element_is_written_and_no_other(tiling: Tiling) -> None:
    """Odd sizes inside a larger buffer, poisoned around and inside; the targets start at an odd element."""
    rows, classes = 5, 19
    z, q = draw_soft(rows, classes, seed=4)
    for dtype in (torch.float32, torch.bfloat16):
        large = torch.full((rows + 2, classes + 3), math.nan, dtype=dtype)
        view = large[1:-1, 1:-2]
        view.copy_(z)
        masses = torch.full((rows * classes + 1,), math.nan)[1:].view(rows, classes).copy_(q)
        _, slope, _ = truth(view, q, curves.conservative(0.75), reduction="sum")
        expected = reference.soft_loss(view.double(), q.double(), curves.conservative(0.75), reduction="none")
        with use_tiling(tiling):
            losses = loss_and_gradient_(view, masses, curves.conservative(0.75), denominator=torch.tensor(4.0))
        assert ((losses - expected).abs() <= 16 * ULP * expected.abs().clamp(min=4)).all()
        assert row_error(view, slope / 4).max() <= 2 * torch.finfo(dtype).eps + 64 * ULP
        large[1:-1, 1:-2] = math.nan
        assert large.isnan().all()


@pytest.mark.parametrize("types", [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16),
                                   (torch.float16, torch.float32), (torch.bfloat16, torch.bfloat16)], ids=str)
def test_types_may_differ_and_each_gradient_has_its_own(types: tuple[torch.dtype, torch.dtype]) -> None:
    z, q = draw_soft(15, seed=5, lowest=1e-3, highest=0.99)
    z, q = z.to(types[0]), q.to(types[1])
    upstream = torch.tensor(64.0)
    with use_tiling(SIXTEEN):
        loss, gradient, on_target = ours(z, q, curves.conservative(0.75), upstream)
    expected, slope, by_target = truth(z, q, curves.conservative(0.75), upstream)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert (gradient.dtype, on_target.dtype) == types
    assert row_error(gradient, slope).max() <= 1.01 * torch.finfo(types[0]).eps + 48 * ULP
    assert row_error(on_target, by_target).max() <= 1.01 * torch.finfo(types[1]).eps + 16 * ULP


def test_upstream_gradients_kept_graphs_and_batches() -> None:
    z, q = draw_soft(10, seed=6)
    _, slope, by_target = truth(z, q, curves.focal(2.0))
    leaf, masses = z.clone().requires_grad_(), q.clone().requires_grad_()
    loss = soft_loss(leaf, masses, curves.focal(2.0))
    handed_out = [(upstream, *torch.autograd.grad(loss, (leaf, masses), torch.tensor(upstream), retain_graph=True))
                  for upstream in (1.0, 3.0, 0.0, -0.5, 1.0)]
    above = torch.randn(3)
    batch = torch.autograd.grad(loss, leaf, above, is_grads_batched=True, retain_graph=True)[0]
    handed_out += [(upstream, gradient, None) for upstream, gradient in zip(above.tolist(), batch, strict=True)]
    for upstream, gradient, on_target in handed_out:
        torch.testing.assert_close(gradient.double(), upstream * slope, rtol=1e-4, atol=1e-7)
        if on_target is not None:
            torch.testing.assert_close(on_target.double(), upstream * by_target, rtol=1e-4, atol=1e-7)
    rows = soft_loss(leaf, q, curves.focal(2.0), reduction="none")
    above = torch.randn(2, 10)
    for upstream, gradient in zip(above, torch.autograd.grad(rows, leaf, above, is_grads_batched=True)[0], strict=True):
        torch.testing.assert_close(gradient.double(), 10 * upstream[:, None] * slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_second_derivatives_are_the_references(reduction: str) -> None:
    z, q = draw_soft(6, 5, seed=7)
    found = []
    for op, dtype in ((soft_loss, torch.float32), (reference.soft_loss, torch.float64)):
        leaf, masses = (tensor.detach().clone().to(dtype).requires_grad_() for tensor in (z, q))
        loss = op(leaf, masses, curves.conservative(0.75), reduction=reduction, label_smoothing=0.1).square().sum()
        gradients = torch.autograd.grad(loss, (leaf, masses), create_graph=True)
        (sum(gradient.square().sum() for gradient in gradients) + loss).backward()
        found.append((leaf.grad.double(), masses.grad.double()))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_without_gradient_none_is_made_and_none_is_kept() -> None:
    z, q = draw_soft(6, seed=8)
    for reduction in ("mean", "sum", "none"):
        expected = F.cross_entropy(z, q, reduction=reduction, label_smoothing=0.3)
        loss = soft_loss(z, q, curves.cross_entropy(), reduction=reduction, label_smoothing=0.3)
        assert not loss.requires_grad
        torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-5)
    empty = torch.zeros(0, 5)
    assert ours(empty, empty, curves.normal())[0].isnan()
    assert ours(empty, empty, curves.normal(), reduction="sum")[0] == 0
    assert ours(empty, empty, curves.normal(), torch.zeros(0), reduction="none")[0].shape == (0,)


def test_layouts_and_images() -> None:
    z, q = draw_soft(12, seed=9)
    expected, slope, _ = truth(z, q, curves.conservative(0.75))
    for logits, target in ((z.t().contiguous().t(), q), (torch.cat([z, z], 1)[:, :CLASSES], q),
                           (z, torch.stack([q, q], -1).flatten(1)[:, ::2])):
        loss, gradient, on_target = ours(logits, target, curves.conservative(0.75))
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        assert row_error(gradient, slope).max() <= 64 * ULP
        assert on_target.shape == q.shape
    target = torch.stack([q, q], -1).flatten(1)[:, ::2].detach().requires_grad_()
    soft_loss(z, target, curves.conservative(0.75)).backward()
    torch.testing.assert_close(target.grad.double(), truth(z, q, curves.conservative(0.75))[2], rtol=1e-4, atol=1e-6)
    images = (tensor.reshape(3, 2, 2, CLASSES).permute(0, 3, 1, 2).contiguous() for tensor in (z, q))
    leaf, target = images
    leaf.requires_grad_()
    loss = curve_loss(leaf, target, curves.conservative(0.75), impl="triton")
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert row_error(leaf.grad.permute(0, 2, 3, 1).flatten(0, 2), slope).max() <= 64 * ULP


def test_operators_keep_their_promises_and_compile_as_one_graph() -> None:
    z, q = draw_soft(5, 7, seed=10)
    arguments = (torch.rand(7), "conservative", [0.75], 0.1)
    torch.library.opcheck(soft_operators.soft_rows, (z.requires_grad_(), q.requires_grad_(), *arguments))
    curve, weight = curves.conservative(0.75), torch.rand(7)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(logits: Tensor, target: Tensor) -> Tensor:
        return curve_loss(2 * logits, target, curve, weight=weight, label_smoothing=0.1, impl="triton") ** 2

    leaf, masses = (tensor.detach().clone().requires_grad_() for tensor in (z, q))
    step(leaf, masses).backward()
    exact, exact_masses = (tensor.detach().double().requires_grad_() for tensor in (z, q))
    loss = reference.soft_loss(2 * exact, exact_masses, curve, weight=weight.double(), label_smoothing=0.1)
    (loss ** 2).backward()
    torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(masses.grad.double(), exact_masses.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_the_output_layer_takes_them_too(reduction: str) -> None:
    q = draw_soft(9, 11, seed=11)[1]
    hidden, weight = torch.randn(9, 6), torch.randn(11, 6)
    found = []
    for impl, dtype in (("triton", torch.float32), ("reference", torch.float64)):
        h, w = (tensor.detach().to(dtype).requires_grad_() for tensor in (hidden, weight))
        loss = linear_curve_loss(h, w, q.to(dtype), curves.focal(2.0), reduction=reduction, impl=impl, chunk_bytes=200)
        loss.sum().backward()
        found.append([tensor.detach().double() for tensor in (loss, h.grad, w.grad)])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft"])
def test_a_divisor_is_in_the_gradient_from_the_start(soft: bool) -> None:
    z, q = draw_soft(7, seed=12, lowest=1e-3, highest=0.99)
    target = q if soft else q.argmax(1)
    for divisor in (5.0, torch.tensor(5.0), torch.tensor(5)):
        for dtype in (torch.float32, torch.float16):
            leaf = z.to(dtype, copy=True).requires_grad_()
            loss = curve_loss(leaf, target, curves.conservative(0.75), divisor=divisor, impl="triton")
            if dtype == torch.float32:
                kept = [t for t in loss.grad_fn.saved_tensors if t is not None and t.shape == z.shape]
                assert len(kept) == (3 if soft else 2)  # the logits, the targets, and the gradient as it is handed over
            loss.backward()
            exact = leaf.detach().double().requires_grad_()
            expected = curve_loss(exact, target.double() if soft else target, curves.conservative(0.75), divisor=5.0)
            expected.backward()
            assert loss.item() == pytest.approx(expected.item(), rel=1e-5 if dtype == torch.float32 else 1e-3)
            assert row_error(leaf.grad, exact.grad).max() <= (64 * ULP if dtype == torch.float32 else 0.02)
    leaf = z.clone().requires_grad_()
    loss = curve_loss(leaf, target, curves.conservative(0.75), divisor=torch.tensor(5.0), impl="triton")
    gradient, = torch.autograd.grad(loss, leaf, create_graph=True)
    gradient.square().sum().backward()
    assert leaf.grad.isfinite().all()


@triton.jit
def _gradient_of_the_largest(out, p, pull, u, u_largest):
    over = pull / (1.0 - p)
    _loss, _factor, base, ratio = row_terms(p, 0.0, pull, over, p, (1.0 - p) / p, u_largest, 0.0, 0.0)
    tl.store(out, at_largest(u, u_largest, base, ratio, pull))


def test_the_rounding_of_a_mass_is_not_multiplied_by_the_certainty() -> None:
    """On a GPU the mass on the largest class and the sum of the masses there differ by a rounding: the product with the
    class weight becomes part of a multiply-add in one of them. At p = 1 - 1e-5 the normal bonus would turn that into an
    error 1e5 times as large."""
    out = torch.zeros(1)
    mass = torch.tensor(0.7)
    for p in (0.3, 0.5, 0.9, 1 - 1e-5):
        found = []
        for sum_of_masses in (mass, torch.nextafter(mass, torch.tensor(1.0))):
            _gradient_of_the_largest[(1,)](out, p, 1.0, mass.item(), sum_of_masses.item())
            found.append(out.item())
        assert found[0] == pytest.approx(-0.7)
        assert found[0] == pytest.approx(found[1], rel=4 * ULP)


def test_rows_that_just_fit_are_capped_only_where_they_need_few_registers() -> None:
    for classes in (4097, 8142, 8192):
        assert soft_tiling_for(classes, cross_entropy=False, lean=True) == Tiling(1, 8192, 8, registers=128)
        assert soft_tiling_for(classes, cross_entropy=False).streamed
    z, q = draw_soft(3, 4100, seed=9)
    for arguments in ({}, {"weight": torch.rand(4100) + 0.5}):
        loss, gradient, _ = ours(z, q, curves.conservative(0.75), reduction="sum", **arguments)
        leaf = z.clone().requires_grad_()  # without a gradient on the targets: the row stays on chip
        soft_loss(leaf, q, curves.conservative(0.75), reduction="sum", **arguments).backward()
        expected, slope, _ = truth(z, q, curves.conservative(0.75), reduction="sum", **arguments)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        for found in (gradient, leaf.grad):
            assert row_error(found, slope).max() <= 64 * ULP
