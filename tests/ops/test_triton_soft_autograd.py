"""Soft targets by the kernels in autograd: upstream gradients, second derivatives, divisors and compiled code."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton")

from encouraging import curve_loss, curves, linear_curve_loss
from encouraging.ops import reference
from encouraging.ops.triton import soft_loss, soft_operators
from kernel_cases import MARKS, ULP, row_error
from soft_kernel_cases import draw_soft, ours, truth

pytestmark = MARKS


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
