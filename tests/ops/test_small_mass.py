"""Smoothed labels and soft targets of small batches: as near to float64 as large ones, with all derivatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from encouraging import curve_loss, curves
from encouraging.curves import Curve
from encouraging.curves._cross_entropy import CrossEntropy
from encouraging.curves._log_bonus import Normal
from encouraging.errors import ArgumentError, TargetError
from encouraging.ops import class_sums, reference
from strategies import REDUCTIONS, SEEDS

CLOSED = [curves.cross_entropy(), curves.normal(), curves.normal(eps=0), curves.conservative(0.75),
          curves.conservative(0.5)]
KINDS = ["smoothed", "weighted", "hardly smoothed", "only smoothing", "soft", "soft and weighted", "one-hot"]
EPS = torch.finfo(torch.float32).eps


def general(patch: pytest.MonkeyPatch) -> None:
    """Take the way of a batch of any size."""
    patch.setattr(reference, "plain_mass_loss", lambda *arguments: None)
    patch.setattr(reference, "fits_cache", lambda logits: False)


def loss_and_gradient(logits: Tensor, target: Tensor, curve: Curve, *, small: bool,
                      **how: Any) -> tuple[Tensor, Tensor]:
    with pytest.MonkeyPatch.context() as patch:
        if not small:
            general(patch)
        leaf = logits.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        loss = curve_loss(leaf, target, curve, **how)
        assert ("SmallMass" in type(loss.grad_fn).__name__) == small
        with torch.no_grad():
            assert torch.equal(curve_loss(leaf, target, curve, **how), loss)
        return loss.detach(), torch.autograd.grad((loss * torch.arange(1.0, 1 + loss.numel())).sum(), leaf)[0]


def case(kind: str, size: int, classes: int, seed: int, scale: float) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Logits in float64 that float32 has too, a target, and the arguments. Half of the rows have their label on top."""
    draw = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(size, classes, generator=draw)
    target = torch.randint(classes, (size,), generator=draw)
    target[::2] = logits[::2].argmax(1)
    weight = 0.5 + torch.rand(classes, generator=draw) if "weighted" in kind else None
    smoothing = {"smoothed": 0.1, "weighted": 0.2, "hardly smoothed": 1e-4, "only smoothing": 1.0}.get(kind, 0.0)
    if kind == "one-hot":
        target = F.one_hot(target, classes).float()
    elif "soft" in kind:
        target = torch.randn(size, classes, generator=draw).softmax(1)
    return logits, target, {"weight": weight, "label_smoothing": smoothing}


def double(argument: Any) -> Any:
    return argument.double() if isinstance(argument, Tensor) and argument.is_floating_point() else argument


def rounding(ours: Tensor, exact: Tensor) -> float:
    """The root of the mean square of what is lost, each row in units of its largest number. Masses of two classes
    may cancel to nothing: then what was summed is the measure."""
    size = exact.abs().amax(-1, keepdim=True).clamp(min=0.01)
    return float(((ours - exact) / size).square().mean().sqrt()) / EPS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 10, 300])
@pytest.mark.parametrize("curve", CLOSED, ids=repr)
def test_they_lose_no_more_than_large_ones_and_cross_entropy_no_more_than_torchs(curve, classes, kind):
    for scale in (1.0, 5.0):
        logits, target, how = case(kind, 200, classes, classes, scale)
        how["reduction"] = "none"
        in_double = {name: double(argument) for name, argument in how.items()}
        exact = loss_and_gradient(logits.double(), double(target), curve, small=False, **in_double)
        ours, large = (loss_and_gradient(logits, target, curve, small=small, **how) for small in (True, False))
        leaf = logits.clone().requires_grad_()
        by_torch = F.cross_entropy(leaf, target, **how)
        (slope,) = torch.autograd.grad((by_torch * torch.arange(1.0, 201)).sum(), leaf)
        for mine, theirs, torchs, true in zip(ours, large, (by_torch.detach(), slope), exact, strict=True):
            allowed = rounding(theirs, true)
            if curve == curves.cross_entropy():
                allowed = max(allowed, rounding(torchs, true))
            assert rounding(mine, true) <= 2 * allowed + 0.2


@given(curve=st.sampled_from(CLOSED), kind=st.sampled_from(KINDS), seed=SEEDS, classes=st.integers(2, 6),
       scale=st.sampled_from([1.0, 10.0]), reduction=REDUCTIONS, ignored=st.booleans(),
       odd=st.sampled_from([torch.nan, torch.inf, -torch.inf, 1e300, 0.0]))
