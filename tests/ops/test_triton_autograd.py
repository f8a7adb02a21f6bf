"""The losses by the kernels in autograd: upstream gradients, gradients in place, second derivatives, compiled code."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from encouraging import curves
from encouraging.errors import ArgumentError, DerivativeError
from encouraging.ops import reference
from encouraging.ops import triton as kernels
from encouraging.ops.triton import hard_loss, loss_and_gradient_, operators, use_tiling
from kernel_cases import CLASSES, MARKS, ULP, WHOLE, draw, ours, row_error, truth

pytestmark = MARKS


def test_an_upstream_gradient_other_than_one_and_a_graph_that_is_kept() -> None:
    z, y = draw(32, seed=8)
    leaf = z.clone().requires_grad_()
    with use_tiling(WHOLE):
        loss = hard_loss(leaf, y, curves.conservative(0.75))
    _, slope = truth(z, y, curves.conservative(0.75))
    handed_out = []
    for upstream in (1.0, 3.0, 0.0, -0.5, 1.0):
        gradient, = torch.autograd.grad(loss, leaf, torch.tensor(upstream), retain_graph=True)
        handed_out.append((upstream, gradient))
    last, = torch.autograd.grad(loss, leaf, torch.tensor(1024.0))
    handed_out.append((1024.0, last))
    for upstream, gradient in handed_out:  # none of them has changed since
        torch.testing.assert_close(gradient.double(), upstream * slope, rtol=1e-5, atol=1e-9)
    with use_tiling(WHOLE):
        _, gradient = ours(z, y, curves.conservative(0.75), torch.tensor(math.inf))
    assert gradient.isinf()[slope.float() != 0].all()


def test_the_gradient_made_ahead_is_handed_over_without_a_copy() -> None:
    z, y = draw(8, seed=9)
    for shape in (z, z.t().contiguous().t()):
        leaf = shape.detach().requires_grad_()
        with use_tiling(WHOLE):
            loss = hard_loss(leaf, y, curves.conservative(0.75))
        buffer = loss.grad_fn.saved_tensors[3]
        address = buffer.data_ptr()
        del buffer
        loss.backward()
        assert leaf.grad.data_ptr() == address


def test_batched_upstream_gradients() -> None:
    z, y = draw(16, seed=10)
    for reduction in ("mean", "none"):
        leaf = z.clone().requires_grad_()
        with use_tiling(WHOLE):
            loss = hard_loss(leaf, y, curves.conservative(0.75), reduction=reduction)
        above = torch.randn(3, *loss.shape)
        gradients, = torch.autograd.grad(loss, leaf, above, is_grads_batched=True)
        for upstream, gradient in zip(above, gradients, strict=True):
            _, slope = truth(z, y, curves.conservative(0.75), upstream, reduction=reduction)
            torch.testing.assert_close(gradient.double(), slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_second_derivatives_are_the_references(reduction: str) -> None:
    z, y = draw(6, 5, seed=11)
    found = []
    for op, dtype in ((hard_loss, torch.float32), (reference.hard_loss, torch.float64)):
        leaf = z.detach().clone().to(dtype).requires_grad_()
        loss = op(leaf, y, curves.conservative(0.75), reduction=reduction, label_smoothing=0.1).square().sum()
        gradient, = torch.autograd.grad(loss, leaf, create_graph=True)
        (gradient.square().sum() + loss).backward()
        found.append(leaf.grad.double())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_ignored_rows_stay_zero_under_an_infinite_upstream_gradient() -> None:
    z, _ = draw(2, 5, seed=33)
    _, gradient = ours(z, torch.tensor([0, -100]), curves.normal(), torch.tensor(math.inf))
    assert (gradient[1] == 0).all()
    assert gradient[0].isinf().all()


def test_without_gradient_none_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = draw(8, seed=18)
    launched = []
    original = kernels.autograd.loss_sum
    monkeypatch.setattr(kernels.autograd, "loss_sum", lambda *a, **k: (launched.append(k), original(*a, **k))[1])
    with use_tiling(WHOLE):
        hard_loss(z, y, curves.normal())
        with torch.no_grad():
            hard_loss(z.requires_grad_(), y, curves.normal())
    assert [call.get("grad") for call in launched] == [None, None]


def test_in_place_gradients_are_seen_by_autograd() -> None:
    z, y = draw(8, seed=19)
    weight = torch.eye(CLASSES).requires_grad_()
    _, slope = truth(z, y, curves.conservative(0.75))
    for view in (False, True):
        logits = z @ weight
        if view:
            logits = logits.view(8, CLASSES)
        with use_tiling(WHOLE):
            hard_loss(logits, y, curves.conservative(0.75), inplace=True).backward()
        assert row_error(logits.detach(), slope).max() <= 16 * ULP
        torch.testing.assert_close(weight.grad.double(), z.double().t() @ slope, rtol=1e-4, atol=1e-5)
        weight.grad = None

        logits = z @ weight
        before = logits.square().sum()
        passed = logits.view(8, CLASSES) if view else logits
        with use_tiling(WHOLE):
            loss = hard_loss(passed, y, curves.conservative(0.75), inplace=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            (loss + before).backward()

        logits = z @ weight
        passed = logits.view(8, CLASSES) if view else logits
        with use_tiling(WHOLE):
            loss = hard_loss(passed, y, curves.conservative(0.75), inplace=True)
        with pytest.raises(DerivativeError, match="overwritten"):
            (loss + logits.sum()).backward()


def test_in_place_is_refused_on_rows_that_overlap() -> None:
    windows = (torch.randn(20, requires_grad=True) * 1).unfold(0, 5, 2)[:4]
    with pytest.raises(ArgumentError, match="same number in memory"):
        hard_loss(windows, torch.arange(4), curves.normal(), inplace=True)
    with pytest.raises(ArgumentError, match="same number in memory"):
        loss_and_gradient_(windows.detach(), torch.arange(4), curves.normal())
    every_other = (torch.randn(4, 10, requires_grad=True) * 1)[:, ::2]
    hard_loss(every_other, torch.arange(4), curves.normal(), inplace=True).backward()


def test_a_kept_graph_over_logits_with_gaps_writes_into_memory_of_its_own() -> None:
    """A padded vocabulary: the gradient has the gaps of the logits that it was written over."""
    z, y = torch.randn(8, 16), torch.arange(8) % 9
    with use_tiling(WHOLE):
        plain = z.clone().requires_grad_()
        hard_loss(plain[:, :9], y, curves.conservative(0.75)).backward(torch.tensor(3.0))
        leaf = z.clone().requires_grad_()
        hidden = leaf * 1
        loss = hard_loss(hidden[:, :9], y, curves.conservative(0.75), inplace=True)
        for _ in range(2):
            (gradient,) = torch.autograd.grad(loss, leaf, torch.tensor(3.0), retain_graph=True)
            torch.testing.assert_close(gradient, plain.grad)


def test_in_place_is_refused_where_it_cannot_be() -> None:
    z, y = draw(4, seed=20)
    leaf = z.clone().requires_grad_()
    with pytest.raises(ArgumentError, match="leaf"):
        hard_loss(leaf, y, curves.normal(), inplace=True)
    with pytest.raises(ArgumentError, match="leaf"):
        hard_loss(leaf.view(4, -1), y, curves.normal(), inplace=True)
    with pytest.raises(ArgumentError, match="same number in memory"):
        loss_and_gradient_(z[:1].expand(4, -1), y, curves.normal())
    logits = leaf * 1
    with use_tiling(WHOLE):
        loss = hard_loss(logits, y, curves.normal(), inplace=True)
    with pytest.raises(DerivativeError, match="inplace=False"):
        torch.autograd.grad(loss, leaf, create_graph=True)


def test_operators_keep_their_promises() -> None:
    z, y = draw(5, 7, seed=22)
    smooth = (y, torch.rand(7), "conservative", [0.75], -100, 0.1)
    plain = (y, None, "normal", [1e-5], -100, 0.0)
    torch.library.opcheck(operators.curve_rows, (z.requires_grad_(), *smooth))
    strided = torch.randn(7, 5).t().requires_grad_()
    quick = ("test_schema", "test_faketensor")
    torch.library.opcheck(operators.curve_rows, (strided, *plain), test_utils=quick)
    state = operators.curve_rows(strided.detach(), *plain)[1]
    torch.library.opcheck(operators.curve_rows_gradient, (torch.randn(5), strided.detach(), y, None, state, *plain[2:]),
                          test_utils=quick)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_compiles_as_one_graph(reduction: str) -> None:
    z, y = draw(6, 11, seed=23)
    weight = torch.rand(11)
    curve = curves.conservative(0.75)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(logits: Tensor) -> Tensor:
        loss = hard_loss(2 * logits, y, curve, weight=weight, reduction=reduction, label_smoothing=0.1)
        return (loss * loss).sum()

    leaf = z.clone().requires_grad_()
    step(leaf).backward()
    exact = z.double().requires_grad_()
    loss = reference.hard_loss(2 * exact, y, curve, weight=weight.double(), reduction=reduction, label_smoothing=0.1)
    (loss * loss).sum().backward()
    torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)
