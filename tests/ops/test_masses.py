"""Closed sums over all classes against the plain formulas."""

from __future__ import annotations

import math
import time

import pytest
import torch
from torch import Tensor

from encouraging import curve_loss, curves
from encouraging.ops import class_sums
from encouraging.ops.masses import LabelMass, closed_rows_with_gradient

CURVES = [curves.cross_entropy(), curves.normal(), curves.normal(eps=0), curves.conservative(0.75),
          curves.conservative(0.5)]
ROWS = 40


def draw(classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows at any confidence: right and wrong by up to 30, undecided between two, with equal logits on top, alike."""
    g = torch.Generator().manual_seed(classes)
    z = 2 * torch.randn(ROWS, classes, generator=g, dtype=torch.float64)
    label = torch.randint(classes, (ROWS, 1), generator=g)
    z[:10].scatter_add_(1, label[:10], torch.linspace(1, 30, 10, dtype=torch.float64)[:, None])
    z[10:20].scatter_add_(1, (label[10:20] + 1) % classes, torch.linspace(1, 30, 10, dtype=torch.float64)[:, None])
    z[20:24, :2] = 9.0
    z[24:28].scatter_(1, label[24:28], 9.0)
    z[24:28, 0] = 9.0
    z[28] = 0.0
    return z.to(dtype), label


def mass_of(kind: str, classes: int, dtype: torch.dtype) -> Tensor:
    g = torch.Generator().manual_seed(7)
    if kind == "number":
        return torch.tensor(0.1 / classes, dtype=dtype)
    mass = torch.rand((classes,) if kind == "row" else (ROWS, classes), generator=g, dtype=torch.float64)
    mass[..., 1::3] = 0.0
    return (mass / classes).to(dtype)


@pytest.mark.parametrize("kind", ["number", "row", "matrix"])
@pytest.mark.parametrize("spiked", [False, True], ids=["spread", "with a label"])
@pytest.mark.parametrize("classes", [2, 3, 10, 257])
@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_closed_sums_are_the_open_ones(curve, classes, spiked, kind):
    for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
        z, label = draw(classes, dtype)
        mass = mass_of(kind, classes, dtype)
        spike = LabelMass(label, torch.full((ROWS, 1), 0.9, dtype=dtype)) if spiked else None
        loss, gradient = closed_rows_with_gradient(z, mass, curve, spike)
        whole = mass.double().expand(z.shape)
        if spike is not None:
            whole = whole.scatter_add(1, label, spike.mass.double())
        expected, slope = (of(z.double(), whole, curve) for of in (class_sums.mass_values, class_sums.mass_gradient))
        size = whole.sum(1) * 30  # the largest gap
        assert ((loss.double() - expected).abs() <= bound * size).all()
        # Masses that pull against each other leave a small difference: what is summed is the measure.
        assert ((gradient.double() - slope).abs().amax(1) <= bound * (slope.abs().amax(1) + whole.sum(1))).all()


@pytest.mark.parametrize("kind", ["row", "matrix"])
def test_a_class_of_no_mass_adds_nothing_also_at_minus_infinity(kind):
    z, _ = draw(10, torch.float64)
    z[:, 1] = -math.inf  # of no mass
    mass = mass_of(kind, 10, torch.float64)
    loss, gradient = closed_rows_with_gradient(z, mass, curves.conservative())
    assert loss.isfinite().all()
    torch.testing.assert_close(loss, class_sums.mass_values(z, mass.expand(z.shape), curves.conservative()))
    assert gradient.isfinite().all()
    z[:, 0] = -math.inf  # of some
    assert (closed_rows_with_gradient(z, mass, curves.conservative())[0] == math.inf).all()


def test_a_confident_top_keeps_its_digits():
    z = torch.tensor([[25.0, 0.0, -3.0]], dtype=torch.float32)
    onehot = torch.tensor([[1.0, 0.0, 0.0]])
    for curve in CURVES:
        _, gradient = closed_rows_with_gradient(z, onehot, curve)
        exact = class_sums.mass_gradient(z.double(), onehot.double(), curve)
        torch.testing.assert_close(gradient.double(), exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("smoothing", [1e-30, 1e-40, 1e-46, 5e-324])
@pytest.mark.parametrize("curve", [curves.normal(), curves.cross_entropy()], ids=repr)
def test_a_smoothing_that_has_decayed_to_nothing_is_none(curve, smoothing):
    logits = torch.randn(60000, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    label = torch.arange(60000) % 5
    for weight in (None, torch.ones(5)):
        ours, plain = (torch.autograd.grad(curve_loss(logits, label, curve, weight, label_smoothing=s),
                                           logits)[0] for s in (smoothing, 0.0))
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("kind", ["number", "matrix"])
def test_among_many_classes_the_top_one_is_found_for_logits_that_need_a_gradient(kind):
    """Numpy, which finds it, refuses those."""
    z, label = draw(300, torch.float32)
    mass = mass_of(kind, 300, torch.float32)
    leaf = z.clone().requires_grad_()
    with torch.no_grad():
        found = closed_rows_with_gradient(leaf, mass, CURVES[1], LabelMass(label, torch.full((ROWS, 1), 0.9)))
    torch.testing.assert_close(found, closed_rows_with_gradient(z, mass, CURVES[1],
                                                                LabelMass(label, torch.full((ROWS, 1), 0.9))))


@pytest.mark.parametrize("kind", ["row", "matrix"])
@pytest.mark.parametrize("classes", [1, 2, 10, 300])
@pytest.mark.parametrize("curve", [curves.focal(2.0), curves.aggressive(), curves.poly(), curves.square(bonus=True),
                                   curves.normal(eps=0)], ids=repr)
def test_blocks_are_the_plain_formulas(curve, classes, kind):
    for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
        z, _ = draw(classes, dtype)
        mass = mass_of(kind, classes, dtype).expand(z.shape)
        loss, gradient = class_sums.values_and_gradient(z, mass, curve)
        expected, slope = (of(z.double(), mass.double(), curve)
                           for of in (class_sums.mass_values, class_sums.mass_gradient))
        near = (loss.double() - expected).abs() <= bound * mass.sum(1) * 30
        assert (near | (loss.double() == expected)).all()  # one class alone: -inf
        assert ((gradient.double() - slope).abs().amax(1) <= bound * (slope.abs().amax(1) + mass.sum(1))).all()


@pytest.mark.parametrize("lead", [50.0, 200.0, 1e4])
def test_blocks_keep_the_digits_of_a_top_class_far_ahead(lead):
    z = torch.tensor([[lead, 0.0, -3.0, -torch.inf]])
    onehot = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    for curve in (curves.normal(eps=0), curves.focal(0.5), curves.cross_entropy()):
        loss, gradient = class_sums.values_and_gradient(z, onehot, curve)
        for ours, exact in ((loss, class_sums.mass_values), (gradient, class_sums.mass_gradient)):
            torch.testing.assert_close(ours.double(), exact(z.double(), onehot.double(), curve), rtol=2e-6, atol=1e-40)
        closed = curve.form_below_half and closed_rows_with_gradient(z, onehot, curve)
        for ours, known in zip(closed or (), (loss, gradient), strict=False):
            torch.testing.assert_close(ours, known, rtol=2e-6, atol=1e-40)


def test_a_saved_gradient_is_that_of_the_general_form():
    """Small batches compute it in the forward pass; a second derivative, and probabilities that need a gradient, take
    the general form."""
    z, label = draw(10, torch.float64)
    small, general = z.clone().requires_grad_(), z.clone().requires_grad_()
    target = torch.full((ROWS, 10), 0.1, dtype=torch.float64)
    curve, upstream = curves.focal(2.0), torch.linspace(-1, 2, ROWS, dtype=torch.float64)
    losses = [curve_loss(leaf, probabilities, curve, reduction="none")
              for leaf, probabilities in ((small, target), (general, target.clone().requires_grad_()))]
    torch.testing.assert_close(*losses)
    firsts = [torch.autograd.grad((one * upstream).sum(), leaf, create_graph=True)[0]
              for one, leaf in zip(losses, (small, general), strict=True)]
    torch.testing.assert_close(*firsts)
    torch.testing.assert_close(*(torch.autograd.grad(first.square().sum(), leaf)[0]
                                 for first, leaf in zip(firsts, (small, general), strict=True)))
    smoothed = curve_loss(small, label[:, 0], curve, label_smoothing=0.1)
    mass = torch.full((ROWS, 10), 0.01, dtype=torch.float64).scatter_add_(1, label, torch.full((ROWS, 1), 0.9).double())
    torch.testing.assert_close(smoothed, curve_loss(small, mass, curve))


@pytest.mark.parametrize("rows", [256, 3000])  # the gradient saved, the general form
def test_curves_without_a_closed_form_take_no_longer_where_logits_are_far_apart(rows):
    target = torch.arange(rows) % 1000
    near = torch.randn(rows, 1000, generator=torch.Generator().manual_seed(0))
    times = {}
    for scale in (1, 30):
        leaf, steps = (scale * near).requires_grad_(), []
        for _ in range(6):
            leaf.grad, start = None, time.process_time()
            curve_loss(leaf, target, curves.focal(2.0), label_smoothing=0.1).backward()
            steps.append(time.process_time() - start)
        times[scale] = min(steps)
    assert times[30] < 3 * times[1], times  # with torch's exp 3.8 times


def test_large_batches_of_probabilities_allocate_little_beside_the_gradient():
    logits = torch.randn(2500, 1000, generator=torch.Generator().manual_seed(0), requires_grad=True)
    target = torch.full((2500, 1000), 1e-3)
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        curve_loss(logits, target, curves.normal()).backward()
    live = peak = 0
    for event in sorted(profile.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    assert peak < 1.5 * logits.nbytes, peak  # 3 times with the mass in float64


@pytest.mark.parametrize("curve", [*CURVES, curves.aggressive(eps=0), curves.focal(2.0)], ids=repr)
@pytest.mark.parametrize(("weight", "smoothing"), [(None, 1.0), ((1.0, 0.0, 2.0), 0.1), ((1.0, 0.0, 2.0), 1.0)])
def test_a_label_of_no_mass_adds_nothing_to_an_infinite_loss(curve, weight, smoothing):
    """Where smoothing is 1 or the label's weight 0, the label's own part is 0 times an infinite value."""
    rows = torch.tensor([[0.0, -math.inf, 1.0], [-math.inf, 0.0, -math.inf], [0.0, 1.0, 2.0]])
    label, class_weight = torch.tensor([1, 1, 1]), torch.tensor([1.0, 1.0, 1.0] if weight is None else weight)
    expected = class_sums.mass_values(rows, (smoothing / 3 * class_weight).expand(3, 3), curve)
    assert not expected[0].isnan()  # with eps=0 the second row is +inf - inf
    for copies in (1, 1 << 18):  # the last does not fit the cache
        z = rows.repeat(copies, 1).requires_grad_()
        loss = curve_loss(z, label.repeat(copies), curve, None if weight is None else class_weight, reduction="none",
                          label_smoothing=smoothing)
        torch.testing.assert_close(loss.view(copies, 3), expected.expand(copies, 3), equal_nan=True)
        loss.sum().backward()
        assert not z.grad.isnan().any()


def test_a_single_class_with_nothing_but_smoothing_has_p_of_1():
    z = torch.tensor([[2.0]], requires_grad=True)
    for curve in (curves.normal(eps=0), curves.aggressive(eps=0)):
        loss = curve_loss(z, torch.tensor([0]), curve, label_smoothing=1.0)
        assert loss == -math.inf
        assert torch.autograd.grad(loss, z)[0] == -1
