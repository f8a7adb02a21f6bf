"""Calls that repeat, with few logits and with many: the same numbers, whatever has changed between the calls."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from encouraging import curve_loss, curves
from encouraging.ops import repeat
from kernel_cases import MARKS, ULP, draw, row_error, truth

pytestmark = MARKS
EL = curves.conservative(0.75)


def test_a_call_that_repeats_gives_the_same_and_sees_what_has_changed(few: bool) -> None:
    repeat.forget()
    z, y = draw(12, seed=6)
    results = []
    for labels in (y, y, y.roll(1), y):
        leaf = z.clone().requires_grad_()
        curve_loss(leaf, labels, EL, impl="triton").backward()
        results.append(leaf.grad)
    assert len(repeat._remembered) == 1
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[3])
    assert not torch.equal(results[0], results[2])
    with torch.no_grad():
        assert not curve_loss(leaf, y, EL, impl="triton").requires_grad
    leaf = z.clone().requires_grad_()
    first, = torch.autograd.grad(curve_loss(leaf, y, EL, impl="triton"), leaf, create_graph=True)
    first.square().sum().backward()
    exact = z.double().requires_grad_()
    once, = torch.autograd.grad(curve_loss(exact, y, EL), exact, create_graph=True)
    once.square().sum().backward()
    assert (row_error(leaf.grad, exact.grad) <= 1e-4).all()
    both = curve_loss(leaf, y, EL, impl="triton")
    several, = torch.autograd.grad(both, leaf, torch.tensor([1.0, 2.0]), is_grads_batched=True)
    torch.testing.assert_close(several[0], results[0], rtol=4 * ULP, atol=0)
    torch.testing.assert_close(several[1], 2 * results[0], rtol=4 * ULP, atol=0)
    wrong = torch.full_like(y, -100)
    assert curve_loss(z, wrong, EL, impl="triton").isnan()
    with pytest.raises(ValueError, match="label_smoothing"):
        curve_loss(z, y, EL, label_smoothing=False, impl="triton")
    with pytest.raises((TypeError, ValueError), match="curve"):
        curve_loss(z, y, "normal", impl="triton")


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_and_soft_targets_repeat_too(soft: bool, reduction: str, dtype: torch.dtype, few: bool) -> None:
    repeat.forget()
    z, y = draw(12, seed=8, dtype=dtype)
    target = torch.softmax(torch.randn(z.shape, generator=torch.Generator().manual_seed(1)), 1) if soft else y
    other = target.roll(1, 0)
    found = []
    for labels in (target, target, other, target):
        leaf = z.clone().requires_grad_()
        loss = curve_loss(leaf, labels, EL, reduction=reduction, impl="triton")
        loss.sum().backward()
        found.append((loss.detach(), leaf.grad))
    assert len(repeat._remembered) == 1
    assert all(loss.dtype == (torch.float32 if soft else dtype) for loss, _ in found)
    # The kernel writes a sum in 16 bits itself from the second call on, which the interpreter cuts off.
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0 if dtype == torch.float32 else 2.0**-7, atol=0)
    assert torch.equal(found[0][1], found[1][1])
    assert all(torch.equal(a, b) for a, b in zip(found[1], found[3], strict=True))
    assert not torch.equal(found[0][1], found[2][1])
    if soft:  # a gradient for the targets is asked for now
        wanted = target.clone().requires_grad_()
        curve_loss(z.clone().requires_grad_(), wanted, EL, reduction=reduction, impl="triton").sum().backward()
        assert wanted.grad is not None


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("given", ["weight", "divisor", "both"])
def test_weights_and_divisors_repeat_too_and_are_read_anew(given: str, smoothing: float, soft: bool, few: bool) -> None:
    repeat.forget()
    z, y = draw(5, seed=9)
    target = torch.softmax(torch.randn(z.shape, generator=torch.Generator().manual_seed(1)), 1) if soft else y
    weights, divisors = torch.rand(2, z.shape[1]) + 0.5, torch.tensor([7.0, 11.0])
    for turn in (0, 1, 0):
        weight = weights[turn] if given != "divisor" else None
        divisor = divisors[turn].clone() if given != "weight" else None
        leaf, exact = z.clone().requires_grad_(), z.double().requires_grad_()
        loss = curve_loss(leaf, target, EL, weight, label_smoothing=smoothing, divisor=divisor, impl="triton")
        first, = torch.autograd.grad(loss, leaf, create_graph=True)
        first.sum().backward()
        loss = curve_loss(leaf, target, EL, weight, label_smoothing=smoothing, divisor=divisor, impl="triton")
        found, = torch.autograd.grad(loss, leaf)
        wide = None if weight is None else weight.double()
        expected = curve_loss(exact, target.double() if soft else y, EL, wide, label_smoothing=smoothing,
                              divisor=divisor, impl="reference")
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-7, check_dtype=False)
        assert (row_error(found, torch.autograd.grad(expected, exact)[0]) <= 1e-5).all()
        assert (row_error(first, found) <= 1e-5).all()
    assert len(repeat._remembered) == 1


def test_weights_and_divisors_that_are_not_read_as_they_lie_are_not_remembered() -> None:
    repeat.forget()
    z, y = draw(12, seed=9)
    weight = torch.rand(z.shape[1])
    for other in (weight.double(), weight.repeat_interleave(2)[::2], weight.clone().requires_grad_(),
                  torch.nn.Parameter(weight)):
        with torch.no_grad():  # else the kernels refuse weights that learn
            found = curve_loss(z, y, EL, other, impl="triton")
        torch.testing.assert_close(found, curve_loss(z, y, EL, other.detach().float(), impl="reference"), rtol=1e-3,
                                   atol=0)
    for divisor in (7, 7.0, torch.tensor(7), torch.tensor(7.0, dtype=torch.float64)):
        torch.testing.assert_close(curve_loss(z, y, EL, divisor=divisor, impl="triton"),
                                   curve_loss(z, y, EL, reduction="sum", impl="reference") / 7)
    assert not repeat._remembered
    for _ in range(2):
        assert curve_loss(z, y, EL, weight, impl="triton").isfinite()
        with pytest.raises(ValueError, match="weight"):
            curve_loss(z, y, EL, weight[1:], impl="triton")
        with pytest.raises(ValueError, match="divisor"):
            curve_loss(z, y, EL, divisor=torch.ones(1), impl="triton")
        with pytest.raises(ValueError, match="divisor"):
            curve_loss(z, y, EL, divisor=torch.ones(()), reduction="sum", impl="triton")
    assert len(repeat._remembered) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_repeated_loss_of_16_bits_has_their_type(dtype: torch.dtype, few: bool) -> None:
    repeat.forget()
    z, y = draw(12, seed=7, dtype=dtype)
    found = []
    for _ in range(3):
        leaf = z.clone().requires_grad_()
        loss = curve_loss(leaf, y, EL, impl="triton")
        loss.backward(torch.tensor(3.0, dtype=dtype))
        found.append((loss.detach(), leaf.grad))
    assert all(loss.dtype == dtype for loss, _ in found)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert curve_loss(z, y, EL, impl="triton").dtype == torch.float32
    assert curve_loss(z, y, EL, impl="triton").dtype == dtype


def test_the_gradient_of_a_repeated_call_is_scaled_in_its_own_memory_but_for_a_graph_that_is_kept(few: bool) -> None:
    repeat.forget()
    z, y = draw(12, seed=11)
    expected = truth(z, y, EL, torch.tensor(3.0))[1]
    for kept in (False, False, True, False, True):
        leaf = z.clone().requires_grad_()
        loss = curve_loss(leaf, y, EL, impl="triton")
        for _ in range(2 if kept else 1):
            leaf.grad = None
            loss.backward(torch.tensor(3.0), retain_graph=kept)
            assert (row_error(leaf.grad, expected) <= 64 * ULP).all()
        if kept:
            batch, = torch.autograd.grad(loss, leaf, torch.tensor([3.0, 6.0]), is_grads_batched=True)
            assert (row_error(batch[1], 2 * expected) <= 64 * ULP).all()
    assert len(repeat._remembered) == 1
