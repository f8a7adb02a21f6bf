"""A user's own curve, from two functions of the gap, from one of p, or as a class: a curve like any other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad, hessian, jacfwd, vmap
from torch.nn import functional as F

from encouraging import CurveLoss, curve_loss, curves, sigmoid_curve_loss
from encouraging.errors import CurveError
from strategies import cases, rows_with_gaps

# torch's own tracer makes an object of every autograd Function that it meets, and warns about it.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


@dataclass(frozen=True, repr=False)
class Tempered(curves.Curve):
    """Cross-entropy at a temperature of 1, so that it has a twin."""

    name: ClassVar[str] = "tempered"
    temperature: float = 1.0

    def value(self, gap):
        return self.temperature * F.softplus(-gap / self.temperature, threshold=40)

    def pull(self, gap):
        return torch.sigmoid(-gap / self.temperature)


# Each with its twin among the package's own curves.
TWINS = {
    "value and pull": (
        curves.custom(lambda gap: F.softplus(-gap, threshold=40), lambda gap: torch.sigmoid(-gap), "mine"),
        curves.cross_entropy()),
    "phi of p": (curves.from_probability(lambda p: -p.log() - 0.5 * p**2, "mine"), curves.power(2.0, 0.5)),
    "a kinked phi of p": (curves.from_probability(lambda p: torch.where(p <= 0.5, -(1 - p) ** 2 * p.log(),
                                                                        -p.log() + 0.75 * math.log(0.5)), "mine"),
                          curves.halted_focal(2.0, 0.5)),
    "a class": (Tempered(), curves.cross_entropy()),
}
twins = pytest.mark.parametrize("which", TWINS)


def batch():
    return rows_with_gaps(torch.tensor([-3.1, -0.9, 1.3, 4.2], dtype=torch.float64), 5, 0)


def same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@twins
@given(case=cases(low=-9, high=9))
def test_values_and_gradients_are_its_twins_for_all_arguments(which, case):
    own, twin = TWINS[which]
    input, target, arguments = case
    results = []
    for curve in (own, twin):
        z = input.clone().requires_grad_()
        loss = curve_loss(z, target, curve, **arguments)
        results.append((loss.detach(), torch.autograd.grad(loss.sum(), z)[0]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-8, atol=1e-8, equal_nan=True)


@twins
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_second_derivatives_vmap_and_nests_are_its_twins(which, smoothing):
    logits, label = batch()

    def loss(curve):
        return lambda z, y: curve_loss(z, y, curve, label_smoothing=smoothing)

    own, twin = (loss(curve) for curve in TWINS[which])
    same(hessian(own)(logits, label), hessian(twin)(logits, label))
    same(jacfwd(jacfwd(own))(logits, label), hessian(twin)(logits, label))
    same(vmap(grad(own))(logits, label), vmap(grad(twin))(logits, label))
    same(vmap(own)(logits, label), vmap(twin)(logits, label))
    results = []
    for each in (own, twin):
        z = logits.clone().requires_grad_()
        (slope,) = torch.autograd.grad(each(z, label), z, create_graph=True)
        results.append(torch.autograd.grad(slope.square().sum(), z)[0])
    same(*results)


@twins
def test_finite_differences_agree(which):
    logits, label = batch()
    logits.requires_grad_()
    curve = TWINS[which][0]

    def loss(z):
        return curve_loss(z, label, curve, reduction="none")

    assert torch.autograd.gradcheck(loss, logits, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(loss, logits)
    assert torch.autograd.gradcheck(lambda z: sigmoid_curve_loss(z, label[:, None].expand(4, 5) % 2, curve), logits)


@twins
def test_compiled_as_one_graph_it_is_the_same(which):
    logits, label = batch()
    curve = TWINS[which][0]

    def loss(z):
        return curve_loss(z, label, curve) + curve_loss(z, label, curve, label_smoothing=0.1)

    results = []
    for function in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        z = logits.clone().requires_grad_()
        value = function(z)
        results.append((value.detach(), torch.autograd.grad(value, z)[0]))
    torch._dynamo.reset()
    torch.testing.assert_close(results[1], results[0], rtol=1e-13, atol=1e-14)


@twins
def test_norm_matching_and_the_sigmoid_form_take_it_too(which):
    logits, label = batch()
    own, twin = TWINS[which]
    same(curve_loss(logits, label, own, match_norm=True), curve_loss(logits, label, twin, match_norm=True))
    presence = F.one_hot(label, 5)
    same(sigmoid_curve_loss(logits, presence, own), sigmoid_curve_loss(logits, presence, twin))


def test_the_pull_is_the_gradient_and_the_value_is_never_differentiated():
    """In return for writing both, a curve may be computed in ways that autograd cannot follow."""
    rounded = curves.custom(lambda gap: (-gap).round(), lambda gap: torch.full_like(gap, 0.25), "rounded",
                            check=False)
    logits, label = batch()
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(curve_loss(logits, label, rounded, reduction="sum"), logits)
    assert (gradient.gather(1, label[:, None]) == -0.25).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_phi_of_p_has_a_pull_where_p_underflows(dtype):
    """Its slope is infinite there; classes that far down are common with smoothed and soft targets."""
    gap = torch.tensor([-90.0, -200.0, -1000.0, -math.inf], dtype=dtype)
    for phi, pull in ((lambda p: -p.log(), 1.0), (lambda p: 1 - p.sqrt(), 0.0), (lambda p: -p, 0.0)):
        torch.testing.assert_close(curves.from_probability(phi).pull(gap), torch.full_like(gap, pull), rtol=1e-5,
                                   atol=1e-15)
    assert curves.from_probability(lambda p: -p.log()).pull(torch.tensor(math.nan)).isnan()
    logits, label = torch.tensor([[0.0, -300.0, 1.0]], dtype=dtype, requires_grad=True), torch.tensor([1])
    own = curves.from_probability(lambda p: -p.log())
    ours, theirs = (torch.autograd.grad(curve_loss(logits, label, curve, label_smoothing=0.1), logits)[0]
                    for curve in (own, curves.cross_entropy()))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", [(4,), (4, 6), (4096, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_phi_of_p_that_computes_in_another_type_returns_that_of_the_logits(shape, dtype):
    logits, label = torch.randn(shape[0], 5, *shape[1:], dtype=dtype), torch.zeros(shape, dtype=torch.long)
    own = curves.from_probability(lambda p: -p.double().log())
    for reduction in ("mean", "none"):
        loss = curve_loss(logits, label, own, reduction=reduction)
        assert loss.dtype == dtype
        torch.testing.assert_close(loss, curve_loss(logits, label, curves.cross_entropy(), reduction=reduction))


def test_they_are_told_by_their_label():
    own = curves.custom(lambda gap: -gap, torch.ones_like, "mine")
    assert repr(own) == "custom('mine')"
    assert repr(CurveLoss(own)) == "CurveLoss(curve=custom('mine'))"
    assert repr(curves.from_probability(lambda p: -p, "yours")) == "from_probability('yours')"
    assert repr(Tempered(2.0)) == "tempered(temperature=2.0)"
    assert own.phi(torch.tensor(0.5)) == 0
    assert curves.from_probability(lambda p: -p).phi(torch.tensor(0.5)) == -0.5


@dataclass(frozen=True, repr=False)
class Twice(curves.conservative):
    """A curve of the catalogue with another formula."""

    def value(self, gap):
        return 2 * super().value(gap)

    def pull(self, gap):
        return 2 * super().pull(gap)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("rows", [3, 700])
def test_a_subclass_has_its_own_formula_in_sums_over_classes_too(rows, soft, smoothing):
    generator = torch.Generator().manual_seed(rows)
    z = (3 * torch.randn(rows, 500, generator=generator, dtype=torch.float64)).requires_grad_()
    target = torch.rand(rows, 500, generator=generator, dtype=torch.float64) if soft else torch.arange(rows) % 500
    mine, theirs = (curve_loss(z, target, curve, label_smoothing=smoothing)
                    for curve in (Twice(0.75), curves.conservative(0.75)))
    torch.testing.assert_close(mine, 2 * theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, z)[0] for loss in (mine, 2 * theirs)))


def test_a_subclass_that_keeps_the_formula_keeps_its_closed_form():
    class Same(curves.conservative):
        pass

    assert Same(0.75).form_below_half == curves.conservative(0.75).form_below_half == "line"
    assert Twice(0.75).form_below_half is None


@pytest.mark.parametrize("phi", [lambda p: -p.detach().log(), lambda p: (p < 0.5).to(p.dtype)])
def test_a_function_of_p_without_a_gradient_is_refused(phi):
    with pytest.raises(CurveError, match="has no gradient, so that nothing would be learned"):
        curves.from_probability(phi)


@pytest.mark.parametrize("mode", [FakeTensorMode, lambda: torch.device("meta")], ids=["fake", "meta"])
def test_a_function_of_p_is_made_where_tensors_have_no_numbers(mode):
    with mode():
        made = curves.from_probability(lambda p: -p.log())
    assert made.pull(torch.zeros(1)).item() == pytest.approx(0.5)


def test_a_function_of_p_may_be_constant_or_detach_a_factor():
    assert curves.from_probability(lambda p: 0 * p).pull(torch.zeros(2)).tolist() == [0, 0]
    weighted = curves.from_probability(lambda p: -(1 - p.detach()) * p.log())  # weights that are not taught
    assert weighted.pull(torch.zeros(1)).item() == pytest.approx(0.25)
