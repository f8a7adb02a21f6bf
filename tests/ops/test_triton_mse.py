"""The squared error and its mirror by the kernels, in Triton's interpreter."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("triton")

from encouraging import mirror_mse_loss
from encouraging.ops import dispatch
from encouraging.ops.reduction import reduce
from encouraging.ops.squares import squared_errors
from encouraging.ops.triton import Tiling, mse_loss, use_tiling
from kernel_cases import CLASSES, MARKS, SIXTEEN, SPLIT, STREAMED, ULP, draw, row_error

pytestmark = MARKS
TILINGS = pytest.mark.parametrize("tiling", [SIXTEEN, STREAMED, SPLIT], ids=["whole", "streamed", "split"])


def truth(logits: Tensor, target: Tensor, upstream: Tensor | None = None, *, bonus: bool, link: str = "softmax",
          reduction: str = "mean", divisor: object = None) -> tuple[Tensor, Tensor]:
    z = logits.detach().double().requires_grad_()
    hot = target.double() if target.is_floating_point() else F.one_hot(target.long(), z.shape[1]).double()
    loss = reduce(squared_errors(z, hot, bonus, link), reduction, divisor)
    loss.backward(None if upstream is None else upstream.double())
    return loss.detach(), z.grad


def ours(logits: Tensor, target: Tensor, upstream: Tensor | None = None, **arguments: object) -> tuple[Tensor, Tensor]:
    z = logits.detach().clone().requires_grad_()
    loss = mse_loss(z, target, **arguments)
    loss.backward(upstream)
    return loss.detach(), z.grad


@TILINGS
@pytest.mark.parametrize("bonus", [False, True])
def test_labels_and_probabilities_at_any_confidence(bonus: bool, tiling: Tiling) -> None:
    rows = 12 if tiling is SIXTEEN else 5
    z, y = draw(rows, seed=1)
    z[2, [3, 8]] = z[2].max() + 2  # two on top
    for target in (y, y.int(), F.one_hot(y, CLASSES).float(), torch.randn(rows, CLASSES).softmax(1)):
        with use_tiling(tiling):
            loss, gradient = ours(z, target, bonus=bonus, reduction="sum")
        expected, slope = truth(z, target, bonus=bonus, reduction="sum")
        assert loss.item() == pytest.approx(expected.item(), rel=16 * ULP, abs=1e-6)
        # Where p is near 1 the gradient is as small as 1 - p, which is only as good as the gap that float32 can hold.
        assert row_error(gradient, slope).max() <= 128 * ULP
        upstream = torch.rand(rows, CLASSES) + 0.5
        with use_tiling(tiling):
            loss, gradient = ours(z, target, upstream, bonus=bonus, reduction="none")
        expected, slope = truth(z, target, upstream, bonus=bonus, reduction="none")
        torch.testing.assert_close(loss.double(), expected, rtol=64 * ULP, atol=8 * ULP)
        assert row_error(gradient, slope).max() <= 128 * ULP


@TILINGS
@pytest.mark.parametrize("bonus", [False, True])
def test_equal_upstream_gradients_cost_no_digits(bonus: bool, tiling: Tiling) -> None:
    """A mistake with p = 1e-6 beside two classes that share the rest: its gradient is 4e-6 of terms near 1."""
    z = torch.zeros(8, CLASSES).uniform_(-40, -30, generator=torch.Generator().manual_seed(2))
    z[:, 0], z[:, 1], z[:, 2] = torch.linspace(0, 7, 8), torch.linspace(-1, 6, 8) + 0.3, torch.linspace(-14, -7, 8)
    target = torch.full((8,), 2)
    upstream = torch.full((8, CLASSES), 0.7)
    with use_tiling(tiling):
        _, gradient = ours(z, target, upstream, bonus=bonus, reduction="none")
    _, slope = truth(z, target, upstream, bonus=bonus, reduction="none")
    assert row_error(gradient[:, 2:], slope[:, 2:]).max() <= 16 * ULP
    if bonus:  # without it the two others have a gradient of their own, which is not small
        assert row_error(gradient, slope).max() <= 16 * ULP


def test_means_divisors_types_and_layouts() -> None:
    z, y = draw(9, seed=2)
    for divisor in (None, 5.0, torch.tensor(4.0)):
        _, slope = truth(z, y, torch.tensor(3.0), bonus=True, divisor=divisor)
        for logits in (z, z.t().contiguous().t(), torch.cat([z, z], 1)[:, 1:][:, :CLASSES].copy_(z)):
            _, gradient = ours(logits, y, torch.tensor(3.0), bonus=True, divisor=divisor)
            assert row_error(gradient, slope).max() <= 128 * ULP
    for dtype in (torch.bfloat16, torch.float16):
        _, slope = truth(z.to(dtype), y, torch.tensor(512.0), bonus=False)
        _, gradient = ours(z.to(dtype), y, torch.tensor(512.0), bonus=False)
        assert gradient.dtype == dtype
        spacing = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        size = slope.abs().amax(1).clamp(min=1e-30)
        assert (row_error(gradient, slope) <= 1.01 * torch.finfo(dtype).eps + 128 * ULP + spacing / size).all()


@pytest.mark.parametrize("classes", [1, 2, 3, 10, 17, 100, 513])
def test_the_tilings_in_use_are_right(classes: int) -> None:
    z, y = draw(21, classes, seed=3)
    loss, gradient = ours(z, y, bonus=True)
    expected, slope = truth(z, y, bonus=True)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
    assert row_error(gradient, slope).max() <= 256 * ULP


@pytest.mark.parametrize("bonus", [False, True])
def test_the_sigmoid_link(bonus: bool) -> None:
    z, y = draw(6, 9, seed=4)
    for target in (y, torch.rand(6, 9)):
        loss, gradient = ours(z, target, bonus=bonus, link="sigmoid")
        expected, slope = truth(z, target, bonus=bonus, link="sigmoid")
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
        torch.testing.assert_close(gradient.double(), slope, rtol=64 * ULP, atol=1e-8)


@TILINGS
def test_unknown_labels_infinite_logits_and_nothing(tiling: Tiling) -> None:
    z, y = draw(4, seed=5)
    y[1], y[2] = CLASSES, -1
    for link in ("softmax", "sigmoid"):
        with use_tiling(tiling):
            losses, gradient = ours(z, y, torch.ones(4, CLASSES), bonus=True, reduction="none", link=link)
            total, _ = ours(z, y, bonus=True, link=link)
        assert losses.isnan().any(1).tolist() == [False, True, True, False]
        assert gradient.isnan().any(1).tolist() == [False, True, True, False]
        assert total.isnan()
    masked = torch.tensor([[1.0, -math.inf, 0.5, -math.inf]])
    with use_tiling(tiling):
        _, gradient = ours(masked, torch.tensor([0]), bonus=True)
    _, slope = truth(masked[:, [0, 2]], torch.tensor([0]), bonus=True, divisor=4.0)
    torch.testing.assert_close(gradient[:, [0, 2]].double(), slope, rtol=1e-5, atol=1e-8)
    assert (gradient[:, [1, 3]] == 0).all()
    empty = torch.zeros(0, 3)
    assert ours(empty, empty, bonus=True, reduction="sum")[0] == 0
    assert ours(empty, torch.zeros(0, dtype=torch.long), bonus=True)[0].isnan()


def test_kept_graphs_batches_and_second_derivatives() -> None:
    z, y = draw(5, 6, seed=6, lowest=0.01, highest=0.99)
    _, slope = truth(z, y, bonus=True)
    leaf = z.clone().requires_grad_()
    loss = mse_loss(leaf, y, bonus=True)
    for upstream in (1.0, 3.0, 0.0):
        gradient, = torch.autograd.grad(loss, leaf, torch.tensor(upstream), retain_graph=True)
        torch.testing.assert_close(gradient.double(), upstream * slope, rtol=1e-5, atol=1e-8)
    rows = mse_loss(leaf, y, bonus=True, reduction="none")
    above = torch.randn(2, 5, 6)
    batch, = torch.autograd.grad(rows, leaf, above, is_grads_batched=True)
    for upstream, gradient in zip(above, batch, strict=True):
        _, expected = truth(z, y, upstream, bonus=True, reduction="none")
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-4, atol=1e-6)
    for reduction in ("mean", "none"):
        found = []
        for dtype in (torch.float32, torch.float64):
            leaf = z.detach().to(dtype, copy=True).requires_grad_()
            loss = mse_loss(leaf, y, bonus=True, reduction=reduction) if dtype == torch.float32 else (
                reduce(squared_errors(leaf, F.one_hot(y, 6).double(), True), reduction))
            gradient, = torch.autograd.grad(loss.square().sum(), leaf, create_graph=True)
            gradient.square().sum().backward()
            found.append(leaf.grad.double())
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_the_loss_takes_the_kernels_where_they_apply(link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = draw(12, 5, seed=7)
    images, labels = z.reshape(3, 2, 2, 5).permute(0, 3, 1, 2).contiguous(), y.reshape(3, 2, 2)
    for reduction in ("mean", "none"):
        expected = mirror_mse_loss(images, labels, link=link, reduction=reduction)
        with monkeypatch.context() as patch:
            patch.setattr(dispatch, "takes_elementwise", lambda *a, **k: True)
            found = mirror_mse_loss(images, labels, link=link, reduction=reduction)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@TILINGS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_sum_of_the_losses_has_the_gradient_of_the_sum(dtype: torch.dtype, tiling: Tiling) -> None:
    z, y = draw(6, seed=7, dtype=dtype)
    each, whole = z.clone().requires_grad_(), z.clone().requires_grad_()
    with use_tiling(tiling):
        rows = mse_loss(each, y, bonus=True, reduction="none", dtype=dtype)
        assert rows.dtype == dtype
        (rows.float().sum() * 0.5).backward()
        loss = mse_loss(whole, y, bonus=True, reduction="sum")
        several, = torch.autograd.grad(loss, whole, torch.tensor([1.0, 0.5]), retain_graph=True, is_grads_batched=True)
        loss.backward(torch.tensor(0.5))
    torch.testing.assert_close(each.grad, whole.grad, rtol=torch.finfo(dtype).eps, atol=6e-8)
    torch.testing.assert_close(several[1], whole.grad, rtol=2 * torch.finfo(dtype).eps, atol=6e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_sums_have_the_type_that_is_asked_for_and_can_be_differentiated_twice(link: str, soft: bool,
                                                                              dtype: torch.dtype) -> None:
    z, y = draw(7, 9, seed=6)
    target = torch.rand(7, 9) if soft else y
    for divisor in (None, torch.tensor(3.0)):
        leaf = z.to(dtype).requires_grad_()
        loss = mse_loss(leaf, target, bonus=True, link=link, divisor=divisor, dtype=dtype)
        expected, slope = truth(leaf, target, bonus=True, link=link, divisor=divisor)
        assert loss.dtype == dtype
        assert loss.item() == pytest.approx(expected.item(), rel=torch.finfo(dtype).eps, abs=1e-6)
        (first,) = torch.autograd.grad(loss, leaf, torch.tensor(2.0, dtype=dtype), create_graph=True)
        (again,) = torch.autograd.grad(loss, leaf, torch.tensor(2.0, dtype=dtype), retain_graph=True)
        near = 2 * torch.finfo(dtype).eps + 1e-5
        torch.testing.assert_close(first.double(), 2 * slope, rtol=near, atol=1e-6)
        torch.testing.assert_close(again.double(), 2 * slope, rtol=near, atol=1e-6)
        first.float().square().sum().backward()
        assert leaf.grad.isfinite().all()


def test_unknown_labels_in_rows_longer_than_a_block_of_the_sigmoid_link() -> None:
    classes = 1100
    z, y = torch.randn(4, classes), torch.tensor([5, -1, classes, 1099])
    losses, gradient = ours(z, y, torch.ones(4, classes), bonus=True, link="sigmoid", reduction="none")
    assert losses[1:3].isnan().all()
    assert gradient[1:3].isnan().all()
    expected, slope = truth(z[[0, 3]], y[[0, 3]], torch.ones(2, classes), bonus=True, link="sigmoid", reduction="none")
    torch.testing.assert_close(losses[[0, 3]].double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient[[0, 3]].double(), slope, rtol=1e-5, atol=1e-8)
