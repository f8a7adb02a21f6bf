"""Gradients that the backward pass makes from what the forward pass has kept of every row, or again from the logits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from encouraging import curve_loss, curves
from encouraging.curves import Curve
from encouraging.ops.triton import Tiling, hard_loss, mse_loss, soft_later_launch, soft_loss, use_tiling
from encouraging.ops.triton.curves import constants
from encouraging.ops.triton.later_launch import later_for
from encouraging.ops.triton.problem import Problem
from encouraging.ops.triton.tiling import gradient_tile, narrowed, tiling_for
from kernel_cases import CURVES, MARKS, SPLIT, STREAMED, ULP, draw, gaps_of, row_error, truth
from soft_kernel_cases import draw_soft, ours_for_logits, plain_error
from soft_kernel_cases import truth as soft_truth

pytestmark = MARKS


@pytest.mark.parametrize("tiling", [None, STREAMED, SPLIT], ids=["whole", "streamed", "split"])
@pytest.mark.parametrize("curve", [*CURVES, curves.aggressive(0.3), curves.aggressive(0.5)], ids=repr)
def test_soft_targets_from_their_states_are_float64s(curve: Curve, tiling: Tiling | None,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    classes = 133 if tiling is None else 37
    monkeypatch.setattr(soft_later_launch, "short_row", 0)
    z, q = draw_soft(10, classes, seed=3)
    z[4, [1, 5]] = z[4].max() + 1  # two on top
    upstream = torch.randn(10)
    with use_tiling(tiling):
        loss, gradient = ours_for_logits(z, q, curve, upstream, reduction="none")
    expected, slope, _ = soft_truth(z, q, curve, upstream, reduction="none")
    torch.testing.assert_close(loss.double(), expected, rtol=2e-6, atol=2e-6)
    theirs = plain_error(z, q, curve, soft_truth(z, q, curve, reduction="sum")[1])
    assert (row_error(gradient, slope) <= (2 * theirs).clamp(min=32 * ULP)).all()


@pytest.mark.parametrize("tiling", [None, STREAMED, SPLIT], ids=["whole", "streamed", "split"])
@pytest.mark.parametrize("curve", [curves.cross_entropy(), curves.aggressive(0.5), curves.focal(2.0)], ids=repr)
def test_a_row_without_probabilities_has_no_loss_though_it_has_no_mass(curve: Curve, tiling: Tiling | None) -> None:
    """Its gradient is NaN, and so is the loss of torch: a loss of 0 would hide where that came from."""
    z, q = draw_soft(5, seed=8)
    z[0, 3], z[1, 4], z[2] = float("nan"), float("inf"), -float("inf")
    q[:4] = 0
    with use_tiling(tiling):
        loss, gradient = ours_for_logits(z, q, curve, torch.ones(5), reduction="none")
    broken = F.cross_entropy(z, q, reduction="none").isnan()
    assert broken.tolist() == [True, True, True, False, False]
    assert torch.equal(loss.isnan(), broken)
    assert loss[3] == 0
    assert torch.equal(gradient.isnan().all(1), broken)
    assert (gradient[3] == 0).all()


@pytest.mark.parametrize("classes", [5, 20, 133, 258, 700])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_float16_of_any_length_is_float64s_but_for_one_rounding(classes: int, reduction: str) -> None:
    z, q = draw_soft(7, classes, seed=4)
    z, q = z.clamp(-20, 20).half(), q.half()
    y = torch.randint(classes, (7,))
    y[2] = -100
    upstream = torch.linspace(1, 2, 7) if reduction == "none" else torch.tensor(3.0)
    for curve in (curves.cross_entropy(), curves.conservative(0.75), curves.focal(2.48), curves.aggressive(0.5)):
        _, gradient = ours_for_logits(z, q, curve, upstream, reduction=reduction)
        expected = soft_truth(z, q, curve, upstream, reduction=reduction)[1]
        torch.testing.assert_close(gradient.double(), expected, rtol=2e-3, atol=2e-5)
        leaf = z.clone().requires_grad_()
        hard_loss(leaf, y, curve, reduction=reduction).backward(upstream)
        expected = truth(z, y, curve, upstream, reduction=reduction)[1]
        torch.testing.assert_close(leaf.grad.double(), expected, rtol=2e-3, atol=2e-5)
        assert (leaf.grad[2] == 0).all()


@pytest.mark.parametrize("classes", [3, 40, 133, 300])
def test_labels_in_narrow_blocks_are_float64s(classes: int) -> None:
    z, y = draw(20, classes, seed=5)
    upstream = torch.randn(20)
    for curve in (curves.cross_entropy(), curves.focal(2.48), curves.conservative(0.75)):
        leaf = z.clone().requires_grad_()
        loss = hard_loss(leaf, y, curve, reduction="none")
        loss.backward(upstream)
        expected, slope = truth(z, y, curve, upstream, reduction="none")
        size = gaps_of(z, y).abs().clamp(min=1)
        assert ((loss.double() - expected).abs() <= 6 * ULP * size).all()
        assert (row_error(leaf.grad, slope) <= 4 * ULP * size.clamp(min=4)).all()
        same = torch.zeros_like(z, requires_grad=True)
        hard_loss(same, y, curve, reduction="none").sum().backward()  # one upstream gradient, of stride 0
        torch.testing.assert_close(
            same.grad.double(), truth(same, y, curve, reduction="sum")[1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("classes", [133, 1001])
def test_weights_smoothing_and_gaps_in_memory(classes: int) -> None:
    z, q = draw_soft(6, classes, seed=6)
    wide = torch.zeros(6, classes + 3)
    wide[:, :classes] = z
    weight = torch.rand(classes) + 0.5
    upstream, curve = torch.rand(6), curves.conservative(0.75)
    arguments = {"weight": weight, "label_smoothing": 0.1, "reduction": "none"}
    leaf = wide.clone().requires_grad_()
    soft_loss(leaf[:, :classes], q, curve, **arguments).backward(upstream)
    slope = soft_truth(z, q, curve, upstream, **arguments)[1]
    assert row_error(leaf.grad[:, :classes], slope).max() <= 64 * ULP
    y = q.argmax(1)
    leaf = wide.clone().requires_grad_()
    curve_loss(leaf[:, :classes], y, curve, impl="triton", **arguments).backward(upstream)
    slope = truth(z, y, curve, upstream, **arguments)[1]
    assert row_error(leaf.grad[:, :classes], slope).max() <= 64 * ULP


@pytest.mark.parametrize("tiling", [None, STREAMED, SPLIT], ids=["whole", "streamed", "split"])
@pytest.mark.parametrize("soft", [True, False])
def test_squared_errors_from_their_states(soft: bool, tiling: Tiling | None) -> None:
    z, q = draw_soft(5, 260, seed=7)
    z = z.clamp(-20, 20).half()
    target = q.half() if soft else q.argmax(1)
    leaf, double = z.clone().requires_grad_(), z.double().requires_grad_()
    with use_tiling(tiling):
        loss = mse_loss(leaf, target, bonus=False, reduction="sum")
        loss.backward(torch.tensor(2.0))
    hot = target.double() if soft else F.one_hot(target, 260).double()
    p = double.softmax(1)
    ((hot - p) ** 2).sum().mul(2).backward()
    torch.testing.assert_close(leaf.grad.double(), double.grad, rtol=2e-3, atol=2e-5)
    if not soft:
        leaf = z.clone().requires_grad_()
        with use_tiling(tiling):
            mse_loss(leaf, target.index_fill(0, torch.tensor([1]), 999), bonus=False, reduction="sum").backward()
        assert leaf.grad[1].isnan().all()
        assert not leaf.grad[[0, 2, 3, 4]].isnan().any()


@pytest.mark.parametrize("classes", [3, 5, 7, 9, 15])
def test_few_smoothed_classes_have_few_elements_per_thread(classes: int) -> None:
    """Odd rows are read one by one, and 32 such elements spilled up to a thousand registers."""
    z, y = draw(300, classes, seed=classes)
    problem = Problem(z, y, None, constants(curves.focal(2.0)), -100, 0.1)
    chosen = later_for(problem, torch.ones(300), torch.empty_like(z))._constants
    assert chosen["ROWS"] * chosen["BLOCK"] <= 16 * 32 * chosen["num_warps"]
    arguments = {"reduction": "none", "label_smoothing": 0.1}
    leaf, upstream = z.clone().requires_grad_(), torch.rand(300) + 0.5
    hard_loss(leaf, y, curves.focal(2.0), **arguments).backward(upstream)
    _, slope = truth(z, y, curves.focal(2.0), upstream, **arguments)
    assert row_error(leaf.grad, slope).max() <= 64 * ULP


@pytest.mark.parametrize("vector", [1, 2, 4, 8])
def test_tiles_cover_every_class_with_powers_of_two(vector: int) -> None:
    for classes in range(2, 5000):
        rows, block, repeat = gradient_tile(classes, vector)
        assert rows & (rows - 1) == 0
        assert block & (block - 1) == 0
        assert repeat == 1 or (repeat - 1) * block < classes <= repeat * block
        tiling = narrowed(tiling_for(classes), classes, vector)
        assert tiling.repeat == 1 or (tiling.repeat - 1) * tiling.block < classes <= tiling.repeat * tiling.block
