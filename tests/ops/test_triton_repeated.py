"""Calls that repeat, on every path: the second call takes what the first has worked out, and must see what is new."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from encouraging import curve_loss, curves, mirror_mse_loss, sigmoid_curve_loss
from encouraging.ops import repeat
from encouraging.ops.triton import autograd
from kernel_cases import MARKS, draw
from repeated_calls import DIVISOR, DTYPES, EACH, EL, OWN, ROWS, SOFT, WEIGHT, kernels

pytestmark = MARKS
Loss = Callable[[Tensor, Tensor, str], Tensor]  # of logits, labels and impl


def _labels(**arguments: object) -> Loss:
    curve = arguments.pop("curve", EL)
    return lambda z, y, impl: curve_loss(z, y, curve, **arguments, impl=impl)


PATHS: dict[str, Loss] = {
    "mean": _labels(),
    "weighted": _labels(weight=WEIGHT),
    "weighted, 16 bits": _labels(weight=WEIGHT.bfloat16()),
    "weighted and smoothed, 16 bits": _labels(weight=WEIGHT.half(), label_smoothing=0.1),
    "none": _labels(reduction="none"),
    "none, weighted, 16 bits": _labels(reduction="none", weight=WEIGHT.bfloat16()),
    "none, smoothed": _labels(reduction="none", label_smoothing=0.1),
    "matched": _labels(match_norm=True, curve=curves.normal()),
    "matched, weighted": _labels(match_norm=True, weight=WEIGHT, reduction="sum"),
    "matched, divisor": _labels(match_norm=True, divisor=DIVISOR),
    "matched, none": _labels(match_norm=True, reduction="none"),
    "matched, smoothed": _labels(match_norm=True, label_smoothing=0.1),
    "own": _labels(curve=OWN),
    "own, weighted, 16 bits": _labels(curve=OWN, weight=WEIGHT.bfloat16()),
    "own, divisor": _labels(curve=OWN, divisor=DIVISOR),
    "own, none": _labels(curve=OWN, reduction="none", weight=WEIGHT),
    "own, matched": _labels(curve=OWN, match_norm=True),
    "soft": lambda z, y, impl: curve_loss(z, SOFT, EL, impl=impl),
    "soft, weighted, 16 bits": lambda z, y, impl: curve_loss(z, SOFT, EL, WEIGHT.bfloat16(), impl=impl),
    "soft, divisor": lambda z, y, impl: curve_loss(z, SOFT, EL, divisor=DIVISOR, impl=impl),
    "soft, none": lambda z, y, impl: curve_loss(z, SOFT, EL, reduction="none", impl=impl),
    "soft, matched": lambda z, y, impl: curve_loss(z, SOFT, EL, match_norm=True, impl=impl),
    "sigmoid": lambda z, y, impl: sigmoid_curve_loss(z, SOFT, EL),
    "sigmoid, indices": lambda z, y, impl: sigmoid_curve_loss(z, y, EL, negative_curve=curves.focal(2.0), alpha=0.25),
    "sigmoid, factors": lambda z, y, impl: sigmoid_curve_loss(z, SOFT, EL, EACH, pos_weight=WEIGHT, divisor=DIVISOR),
    "sigmoid, none": lambda z, y, impl: sigmoid_curve_loss(z, y, EL, WEIGHT, "none"),
    "mse": lambda z, y, impl: mirror_mse_loss(z, y),
    "mse, divisor": lambda z, y, impl: mirror_mse_loss(z, y, divisor=DIVISOR),
}


def ours(name: str, z: Tensor, y: Tensor) -> Tensor:
    with kernels():
        return PATHS[name](z, y, "triton")


def reference(name: str, z: Tensor, y: Tensor) -> Tensor:
    return PATHS[name](z, y, "reference")


def upstream_of(loss: Tensor) -> Tensor:
    return torch.linspace(0.5, 2.0, max(1, loss.numel()), dtype=loss.dtype).reshape(loss.shape)


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 1e-4, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 4 * torch.finfo(dtype).eps,
                                                                      "atol": torch.finfo(dtype).eps / 8}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PATHS)
def test_a_repeated_call_is_the_references_and_sees_what_has_changed(name: str, dtype: torch.dtype,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    repeat.forget()
    monkeypatch.setattr(autograd, "few_bytes", 16 << 20 if dtype == torch.float32 else 0)
    z, y = draw(ROWS, seed=6, dtype=dtype)
    first = 0
    for shift in (0, 0, 1):
        leaf, other = (z.roll(shift, 0).clone().requires_grad_() for _ in range(2))
        loss, expected = ours(name, leaf, y), reference(name, other, y)
        assert loss.dtype == expected.dtype
        torch.testing.assert_close(loss, expected, **tolerance(dtype))
        loss.backward(upstream_of(loss))
        expected.backward(upstream_of(expected))
        torch.testing.assert_close(leaf.grad, other.grad, **tolerance(dtype))
        with torch.no_grad():
            torch.testing.assert_close(ours(name, leaf, y), loss.detach(), **tolerance(dtype))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert ours(name, leaf, y).dtype == torch.float32
        first = first or len(repeat._remembered)
        assert len(repeat._remembered) == first > 0


@pytest.mark.parametrize("name", PATHS)
def test_derivatives_of_a_repeated_call(name: str) -> None:
    repeat.forget()
    z, y = draw(ROWS, seed=7, lowest=1e-3, highest=1 - 1e-3)
    for _ in range(2):
        leaf, other = (z.clone().requires_grad_() for _ in range(2))
        loss, expected = ours(name, leaf, y), reference(name, other, y)
        above = upstream_of(loss)
        once, = torch.autograd.grad(loss, leaf, above, retain_graph=True)
        kept = once.clone()
        again, = torch.autograd.grad(loss, leaf, above, retain_graph=True)
        torch.testing.assert_close(again, kept)
        assert torch.equal(once, kept)
        batch, = torch.autograd.grad(loss, leaf, torch.stack([above, 2 * above]), is_grads_batched=True,
                                     retain_graph=True)
        torch.testing.assert_close(batch, torch.stack([kept, 2 * kept]))
        curved = []
        for value, x in ((loss, leaf), (expected, other)):
            slope, = torch.autograd.grad(value, x, above, create_graph=True)
            curved.append(torch.autograd.grad(slope.square().sum(), x)[0])
        torch.testing.assert_close(*curved, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", PATHS)
def test_saved_tensors_that_come_back_elsewhere(name: str) -> None:
    """Hooks on saved tensors give back copies, whose rows lie closer than those of the forward pass."""
    repeat.forget()
    z, y = draw(ROWS, seed=8)
    wide, gradients = torch.cat([z, z.roll(1)], 1), []
    for hooked in (True, True, False, False, True):
        leaf = wide.clone().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(
                lambda tensor: tensor.clone(memory_format=torch.contiguous_format) if hooked else tensor,  # noqa: B023
                lambda tensor: tensor):
            loss = ours(name, leaf[:, :z.shape[1]], y)
        loss.backward(upstream_of(loss))
        gradients.append(leaf.grad)
    for each in gradients[1:]:
        torch.testing.assert_close(each, gradients[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", PATHS)
def test_nothing_is_held_behind_the_backward_pass(name: str) -> None:
    z, y = draw(ROWS, seed=9)
    for _ in range(3):
        leaf = z.clone().requires_grad_()
        logits = 1 * leaf
        loss = ours(name, logits, y)
        loss.backward(upstream_of(loss))
        watched = weakref.ref(logits)
        del logits
        gc.collect()
        assert watched() is None  # though the loss is still there
        assert loss.numel()


def test_logits_without_gradients_are_the_same_call_whether_they_require_one_or_not() -> None:
    z, y = draw(ROWS, 37, seed=8)
    for name in ("sigmoid", "sigmoid, none", "soft", "mean", "own"):
        with torch.no_grad():
            first = ours(name, z.clone().requires_grad_(), y)
        second = ours(name, z.clone(), y)
        third = ours(name, z.clone().requires_grad_().detach(), y)
        assert torch.equal(first, second)
        assert torch.equal(first, third)
