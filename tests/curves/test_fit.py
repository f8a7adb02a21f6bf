"""A pull that is not minus the derivative of its value is refused, and no other."""

from __future__ import annotations

import copy
import pickle
import re
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from torch.nn import functional as F

from encouraging import curve_loss, curves
from encouraging.errors import CurveError
from strategies import CURVES


def nll(gap):
    return F.softplus(-gap, threshold=40)


WRONG = {
    "sign": (nll, lambda gap: -torch.sigmoid(-gap)),
    "p for 1 - p": (nll, torch.sigmoid),
    "5% too strong": (nll, lambda gap: 1.05 * torch.sigmoid(-gap)),
    "the derivative in p": (lambda gap: -torch.sigmoid(gap), torch.ones_like),
    "nothing": (nll, torch.zeros_like),
    "another parameter": (curves.conservative(0.75).value, curves.conservative(0.5).pull),
    "another edge": (lambda gap: -gap.clamp(max=5.0), lambda gap: (gap < 4.5).to(gap.dtype)),
    "sign of a constant": (lambda gap: -gap, lambda gap: torch.tensor(-1.0)),
    "sign of a number": (lambda gap: -gap, lambda gap: -1.0),
    "small and of the wrong sign": (lambda gap: 1e-6 * nll(gap), lambda gap: -1e-6 * torch.sigmoid(-gap)),
}
RIGHT = {
    "a kink": (lambda gap: -torch.where(gap < 5, gap, 5 + 0.1 * (gap - 5)), lambda gap: torch.where(gap < 5, 1.0, 0.1)),
    "a kink at a gap that is looked at": (lambda gap: -gap.clamp(max=0.0731),
                                          lambda gap: (gap < 0.0731).to(gap.dtype)),
    "a jump": (lambda gap: torch.where(gap < 3, -gap, 2 - gap), torch.ones_like),
    "a hinge": (lambda gap: (1 - gap).clamp(min=0), lambda gap: (gap < 1).to(gap.dtype)),
    "a minimum": (lambda gap: (gap - 3) ** 2, lambda gap: 2 * (3 - gap)),
    "waves": (lambda gap: 5 * gap.sin() - gap, lambda gap: 1 - 5 * gap.cos()),
    "a sharp bend": (lambda gap: 1e-3 * nll(gap / 1e-3), lambda gap: torch.sigmoid(-gap / 1e-3)),
    "exponential": (lambda gap: (-gap).exp(), lambda gap: (-gap).exp()),
    "tiny": (lambda gap: 1e-9 * (-gap).exp(), lambda gap: 1e-9 * (-gap).exp()),
    "a constant pull": (lambda gap: -gap, lambda gap: torch.tensor(1.0)),
    "a number as pull": (lambda gap: -gap, lambda gap: 1.0),
    "constant": (torch.ones_like, torch.zeros_like),
    "far from 0": (lambda gap: 1e6 - gap, torch.ones_like),
    "not everywhere": (lambda gap: -gap.log(), lambda gap: 1 / gap),
    "nowhere": (lambda gap: gap * torch.nan, torch.ones_like),
    "in float32": (lambda gap: nll(gap.float()), lambda gap: torch.sigmoid(-gap.float())),
    "naive in float32": (lambda gap: (1 - torch.sigmoid(gap.float())).log() - torch.sigmoid(gap.float()).log(),
                         lambda gap: torch.ones_like(gap.float())),
    "in numpy": (lambda gap: torch.from_numpy(-gap.numpy()), torch.ones_like),
}


@pytest.mark.parametrize("which", WRONG)
def test_a_pull_that_does_not_fit_is_refused_in_words(which):
    with pytest.raises(CurveError, match=re.escape(f"custom('{which}'): its pull is")) as refused:
        curves.custom(*WRONG[which], which)
    assert ("The sign is wrong" in str(refused.value)) is ("sign" in which)
    assert curves.custom(*WRONG[which], which, check=False).label == which


@pytest.mark.parametrize("which", RIGHT)
def test_kinks_jumps_pieces_and_bends_are_taken(which):
    curves.check_pull(curves.custom(*RIGHT[which], which))


@given(curve=CURVES)
def test_every_curve_of_the_package_is_taken(curve):
    curves.check_pull(curve)
    curves.custom(curve.value, curve.pull)
    curves.custom(lambda gap: curve.value(gap.float()), lambda gap: curve.pull(gap.float()))


def test_functions_that_cannot_be_asked_are_taken_and_say_so_when_they_are_used():
    def for_others(gap):
        raise TypeError("no tensors on the CPU, please")

    own = curves.custom(for_others, for_others)
    with pytest.raises(TypeError, match="no tensors"):
        curve_loss(torch.zeros(2, 3), torch.tensor([0, 1]), own)