def test_in_float64_they_are_the_same(curve, kind, seed, classes, scale, reduction, ignored, odd):
    logits, target, how = case(kind, 6, classes, seed, scale)
    logits, target = logits.double(), double(target)
    if ignored and not target.is_floating_point():
        target[2] = -100
        logits[2, 0] = odd
    how = {name: double(argument) for name, argument in how.items()} | {"reduction": reduction}
    ours, large = (loss_and_gradient(logits, target, curve, small=small, **how) for small in (True, False))
    for mine, theirs in zip(ours, large, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    if ignored and not target.is_floating_point():
        assert (ours[1][2] == 0).all()


@pytest.mark.parametrize("odd", [torch.inf, -torch.inf, torch.nan, 1e30, -1e30, 50.0])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_or_too_far_is_as_in_large_ones(kind, odd):
    for curve in CLOSED:
        logits, target, how = case(kind, 5, 4, 1, 1.0)
        logits[1, 2] = odd
        results = []
        for small in (True, False):
            with pytest.MonkeyPatch.context() as patch:
                if not small:
                    general(patch)
                leaf = logits.clone().requires_grad_()
                loss = curve_loss(leaf, target, curve, **how)
                results.append((loss.detach(), torch.autograd.grad(loss, leaf)[0], loss.grad_fn))
        (*ours, way), (*large, _) = results
        if "SmallMass" in type(way).__name__:  # a logit far below the top is nothing special
            assert odd < 0
            torch.testing.assert_close(ours, large)
        else:
            for mine, theirs in zip(ours, large, strict=True):
                assert torch.equal(mine.nan_to_num(7.0), theirs.nan_to_num(7.0))


def test_classes_without_mass_may_be_at_minus_infinity():
    logits, target, _ = case("soft", 6, 5, 2, 2.0)
    masked = torch.tensor([False, True, False, False, True])
    target, logits = target.masked_fill(masked, 0.0), logits.masked_fill(masked, -torch.inf)
    for curve in CLOSED:
        for reduction in ("mean", "none"):
            ours, large = (loss_and_gradient(logits, target, curve, small=small, reduction=reduction)
                           for small in (True, False))
            assert all(number.isfinite().all() for number in ours)
            torch.testing.assert_close(ours, large)


@pytest.mark.parametrize("kind", KINDS)
def test_order_in_memory_layout_and_the_way_of_asking_change_no_bit(kind):
    logits, target, how = case(kind, 8, 5, 3, 2.0)
    for curve in CLOSED:
        expected = loss_and_gradient(logits, target, curve, small=True, **how)
        strided = loss_and_gradient(logits.T.contiguous().T, target, curve, small=True, **how)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reference, "plain_mass_loss", lambda *arguments: None)
            checked = loss_and_gradient(logits, target, curve, small=True, **how)
        for other in (strided, checked):
            assert all(torch.equal(a, b) for a, b in zip(other, expected, strict=True))
        image = logits.reshape(2, 4, 5).movedim(-1, 1)
        of_image = curve_loss(image, target.reshape(2, 4, 5).movedim(-1, 1) if target.ndim == 2
                              else target.reshape(2, 4), curve, **how)
        assert torch.equal(of_image, expected[0])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_they_are_differentiated_twice_and_backwards_twice(kind, reduction):
    logits, target, how = case(kind, 4, 3, 5, 1.0)
    logits, target = logits.double().requires_grad_(), double(target)
    if not target.is_floating_point():
        target[1] = -100
    how = {name: double(argument) for name, argument in how.items()} | {"reduction": reduction}
    for curve in CLOSED:
        assert torch.autograd.gradcheck(lambda z, curve=curve: curve_loss(z, target, curve, **how), logits)
        assert torch.autograd.gradgradcheck(lambda z, curve=curve: curve_loss(z, target, curve, **how), logits)
        loss = curve_loss(logits, target, curve, **how).sum()
        first, second = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for _ in range(2))
        assert torch.equal(first, second)


@pytest.mark.parametrize("kind", KINDS)
def test_many_upstream_gradients_at_once(kind):
    logits, target, how = case(kind, 4, 3, 6, 1.0)
    logits.requires_grad_()
    for reduction in ("mean", "none"):
        loss = curve_loss(logits, target, curves.conservative(), reduction=reduction, **how)
        upstream = torch.randn(5, *loss.shape)
        (batched,) = torch.autograd.grad(loss, logits, upstream, is_grads_batched=True, retain_graph=True)
        for one, together in zip(upstream, batched, strict=True):
            torch.testing.assert_close(torch.autograd.grad(loss, logits, one, retain_graph=True)[0], together)


def test_a_target_that_was_changed_before_the_backward_pass_is_an_error():
    for curve in CLOSED:
        for kind in ("smoothed", "soft"):
            logits, target, how = case(kind, 4, 3, 7, 1.0)
            loss = curve_loss(logits.requires_grad_(), target, curve, **how)
            target.zero_()
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()


def test_after_inference_mode_it_can_be_differentiated_twice():
    logits, target, how = case("smoothed", 4, 3, 9, 1.0)
    logits.requires_grad_()
    how["label_smoothing"] = 0.0625
    with torch.inference_mode():
        curve_loss(logits, target, curves.normal(), **how)
    (gradient,) = torch.autograd.grad(curve_loss(logits, target, curves.normal(), **how), logits, create_graph=True)
    gradient.square().sum().backward()
    assert logits.grad is not None


