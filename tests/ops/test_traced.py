"""What a compiler is given for sums over all classes, called without one, against the plain formulas in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from encouraging import curves
from encouraging.curves import Curve
from encouraging.links import class_gaps
from encouraging.ops import class_sums, traced
from encouraging.ops.rows import _LabelRows
from encouraging.ops.squares import plain_squared_errors

CURVES = [curves.cross_entropy(), curves.normal(1e-5), curves.conservative(0.75), curves.conservative(0.25),
          curves.aggressive(0.5), curves.focal(2.0), curves.poly(1.0), curves.square()]
CLASSES = [1, 2, 3, 10, 300]


def draw(classes: int, rows: int = 240) -> tuple[Tensor, Tensor]:
    """Logits at any confidence, some with several highest classes or without most of the classes, and a mass."""
    g = torch.Generator().manual_seed(classes)
    z = 3 * torch.randn(rows, classes, generator=g)
    first = torch.randint(classes, (rows, 1), generator=g)
    z[:60].scatter_add_(1, first[:60], torch.linspace(1, 80, 60)[:, None])
    z[60:90] = z[60:90].round()  # so that some of the highest are equal
    z[90] = 0.0
    z[91:100] += 1e4
    if classes > 2:
        z[100:120, 1:-1] = -torch.inf
        z[110:120, 0] = z[110:120, -1]
    mass = (2 * torch.randn(rows, classes, generator=g)).softmax(-1)
    mass[::7] = torch.zeros_like(mass).scatter_(1, first, 1.0)[::7]
    mass[::11] = 0.0
    return z, mass


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_sums_over_the_classes_are_the_plain_formula(curve: Curve, classes: int) -> None:
    z, mass = draw(classes)
    exact = [of(z.double(), mass.double(), curve) for of in (class_sums.mass_values, class_sums.mass_gradient)]
    for dtype, rtol, atol in ((torch.float64, 1e-11, 1e-13), (torch.float32, 4e-6, 3e-6)):
        found = [of(z.to(dtype), mass.to(dtype), curve) for of in (traced.mass_values, traced.mass_gradient)]
        for ours, one in zip(found, exact, strict=True):
            torch.testing.assert_close(ours.double(), one, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("classes", CLASSES)
def test_values_of_every_class(classes: int) -> None:
    z = draw(classes)[0].double()
    for curve in CURVES:
        torch.testing.assert_close(traced.class_values(z, curve), curve.value(class_gaps(z)[0]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("classes", CLASSES)
def test_squared_errors_are_the_plain_formula(classes: int, bonus: bool) -> None:
    z, truth = (tensor.double() for tensor in draw(classes))
    z[100:120] = z[100:120].clamp(min=-50)
    upstream = torch.rand(z.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    leaf = z.clone().requires_grad_()
    plain = plain_squared_errors(class_gaps(leaf)[0], truth, bonus)
    slope, = torch.autograd.grad(plain, leaf, upstream)
    torch.testing.assert_close(traced.squared_errors(z, truth, bonus), plain.detach(), rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(traced.squared_errors_gradient(z, truth, bonus, upstream), slope, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("classes", CLASSES)
def test_labels_are_the_plain_formula(classes: int) -> None:
    z = draw(classes)[0].double()
    label = torch.randint(classes, (z.shape[0], 1), generator=torch.Generator().manual_seed(1))
    upstream = torch.linspace(-1, 1, z.shape[0], dtype=torch.float64)
    for curve in CURVES:
        leaf = z.clone().requires_grad_()
        slope, = torch.autograd.grad(_LabelRows.apply(leaf, label, None, curve)[0], leaf, upstream)
        found = traced.label_gradient(z, label, curve, upstream[:, None])
        torch.testing.assert_close(found, slope, rtol=1e-11, atol=1e-14, equal_nan=True)


def test_a_confident_example_keeps_its_digits() -> None:
    """At a lead of 50, 1 - p is 2e-22, and of the smallest rival's gradient every digit is left."""
    z, mass = torch.tensor([[50.0, 0.0, -3.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    for curve in (curves.normal(0), curves.conservative(0.75), curves.cross_entropy()):
        exact = class_sums.mass_gradient(z.double(), mass.double(), curve)
        torch.testing.assert_close(traced.mass_gradient(z, mass, curve).double(), exact, rtol=1e-5, atol=0)


@pytest.mark.parametrize("odd", [torch.inf, torch.nan])
def test_logits_without_a_probability_are_no_number(odd: float) -> None:
    z = torch.tensor([[odd, 0.0, 1.0], [0.0, 1.0, 2.0], [-torch.inf] * 3])
    mass = torch.full((3, 3), 1 / 3)
    for found in (traced.mass_values(z, mass, curves.conservative()),
                  traced.mass_gradient(z, mass, curves.conservative()).sum(1),
                  traced.squared_errors(z, mass, True).sum(1)):
        assert found.isnan().tolist() == [True, False, True]


@pytest.mark.parametrize("curve", [curves.conservative(0.75), curves.focal(2.0)], ids=repr)
def test_the_gradient_can_be_differentiated_again(curve: Curve) -> None:
    z, mass = (tensor[:8].double() for tensor in draw(4))
    leaf, label = z.clone().requires_grad_(), mass.argmax(1, True)
    assert torch.autograd.gradcheck(lambda x: traced.mass_gradient(x, mass, curve), leaf)
    assert torch.autograd.gradcheck(lambda x: traced.label_gradient(x, label, curve, mass[:, :1]), leaf)