@pytest.mark.parametrize(("part", "value", "pull"), [
    ("value", lambda gap: -gap[::2], torch.ones_like),
    ("pull", lambda gap: -gap, lambda gap: torch.ones_like(gap[::2])),
], ids=["value", "pull"])
def test_functions_that_are_not_elementwise_are_refused(part, value, pull):
    words = rf"its {part} for gaps of shape \(128,\) has the shape \(64,\): expected (a tensor of )?the same shape"
    with pytest.raises(CurveError, match=words):
        curves.custom(value, pull)

    class Own(Lifted):
        value, pull = (lambda _, gap: value(gap)), (lambda _, gap: pull(gap))

    with pytest.raises(CurveError, match=words):
        curves.check_pull(Own())
    unchecked = curves.custom(value, pull, check=False)
    with pytest.raises(CurveError, match="element by element"):
        curve_loss(torch.zeros(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 0]), unchecked).backward()
    if part == "value":
        with pytest.raises(CurveError, match=r"from_probability.*its value for gaps of shape \(4,"):
            curve_loss(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]), curves.from_probability(value))


@pytest.mark.parametrize(("value", "got"), [
    (lambda gap: -gap.mean(), r"has the shape \(\)"),  # its pull passes the comparison: the mean moves with all gaps
    (lambda gap: -gap.mean(0, keepdim=True), r"has the shape \(1,"),
    (lambda gap: 0.5, "is a float"),
], ids=["mean", "kept dimension", "number"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_value_that_is_one_number_for_all_gaps_is_refused(value, got, smoothing):
    logits, label = torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])
    for make in (curves.custom, lambda value, _, check: curves.from_probability(value)):
        own = make(value, torch.ones_like, check=False)
        with pytest.raises(CurveError, match=rf"its value for gaps of shape .* {got}.*element by element"):
            curve_loss(logits, label, own, label_smoothing=smoothing)
    with pytest.raises(CurveError, match="element by element"):
        curves.custom(value, torch.ones_like)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("rows", [4, 60000])  # in and beyond the cache
def test_a_constant_pull_and_a_value_of_another_type_are_used_as_they_are_meant(rows, reduction, smoothing):
    logits = torch.randn(rows, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    label, twin = torch.arange(rows) % 5, curves.normal(0)
    for value, pull in ((lambda gap: -gap, lambda gap: 1.0), (lambda gap: -gap, lambda gap: torch.tensor(1.0)),
                        (lambda gap: -gap, lambda gap: torch.ones(1)),
                        (lambda gap: -gap.double(), lambda gap: torch.ones_like(gap, dtype=torch.float64))):
        results = []
        for curve in (curves.custom(value, pull), twin):
            loss = curve_loss(logits, label, curve, reduction=reduction, label_smoothing=smoothing)
            results.append((loss, *torch.autograd.grad(loss.sum(), logits)))
        torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


@dataclass(frozen=True, repr=False)
class Lifted(curves.Curve):
    name: ClassVar[str] = "lifted"

    def value(self, gap):
        return nll(gap)

    def pull(self, gap):
        return -torch.sigmoid(-gap)


def test_a_class_is_checked_by_hand():
    with pytest.raises(CurveError, match=r"lifted\(\): its pull is -0\.9996 at a gap of -7\.927.*The sign is wrong"):
        curves.check_pull(Lifted())


def test_the_check_leaves_no_trace():
    """It needs no gradients, takes none, and changes neither equality nor copies."""
    strength = torch.nn.Parameter(torch.tensor(2.0))
    with torch.inference_mode():
        own = curves.custom(lambda gap: -strength * gap, lambda gap: strength * torch.ones_like(gap))
    assert strength.grad is None
    value, pull = WRONG["sign"]
    meant = curves.custom(value, pull, check=False)
    assert copy.deepcopy(own) == own
    assert replace(meant, label="mine") == curves.custom(value, pull, "mine", check=False)
    assert pickle.loads(pickle.dumps(curves.custom(nll, F.sigmoid, check=False))).pull_of_gap is F.sigmoid


# torch's own tracer makes an object of every autograd Function that it meets, and warns about it.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_compiled_function_may_make_a_curve():
    def loss(z):
        return curve_loss(z, torch.tensor([0, 1]), curves.custom(lambda gap: -gap, torch.ones_like))

    z = torch.tensor([[3.0, 1.0], [0.5, 1.0]])
    found = torch.compile(loss, backend="aot_eager")(z)
    torch._dynamo.reset()
    torch.testing.assert_close(found, loss(z))