def test_what_does_not_fit_is_left_to_the_checks():
    logits, target = torch.randn(2, 3), torch.tensor([0, 2])
    fitting: dict[str, Any] = {"input": logits, "target": target, "curve": curves.normal(), "weight": None,
                               "ignore_index": -100, "reduction": "mean", "label_smoothing": 0.1}
    soft = logits.softmax(1)
    assert reference.plain_mass_loss(**fitting) is not None
    assert reference.plain_mass_loss(**(fitting | {"target": soft})) is not None
    others: list[dict[str, Any]] = [
        {"input": logits.half()}, {"input": logits[:, :0]}, {"input": logits.tolist()},
        {"input": logits.to("meta")}, {"input": logits[None]}, {"target": target.int()}, {"target": target[:1]},
        {"target": soft.double()}, {"target": soft[:1]}, {"target": soft.clone().requires_grad_()},
        {"target": soft, "ignore_index": 1}, {"curve": "normal"}, {"curve": curves.focal()}, {"weight": torch.ones(4)},
        {"weight": torch.ones(3, requires_grad=True)}, {"ignore_index": 1.5}, {"reduction": "avg"},
        {"label_smoothing": 0.0}, {"label_smoothing": 1.5}, {"label_smoothing": torch.nan},
    ]
    for other in others:
        assert reference.plain_mass_loss(**(fitting | other)) is None
    with pytest.raises(TargetError, match="label 3"):
        curve_loss(logits, torch.tensor([0, 3]), curves.normal(), label_smoothing=0.1)
    with pytest.raises(ArgumentError, match="label_smoothing"):
        curve_loss(logits, target, curves.normal(), label_smoothing=1.5)


def test_a_curve_of_ones_own_is_asked_for_its_own_formula():
    @dataclass(frozen=True, repr=False)
    class Steeper(CrossEntropy):
        """Cross-entropy up to p = 1/2, then twice as steep."""

        def value(self, gap: Tensor) -> Tensor:
            return super().value(gap) + torch.where(gap > 0, super().value(gap) - math.log(2), 0.0)

        def pull(self, gap: Tensor) -> Tensor:
            return torch.where(gap > 0, 2.0, 1.0) * super().pull(gap)

    @dataclass(frozen=True, repr=False)
    class Flat(Normal):
        """Minus the gap up to p = 1/2, then nothing."""

        def value(self, gap: Tensor) -> Tensor:
            return torch.relu(-gap)

        def pull(self, gap: Tensor) -> Tensor:
            return (gap < 0).to(gap.dtype)

    for kind in KINDS:
        logits, target, how = case(kind, 6, 4, 11, 3.0)
        logits, target = logits.double().requires_grad_(), double(target)
        how = {name: double(argument) for name, argument in how.items()}
        mass = target if target.is_floating_point() else F.one_hot(target, 4).double()
        mass = (1 - how["label_smoothing"]) * mass + how["label_smoothing"] / 4
        mass = mass if how["weight"] is None else mass * how["weight"]
        for curve in (Steeper(), Flat()):
            loss = curve_loss(logits, target, curve, reduction="sum", **how)
            torch.testing.assert_close(loss, class_sums.mass_values(logits, mass, curve).sum())
            torch.testing.assert_close(torch.autograd.grad(loss, logits)[0],
                                       class_sums.mass_gradient(logits, mass, curve))


def test_no_rows_one_class_and_only_ignored_rows_are_torchs():
    for logits, target in ((torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)),
                           (torch.randn(3, 1), torch.zeros(3, dtype=torch.int64)),
                           (torch.randn(3, 4), torch.full((3,), -100))):
        for reduction in ("mean", "sum", "none"):
            ours = curve_loss(logits, target, curves.cross_entropy(), reduction=reduction, label_smoothing=0.1)
            theirs = F.cross_entropy(logits, target, reduction=reduction, label_smoothing=0.1)
            torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("kind", ["smoothed", "soft"])
def test_a_loss_that_is_kept_holds_nothing_of_its_batch(kind: str) -> None:
    """What a backward pass needs is freed by it, as after torch's own."""
    logits = torch.randn(4, 300, requires_grad=True)
    target = torch.softmax(torch.randn(4, 300), 1) if kind == "soft" else torch.tensor([0, 1, 2, 3])
    loss = curve_loss(logits, target, curves.encouraging(0.75), label_smoothing=0.0 if kind == "soft" else 0.1)
    node = loss.grad_fn
    assert type(node).__name__ == "_SmallMassLossBackward"
    loss.backward()
    left = [value for value in vars(node).values() if isinstance(value, Tensor | tuple)]
    assert sum(each.numel() for value in left for each in (value if isinstance(value, tuple) else (value,))
               if isinstance(each, Tensor)) <= 1
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_logits_that_numpy_cannot_look_at() -> None:
    z, y = torch.randn(4, 300), torch.tensor([0, 1, 2, 3])
    seen = curve_loss(-torch._neg_view(z), y, curves.encouraging(0.75), label_smoothing=0.1)
    turned = curve_loss(torch._neg_view(z), y, curves.encouraging(0.75), label_smoothing=0.1)
    torch.testing.assert_close(seen, curve_loss(z, y, curves.encouraging(0.75), label_smoothing=0.1))
    torch.testing.assert_close(turned, curve_loss(-z, y, curves.encouraging(0.75), label_smoothing=0.1))
