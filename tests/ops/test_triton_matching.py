"""Norm matching and curves of one's own by the kernels, in Triton's interpreter."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("triton")

from encouraging import curve_loss, curves
from encouraging.curves import Curve
from encouraging.errors import ArgumentError
from encouraging.ops import reference
from encouraging.ops.triton import Tiling, hard_loss, use_tiling
from encouraging.ops.triton.matching import norm_ratio
from kernel_cases import CLASSES, CURVES, MARKS, SIXTEEN, SPLIT, STREAMED, ULP, draw, row_error

pytestmark = MARKS
TILINGS = pytest.mark.parametrize("tiling", [SIXTEEN, STREAMED, SPLIT, Tiling(1, 64, 4)],
                                  ids=["whole", "streamed", "split", "one row"])
TWINS = {
    "value and pull": (
        curves.custom(lambda gap: F.softplus(-gap, threshold=40), lambda gap: torch.sigmoid(-gap), "own"),
        curves.cross_entropy()),
    "phi of p": (curves.from_probability(lambda p: -p.log() - 0.5 * p**2, "own"), curves.power(2.0, 0.5)),
}


def both(logits: Tensor, target: Tensor, curve: Curve, twin: Curve, upstream: Tensor | None = None,
         **arguments: object) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Loss and gradient of the curve by the kernels, and of its twin by the reference in float64."""
    found = []
    for dtype, impl, one in ((logits.dtype, "triton", curve), (torch.float64, "reference", twin)):
        leaf = logits.detach().to(dtype).clone().requires_grad_()
        given = {name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
                 for name, value in arguments.items()}
        loss = curve_loss(leaf, target if not target.is_floating_point() else target.to(dtype), one, impl=impl, **given)
        loss.backward(None if upstream is None else upstream.to(loss.dtype))
        found.append((loss.detach().double(), leaf.grad))
    return found[0], found[1]


