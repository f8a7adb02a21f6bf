"""With ``match_norm``, the gradient of any curve has the norm of the gradient of cross-entropy."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from encouraging import curve_loss, curves, encouraging_loss
from encouraging.ops import reference
from paper_formulas import ALL_CURVES
from strategies import CURVES, SEEDS, cases, rows_with_gaps

CE = curves.cross_entropy()


def scaled_norm(gradient: Tensor) -> float:
    """The Euclidean norm, right where squares underflow."""
    return math.hypot(*gradient.double().flatten().tolist())


@settings(max_examples=150)
@given(case=cases(high=40.0), curve=CURVES)
def test_with_match_norm_the_gradient_has_the_norm_of_cross_entropys_on_any_batch(case, curve):
    input, target, arguments = case
    assume(input.numel())

    def gradient(curve, **more):
        z = input.clone().requires_grad_()
        return torch.autograd.grad(curve_loss(z, target, curve, **arguments, **more).sum(), z)[0]

    spread_out = target.is_floating_point() or "label_smoothing" in arguments
    # Over all classes 1 - 2p adds up to a constant: smoothed, nothing but rounding may be left of its gradient.
    assume(not (spread_out and curve == curves.square(True)))
    ce, plain, matched = gradient(CE), gradient(curve), gradient(curve, match_norm=True)
    # Where the classes' parts cancel altogether, as for two classes that share all of it, nothing is left to be scaled.
    assume(not (spread_out and 0 < scaled_norm(plain) < 1e-8 * scaled_norm(ce)))
    if scaled_norm(plain) > 0:
        # Near a smoothed loss's minimum the classes' parts cancel, and each was rounded.
        assert scaled_norm(matched) == pytest.approx(scaled_norm(ce), rel=1e-8 if spread_out else 1e-12)
    else:
        assert scaled_norm(matched) == 0
    if arguments["reduction"] == "none":
        return
    both = torch.stack([plain.flatten(), matched.flatten()])
    assert torch.linalg.matrix_rank(both, rtol=1e-9) <= 1  # one number for the whole batch: the direction stays


@given(gaps=st.lists(st.floats(-80, 80), min_size=1, max_size=5), curve=CURVES, seed=SEEDS)
def test_match_norm_holds_in_float32_where_squares_underflow(gaps, curve, seed):
    logits, label = rows_with_gaps(torch.tensor(gaps, dtype=torch.float64), 3, seed, spread=1.0)
    logits = logits.float()

    def norm(curve, **more):
        z = logits.clone().requires_grad_()
        return scaled_norm(torch.autograd.grad(curve_loss(z, label, curve, **more), z)[0])

    ce, plain = norm(CE), norm(curve)
    assume(min(ce, plain) > 1e-30)  # smaller gradients are themselves denormal
    factor = reference.match_norm_factor(logits, label, curve).item()
    assume(1e-30 < factor < 1e30)
    assert norm(curve, match_norm=True) == pytest.approx(ce, rel=1e-5)  # 80 units of the gap's rounding


def test_match_norm_of_labels_is_the_formula():
    logits, label = rows_with_gaps(torch.linspace(-5, 9, 12, dtype=torch.float64), 5, 3)
    weight = torch.tensor([0.5, 1.0, 2.0, 1.5, 0.1], dtype=torch.float64)
    curve = curves.conservative(0.5)
    rivals = logits.scatter(1, label[:, None], -torch.inf).softmax(1)
    gap = torch.logit(logits.softmax(1).gather(1, label[:, None])[:, 0])
    n2, w = 1 + rivals.square().sum(1), weight[label]
    formula = ((w**2 * gap.neg().sigmoid() ** 2 * n2).sum() / (w**2 * curve.pull(gap) ** 2 * n2).sum()).sqrt()
    ratio = (curve_loss(logits, label, curve, weight, match_norm=True) / curve_loss(logits, label, curve, weight))
    torch.testing.assert_close(ratio, formula, rtol=1e-11, atol=0)


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_match_norm_is_1_where_both_norms_are_0(curve):
    if curve.pull(torch.tensor(torch.inf)) == 0:
        single, label = torch.tensor([[2.0], [5.0]]), torch.tensor([0, 0])
        plain = curve_loss(single, label, curve, reduction="none")
        assert torch.equal(curve_loss(single, label, curve, reduction="none", match_norm=True), plain)
    ignored = torch.full((2,), -100)
    assert reference.match_norm_factor(torch.randn(2, 3), ignored, curve) == 1
    assert reference.match_norm_factor(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), curve) == 1


def test_match_norm_is_detached():
    logits, label = rows_with_gaps(torch.linspace(-5, 9, 12, dtype=torch.float64), 5, 3)
    logits.requires_grad_()
    matched = torch.autograd.grad(encouraging_loss(logits, label, log_end=1.0, match_norm=True), logits)[0]
    plain = torch.autograd.grad(encouraging_loss(logits, label, log_end=1.0), logits)[0]
    factor = reference.match_norm_factor(logits, label, curves.normal())
    torch.testing.assert_close(matched, factor * plain, rtol=1e-14, atol=0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("curve", [curves.normal(), curves.focal(2.0)], ids=repr)
def test_match_norm_is_a_constant_to_learned_class_weights(curve, smoothing):
    logits, label = rows_with_gaps(torch.linspace(-5, 9, 12, dtype=torch.float64), 5, 3)
    weight = torch.linspace(0.5, 1.5, 5, dtype=torch.float64, requires_grad=True)
    arguments = {"weight": weight, "label_smoothing": smoothing}
    matched, plain = (torch.autograd.grad(curve_loss(logits, label, curve, match_norm=match, **arguments), weight)[0]
                      for match in (True, False))
    factor = reference.match_norm_factor(logits, label, curve, **arguments)
    torch.testing.assert_close(matched, factor * plain, rtol=1e-12, atol=0)


def optimum(curve: curves.Curve, mass: Tensor) -> Tensor:
    """Logits of two classes at which the pulls on both balance, by bisection in float64."""
    low, high = torch.tensor(-20.0).double(), torch.tensor(20.0).double()
    for _ in range(200):
        middle = (low + high) / 2
        rises = mass[0] * curve.pull(middle) > mass[1] * curve.pull(-middle)
        low, high = torch.where(rises, middle, low), torch.where(rises, high, middle)
    return torch.stack([low, torch.zeros_like(low)])


@pytest.mark.parametrize("curve", [curves.conservative(0.75), curves.power(2.0, 1.0), curves.poly(2.0)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["soft", "smoothed"])
def test_where_the_curves_gradient_vanishes_nothing_is_scaled(curve, dtype, kind):
    mass = torch.tensor([0.7, 0.3], dtype=torch.float64)
    z = optimum(curve, mass).to(dtype)[None].requires_grad_()
    if kind == "soft":
        loss = functools.partial(curve_loss, z, mass.to(dtype)[None], curve)
    else:
        loss = functools.partial(curve_loss, z, torch.tensor([0]), curve, label_smoothing=0.6)
    plain, matched = (torch.autograd.grad(loss(match_norm=match), z)[0] for match in (False, True))
    ce = torch.autograd.grad(F.cross_entropy(z, mass.to(dtype)[None]), z)[0]
    assert ce.norm() > 1e4 * plain.norm()  # cross-entropy has its optimum elsewhere
    assert torch.equal(plain, matched)


def test_a_small_gradient_that_is_exact_is_scaled_as_before():
    """A label's gradient is no difference: however small, its direction is known."""
    for gap in (10.0, 18.0):
        z = torch.tensor([[gap, 0.0, -1.0]], requires_grad=True)
        for target in (torch.tensor([0]), torch.tensor([[1.0, 0.0, 0.0]])):
            matched = torch.autograd.grad(curve_loss(z, target, curves.focal(2.0), match_norm=True), z)[0]
            ce = torch.autograd.grad(curve_loss(z, target, curves.cross_entropy()), z)[0]
            torch.testing.assert_close(matched.norm(), ce.norm(), rtol=1e-5, atol=0)
