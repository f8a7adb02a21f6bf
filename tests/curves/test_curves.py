"""Laws of the curves themselves, as functions of the gap."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from encouraging import HaltedFocalLoss, curve_loss, curves, halted_focal_loss
from encouraging.curves._catalogue import from_numbers, is_in_catalogue, to_numbers
from encouraging.errors import CurveError
from paper_formulas import ALL_CURVES, edges, phi
from strategies import CURVES

GAPS = st.floats(-30, 30)
PROBABILITIES = st.floats(1e-6, 1 - 1e-6)


def double(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@given(curve=CURVES, gap=GAPS)
def test_pull_is_minus_the_derivative_of_value(curve, gap):
    assume(all(abs(gap - edge) > 1e-6 for edge in edges(curve)))
    gap = double(gap).requires_grad_()
    (slope,) = torch.autograd.grad(curve.value(gap).sum(), gap)
    # sigmoid's derivative in autograd is p * (1 - p): absolute, not relative, to the last bit.
    torch.testing.assert_close(curve.pull(gap.detach()), -slope, rtol=1e-13, atol=8 * 2.0**-52)


@given(curve=CURVES, p=PROBABILITIES)
def test_value_is_the_plain_formula_of_p(curve, p):
    assume(all(abs(math.log(p / (1 - p)) - edge) > 1e-6 for edge in edges(curve)))
    # The plain formula takes 1 - p from p: 1e-6 of it is known to 2e-10 of itself.
    torch.testing.assert_close(curve.phi(double(p)), phi(curve, double(p)), rtol=1e-9, atol=1e-9)


@given(curve=CURVES, gap=GAPS, step=st.floats(1e-3, 5))
def test_no_curve_ever_punishes_a_larger_gap(curve, gap, step):
    assert curve.pull(double(gap)).item() >= 0
    assert curve.value(double(gap + step)) <= curve.value(double(gap)) + 1e-12


@pytest.mark.parametrize("curve", [curve for curve in ALL_CURVES if edges(curve)], ids=repr)
def test_the_parts_of_a_curve_meet_at_its_edges(curve):
    for edge in edges(curve):
        below, above = (curve.value(double(math.nextafter(edge, way))) for way in (-math.inf, math.inf))
        torch.testing.assert_close(below, above, rtol=0, atol=1e-13)


@given(log_end=st.floats(0.01, 0.99))
def test_the_conservative_bonus_is_a_tangent_its_pull_does_not_jump(log_end):
    edge = math.log(log_end) - math.log1p(-log_end)
    pulls = curves.conservative(log_end).pull(double(edge - 1e-9, edge, edge + 1e-9))
    torch.testing.assert_close(pulls, torch.ones_like(pulls), rtol=0, atol=1e-6)


@given(log_end=st.floats(0, 0.999), p=PROBABILITIES)
def test_a_conservative_bonus_lies_between_none_and_the_normal_one(log_end, p):
    ce, normal = (curve.pull(torch.logit(double(p))) for curve in (curves.cross_entropy(), curves.normal(0)))
    pull = curves.conservative(log_end).pull(torch.logit(double(p)))
    assert ce - 1e-15 <= pull <= normal + 1e-15


@given(first=st.floats(0, 0.99), second=st.floats(0, 0.99), p=PROBABILITIES)
def test_the_later_the_log_ends_the_steeper_the_curve(first, second, p):
    gap = torch.logit(double(p))
    early, late = sorted((first, second))
    assert curves.conservative(early).pull(gap) <= curves.conservative(late).pull(gap) + 1e-14


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_at_the_ends_of_the_line_value_and_pull_are_their_limits(curve, dtype):
    infinite = torch.tensor([-torch.inf, torch.inf], dtype=dtype)
    far = torch.tensor([-1e4, 1e4], dtype=dtype)
    torch.testing.assert_close(curve.pull(infinite), curve.pull(far))
    finite = curve.value(far).abs() < 100
    torch.testing.assert_close(curve.value(infinite)[finite], curve.value(far)[finite])
    assert curve.value(infinite)[~finite].isinf().all()


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_nan_in_nan_out(curve):
    nan = torch.tensor(torch.nan)
    assert curve.value(nan).isnan()
    assert curve.pull(nan).isnan()


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_half_precision_gaps_keep_their_type(curve):
    gap = torch.tensor([-2.0, 3.0], dtype=torch.bfloat16)
    assert curve.value(gap).dtype == curve.pull(gap).dtype == torch.bfloat16


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_a_curve_is_told_by_its_name_and_parameters(curve):
    assert curves.by_name(curve.name, **curve.params) == curve
    assert pickle.loads(pickle.dumps(curve)) == curve == copy.deepcopy(curve)
    assert hash(curve) == hash(type(curve)(**curve.params))
    assert eval(repr(curve), vars(curves)) == curve


def test_curves_of_other_parameters_or_classes_differ():
    assert len(set(ALL_CURVES)) == len(ALL_CURVES)


def test_curves_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        curves.focal().gamma = 3.0


@given(log_end=st.floats(0, 1), eps=st.floats(0, 0.1))
def test_encouraging_is_conservative_below_one_and_normal_at_one(log_end, eps):
    expected = curves.normal(eps) if log_end == 1 else curves.conservative(log_end)
    assert curves.encouraging(log_end, eps) == expected
    assert curves.encouraging(1.0, eps) == curves.normal(eps)


def test_the_defaults_are_the_papers():
    assert curves.encouraging() == curves.conservative(0.75)
    assert curves.normal().eps == curves.aggressive().eps == 1e-5


def test_every_name_of_the_catalogue_is_a_public_curve():
    assert set(curves.names()) <= set(curves.__all__)
    for name in curves.names():
        assert isinstance(curves.by_name(name), curves.Curve)


@pytest.mark.parametrize("entry", curves.catalogue().values(), ids=lambda entry: entry.name)
def test_an_entry_of_the_catalogue_describes_what_makes_the_curve(entry):
    assert entry.factory is getattr(curves, entry.name)
    signature = inspect.signature(entry.factory).parameters
    assert {parameter.name: parameter.default for parameter in entry.parameters} == {
        name: parameter.default for name, parameter in signature.items()}
    for parameter in entry.parameters:
        assert parameter.low <= parameter.default <= parameter.high
        assert parameter.step > 0
        assert parameter.meaning
        for number in (parameter.low, parameter.high):  # both ends of a slider are curves
            entry.factory(**{parameter.name: type(parameter.default)(number)})


def test_the_catalogue_cannot_be_changed_by_its_readers():
    with pytest.raises(TypeError):
        curves.catalogue()["mine"] = curves.catalogue()["focal"]


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_a_curve_of_the_catalogue_survives_as_numbers(curve):
    assert is_in_catalogue(curve)
    assert from_numbers(curve.name, to_numbers(curve)) == curve


def test_a_changed_curve_is_not_the_catalogues():
    @dataclasses.dataclass(frozen=True, repr=False)
    class Changed(curves.focal):
        def value(self, gap):
            return 2 * super().value(gap)

    assert not is_in_catalogue(Changed())
    assert not is_in_catalogue(curves.from_probability(lambda p: 1 - p))


def test_the_default_halt_is_one_half_and_both_parts_meet_there():
    """Up to p = 1/2 the default is focal loss; past it cross-entropy, shifted by (1 - (1/2)^gamma) log(1/2)."""
    gap = torch.linspace(-20, 20, 101, dtype=torch.float64)
    for gamma in (0.5, 1.0, 2.0, 5.0):
        halted = curves.halted_focal(gamma)
        assert halted == curves.halted_focal(gamma, 0.5)
        shift = (1 - 0.5**gamma) * math.log(0.5)
        below, above = curves.focal(gamma), curves.cross_entropy()
        torch.testing.assert_close(halted.value(gap), torch.where(gap <= 0, below.value(gap), above.value(gap) + shift))
        torch.testing.assert_close(halted.pull(gap), torch.where(gap <= 0, below.pull(gap), above.pull(gap)))
    logits, label = torch.tensor([[0.4, 1.0, 0.2], [2.0, 0.1, -1.0]]), torch.tensor([0, 0])
    assert torch.equal(halted_focal_loss(logits, label), curve_loss(logits, label, curves.halted_focal(2.0, 0.5)))
    assert torch.equal(HaltedFocalLoss()(logits, label), halted_focal_loss(logits, label))


BAD = [
    (curves.conservative, {"log_end": 1.0}), (curves.conservative, {"log_end": 1.5}),
    (curves.conservative, {"log_end": -0.1}), (curves.conservative, {"log_end": math.nan}),
    (curves.conservative, {"log_end": "0.5"}), (curves.conservative, {"log_end": None}),
    (curves.encouraging, {"log_end": 1.01}), (curves.encouraging, {"log_end": -1}),
    (curves.encouraging, {"log_end": math.nan}), (curves.encouraging, {"log_end": True}),
    (curves.encouraging, {"eps": 1.0}), (curves.encouraging, {"eps": -1e-5}),
    (curves.normal, {"eps": -1e-9}), (curves.normal, {"eps": 1.0}), (curves.normal, {"eps": math.nan}),
    (curves.aggressive, {"start": 1.0}), (curves.aggressive, {"start": -0.5}), (curves.aggressive, {"eps": 0.6}),
    (curves.power, {"exponent": -1.0}), (curves.power, {"weight": -1.0}), (curves.power, {"weight": math.inf}),
    (curves.poly, {"epsilon": -1.5}), (curves.poly, {"epsilon": math.nan}),
    (curves.focal, {"gamma": -0.5}), (curves.focal, {"gamma": math.inf}), (curves.focal, {"gamma": math.nan}),
    (curves.focal, {"gamma": 2**63}), (curves.poly, {"epsilon": 2**70}), (curves.power, {"weight": 2**64}),
    (curves.halted_focal, {"gamma": -1.0}), (curves.halted_focal, {"halt": 1.1}), (curves.halted_focal, {"halt": -0.1}),
    (curves.square, {"bonus": "no"}),
]


@pytest.mark.parametrize(("make", "bad"), BAD, ids=lambda x: getattr(x, "__name__", str(x)))
def test_a_parameter_that_cannot_be_is_refused_by_name(make, bad):
    with pytest.raises(CurveError, match=next(iter(bad))):
        make(**bad)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(CurveError, match="Did you mean 'conservative'"):
        curves.by_name("conservativ")
    with pytest.raises(CurveError, match="Did you mean 'log_end'"):
        curves.by_name("conservative", logend=0.5)
    with pytest.raises(CurveError, match="None"):
        curves.by_name(None)


@pytest.mark.parametrize("number", [np.float32(0.5), np.int64(0), torch.tensor(0.5)], ids=lambda x: type(x).__name__)
def test_numbers_of_other_libraries_are_refused_with_the_remedy(number):
    with pytest.raises(CurveError, match=r"Pass float\(log_end\)\."):
        curves.encouraging(number)
    assert curves.encouraging(float(number)).log_end == float(number)
    for word in ("0.5", None, True):
        with pytest.raises(CurveError) as refused:
            curves.encouraging(word)
        assert "float(" not in str(refused.value)