@TILINGS
@pytest.mark.parametrize("curve", [c for c in CURVES if c != curves.normal(eps=0)], ids=repr)
def test_labels_are_matched_with_two_reads_and_one_write(curve: Curve, tiling: Tiling) -> None:
    z, y = draw(6, seed=1)
    y[2] = -100
    weight = torch.rand(CLASSES) + 0.5
    for arguments in ({}, {"weight": weight, "reduction": "sum"}, {"reduction": "none"}):
        upstream = torch.rand(6) + 0.5 if arguments.get("reduction") == "none" else torch.tensor(3.0)
        with use_tiling(tiling):
            (loss, gradient), (expected, slope) = both(z, y, curve, curve, upstream, match_norm=True, **arguments)
        torch.testing.assert_close(loss, expected, rtol=64 * ULP, atol=256 * ULP)
        assert row_error(gradient, slope).max() <= 256 * ULP
        assert (gradient[2] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_gradient_has_the_norm_of_cross_entropys(dtype: torch.dtype) -> None:
    z, y = draw(16, seed=2, dtype=dtype)
    norms = []
    for curve, match in ((curves.cross_entropy(), False), (curves.normal(), True)):
        leaf = z.clone().requires_grad_()
        curve_loss(leaf, y, curve, reduction="sum", match_norm=match, impl="triton").backward()
        norms.append(leaf.grad.double().norm().item())
    assert norms[1] == pytest.approx(norms[0], rel=1e-5 if dtype == torch.float32 else 1e-2)


def test_well_classified_batches_keep_their_factor() -> None:
    """Squares of these lengths are 0 in float32."""
    z, y = torch.tensor([[60.0, 0.0, 1.0], [0.0, 58.0, -2.0]]), torch.tensor([0, 1])
    (_, gradient), (_, slope) = both(z, y, curves.normal(), curves.normal(), match_norm=True)
    assert row_error(gradient, slope).max() <= 256 * ULP


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_soft_and_smoothed_targets_are_matched(smoothing: float) -> None:
    z, y = draw(6, seed=3)
    soft = 0.7 * F.one_hot(y, CLASSES).float() + 0.3 / CLASSES
    weight = torch.rand(CLASSES) + 0.5
    for target in (y, soft):
        (loss, gradient), (expected, slope) = both(z, target, curves.conservative(0.75), curves.conservative(0.75),
                                                   match_norm=True, label_smoothing=smoothing, weight=weight)
        torch.testing.assert_close(loss, expected, rtol=64 * ULP, atol=256 * ULP)
        assert row_error(gradient, slope).max() <= 256 * ULP


def test_the_factor_is_1_where_both_norms_are_0() -> None:
    assert norm_ratio(torch.zeros(2, 5)) == 1
    assert norm_ratio(torch.zeros(2, 0)) == 1
    ignored = torch.full((3,), -100)
    loss = curve_loss(torch.randn(3, 4), ignored, curves.normal(), reduction="sum", match_norm=True, impl="triton")
    assert loss == 0
    assert norm_ratio(torch.tensor([[3e-30, 4e-30], [0.0, 1e-30]])).item() == pytest.approx(5.0)


@TILINGS
@pytest.mark.parametrize("which", TWINS)
def test_a_curve_of_ones_own_is_its_twin(which: str, tiling: Tiling) -> None:
    own, twin = TWINS[which]
    z, y = draw(6, seed=4, highest=0.999)
    y[3] = -100
    z[3, 1] = math.nan  # must not matter
    weight = torch.rand(CLASSES) + 0.5
    for arguments in ({}, {"weight": weight, "reduction": "sum"}, {"reduction": "none"}, {"match_norm": True},
                      {"match_norm": True, "weight": weight}):
        upstream = torch.rand(6) + 0.5 if arguments.get("reduction") == "none" else torch.tensor(3.0)
        clean = torch.where(torch.arange(6)[:, None] == 3, 0.0, z)
        with use_tiling(tiling):
            (loss, gradient), _ = both(z, y, own, twin, upstream, **arguments)
            _, (expected, slope) = both(clean, y, twin, twin, upstream, **arguments)
        torch.testing.assert_close(loss, expected, rtol=64 * ULP, atol=256 * ULP)
        assert row_error(gradient, slope).max() <= 1024 * ULP  # p is rounded before phi sees it
        assert (gradient[3] == 0).all()


def test_own_curves_over_images_16_bits_and_unknown_labels() -> None:
    own, twin = TWINS["value and pull"]
    z, y = draw(12, 5, seed=5)
    images, labels = z.reshape(3, 2, 2, 5).permute(0, 3, 1, 2).contiguous(), y.reshape(3, 2, 2)
    (loss, gradient), (expected, slope) = both(images, labels, own, twin)
    torch.testing.assert_close(loss, expected, rtol=64 * ULP, atol=64 * ULP)
    torch.testing.assert_close(gradient.double(), slope, rtol=1e-4, atol=1e-8)
    rows = curve_loss(images, labels, own, reduction="none", impl="triton")
    assert rows.shape == labels.shape
    for dtype in (torch.bfloat16, torch.float16):
        (_, gradient), (_, slope) = both(z.to(dtype), y, own, twin, torch.tensor(16.0))
        assert gradient.dtype == dtype
        assert (gradient.double() - slope).abs().max() <= 1.01 * torch.finfo(dtype).eps * slope.abs().max()
    y[2] = 77
    loss = curve_loss(z, y, own, reduction="none", impl="triton")
    assert loss.isnan().tolist() == [i == 2 for i in range(12)]


@pytest.mark.parametrize("classes", [2, 10, 64, 65, 300])
def test_short_rows_are_made_again_and_long_ones_kept(classes: int) -> None:
    own, twin = TWINS["value and pull"]
    z, y = draw(9, classes, seed=15)
    y[4] = -100
    weight = torch.rand(classes) + 0.5
    for arguments in ({}, {"weight": weight}, {"reduction": "sum"}, {"divisor": torch.tensor(7.0)}):
        (loss, gradient), (expected, slope) = both(z, y, own, twin, torch.tensor(-3.0), **arguments)
        torch.testing.assert_close(loss, expected, rtol=64 * ULP, atol=256 * ULP)
        assert row_error(gradient, slope).max() <= 256 * ULP
        assert (gradient[4] == 0).all()
    leaf = z.clone().requires_grad_()
    loss = curve_loss(leaf, y, own, impl="triton")  # torch 2.11 frees what it saved together with the loss
    kept = loss.grad_fn.saved_tensors[3]
    assert kept.numel() == (1 if 4 * classes <= 256 else 4 * 9 + 1)
    several, = torch.autograd.grad(curve_loss(leaf, y, own, impl="triton"), leaf, torch.tensor([1.0, 2.0]),
                                   is_grads_batched=True)
    torch.testing.assert_close(several[1], 2 * several[0], rtol=4 * ULP, atol=0)


def test_second_derivatives_of_own_curves() -> None:
    own, twin = TWINS["value and pull"]
    z, y = draw(5, 4, seed=6, lowest=0.01, highest=0.99)
    found = []
    for curve, dtype, impl in ((own, torch.float32, "triton"), (twin, torch.float64, "reference")):
        leaf = z.detach().to(dtype).requires_grad_()
        gradient, = torch.autograd.grad(curve_loss(leaf, y, curve, impl=impl), leaf, create_graph=True)
        gradient.square().sum().backward()
        found.append(leaf.grad.double())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("which", TWINS)
def test_own_curves_compile_as_one_graph(which: str) -> None:
    own, twin = TWINS[which]
    z, y = draw(6, 7, seed=7, highest=0.999)
    y[1] = -100

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(logits: Tensor, match: bool) -> Tensor:
        return curve_loss(2 * logits, y, own, impl="triton", match_norm=match)

    for match in (False, True):
        leaf = z.clone().requires_grad_()
        step(leaf, match).backward()
        exact = z.double().requires_grad_()
        reference_loss = curve_loss(2 * exact, y, twin, match_norm=match)
        reference_loss.backward()
        torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-3, atol=1e-6)


def test_own_curves_need_labels_without_smoothing() -> None:
    own, _ = TWINS["value and pull"]
    z, y = draw(3, 4, seed=8)
    for target, smoothing in ((y, 0.1), (z.softmax(1), 0.0)):
        with pytest.raises(ArgumentError, match="labels without smoothing"):
            curve_loss(z, target, own, label_smoothing=smoothing, impl="triton")
        expected = reference.hard_loss(z, y, own, label_smoothing=0.1) if smoothing else (
            reference.soft_loss(z, target, own))
        torch.testing.assert_close(curve_loss(z, target, own, label_smoothing=smoothing), expected)


def test_matching_keeps_by_products() -> None:
    z, y = draw(5, seed=9)
    loss, stats = hard_loss(z, y, curves.normal(), stats=True, match_norm=True)
    assert (stats.argmax == z.argmax(1)).all()
    torch.testing.assert_close(loss, curve_loss(z, y, curves.normal(), match_norm=True), rtol=1e-5, atol=1e-5)
