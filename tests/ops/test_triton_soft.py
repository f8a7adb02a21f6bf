"""Soft targets by the kernels, in Triton's interpreter: every curve, gradients on both sides, edges and layouts."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

import triton
from triton import language as tl

from encouraging import curve_loss, curves
from encouraging.curves import Curve
from encouraging.ops import reference
from encouraging.ops.triton import Tiling, loss_and_gradient_, soft_loss, use_tiling
from encouraging.ops.triton.soft_rows import at_largest, row_terms
from encouraging.ops.triton.tiling import soft_tiling_for
from kernel_cases import CLASSES, CURVES, MARKS, SIXTEEN, SPLIT, STREAMED, TAILS, ULP, row_error
from soft_kernel_cases import draw_soft, ours, plain_error, truth

pytestmark = MARKS
TILINGS = pytest.mark.parametrize("tiling", [SIXTEEN, STREAMED, SPLIT], ids=["whole", "streamed", "split"])


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
    z, q = F.pad(z, (2, 0), value=-40.0), F.pad(q, (2, 0))
    for curve in (curves.normal(eps=0), curves.aggressive(0.5, eps=0)):
        expected, slope, _ = truth(z, q, curve, reduction="sum")
        for tiling in (Tiling(4, 16, 4), Tiling(1, 16, 4, streamed=True),
                       Tiling(1, 4, 1, streamed=True, segments=2)):
            with use_tiling(tiling):
                loss, gradient, _ = ours(z, q, curve, reduction="sum")
            assert loss.item() == pytest.approx(expected.item(), rel=4 * ULP)
            assert row_error(gradient, slope).max() <= 16 * ULP


@pytest.mark.parametrize("tiling", [Tiling(8, 32, 4), Tiling(1, 16, 4, streamed=True), SPLIT],
                         ids=["whole", "streamed", "split"])
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
