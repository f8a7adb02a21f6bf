"""Exact at any confidence, for every curve and every kind of target.

At a gap of 1e4 the top class has p = 1 - 1e-4343: the reference has 4400 digits there.
"""

from __future__ import annotations

import functools

import mpmath
import pytest
import torch
from torch import Tensor

from encouraging import curve_loss, curve_loss_and_gradient_, curves, linear_curve_loss
from encouraging.ops import class_sums
from paper_formulas import ALL_CURVES, Exact, degree

RIVALS = (0.0, -0.75, -30.0, -2000.0)  # two close ones, one far below, and one that is out of reach
GAPS = {torch.float32: (30.0, 88.5, 104.0, 1e4), torch.float64: (350.0, 745.5, 1e4)}
SMOOTHING = 0.1
SOFT = {"soft": (0.5, 0.25, 0.125, 0.0625, 0.0625), "soft with zeros": (0.75, 0.25, 0.0, 0.0, 0.0),
        "nothing on top": (0.0, 0.5, 0.5, 0.0, 0.0), "one-hot on top": (1.0, 0.0, 0.0, 0.0, 0.0),
        "one-hot below": (0.0, 0.0, 1.0, 0.0, 0.0)}
KINDS = ["smoothed label on top", "smoothed label below", "weighted, smoothed", *SOFT]
WEIGHT = (1.5, 0.5, 1.0, 2.0, 0.25)


def digits(gap: float) -> int:
    return 60 + int(gap / 2.3)


@functools.cache
def exact_row(curve: curves.Curve, gap: float) -> tuple[list[tuple[float, float]], list[list[mpmath.mpf]], list[float]]:
    """Every class's value with the size of its terms, its derivatives in all logits, and its gap."""
    exact = Exact([gap, *RIVALS], curve, digits(gap))
    classes = range(1 + len(RIVALS))
    with mpmath.workdps(digits(gap)):
        pulls = [exact.pull(k) for k in classes]
        derivatives = [[-pulls[k] * (1 if j == k else -exact.p[j] / exact.q[k]) for j in classes] for k in classes]
    return [exact.value(k) for k in classes], derivatives, exact.gaps


def case(kind: str, dtype: torch.dtype) -> tuple[Tensor, dict, list[float]]:
    """The target, the loss's arguments, and the mass of every class that they mean."""
    if kind in SOFT:
        return torch.tensor([SOFT[kind]], dtype=dtype), {}, list(SOFT[kind])
    label = 1 if kind == "smoothed label below" else 0
    weight = WEIGHT if kind.startswith("weighted") else (1.0,) * 5
    mass = [w * (SMOOTHING / 5 + (1 - SMOOTHING) * (k == label)) for k, w in enumerate(weight)]
    return torch.tensor([label]), {"label_smoothing": SMOOTHING, "weight": torch.tensor(weight, dtype=dtype)}, mass


def check(loss: Tensor, gradient: Tensor, curve: curves.Curve, gap: float, mass: list[float]) -> None:
    """As close as the roundings of the terms allow: 16 units, and while p or 1 - p is a number of this type, the gap's
    own rounding as often as the curve shows it."""
    values, derivatives, gaps = exact_row(curve, gap)
    info = torch.finfo(gradient.dtype)
    with mpmath.workdps(digits(gap)):
        seen = 110 if gradient.dtype == torch.float32 else 760
        unit = [(16 + (degree(curve) * abs(g) if abs(g) < seen else 0)) * info.eps for g in gaps]
        expected = mpmath.fsum(u * value for u, (value, _) in zip(mass, values, strict=True) if u)
        allowed = sum(u * unit[k] * size for k, (u, (_, size)) in enumerate(zip(mass, values, strict=True)))
        assert abs(mpmath.mpf(loss.item()) - expected) <= allowed + 4 * info.tiny, (loss.item(), float(expected))
        for j, got in enumerate(gradient[0].tolist()):
            parts = [u * derivatives[k][j] for k, u in enumerate(mass)]
            allowed = sum(unit[k] * abs(float(part)) for k, part in enumerate(parts))
            # What is far below the largest part may be lost: it underflows with the class's probability.
            tiny = 4 * info.tiny + 1e-12 * info.eps
            assert abs(mpmath.mpf(got) - mpmath.fsum(parts)) <= allowed + tiny, (j, got, float(mpmath.fsum(parts)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", GAPS, ids=str)
@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_loss_and_gradient_are_exact_whatever_the_gap(curve, dtype, kind):
    target, arguments, mass = case(kind, dtype)
    for gap in GAPS[dtype]:
        logits = torch.tensor([[gap, *RIVALS]], dtype=dtype, requires_grad=True)
        loss = curve_loss(logits, target, curve, **arguments, reduction="sum")
        check(loss, torch.autograd.grad(loss, logits)[0], curve, gap, mass)


@pytest.mark.parametrize("curve", [curves.normal(0), curves.aggressive(0.7, 0), curves.conservative()], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_so_are_the_forms_below_autograd_the_fused_layer_and_its_compiled_form(curve, kind):
    dtype, gap = torch.float32, 1e4
    target, arguments, mass = case(kind, dtype)
    ours = torch.tensor([[gap, *RIVALS]], dtype=dtype)
    check(curve_loss_and_gradient_(ours, target, curve, **arguments), ours, curve, gap, mass)
    arguments["class_weight"] = arguments.pop("weight", None)

    def layer(bias: Tensor) -> Tensor:
        hidden, weight = torch.zeros(1, 1), torch.zeros(5, 1)
        return linear_curve_loss(hidden, weight, target, curve, bias, reduction="sum", **arguments)

    bias = torch.tensor([gap, *RIVALS], dtype=dtype, requires_grad=True)
    for form in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        loss = form(bias)
        check(loss, torch.autograd.grad(loss, bias)[0][None], curve, gap, mass)


def test_the_two_examples_of_the_report():
    """z = [100, 0, 0, 0] in float32: the rivals' gradient was infinite, and of the wrong sign for a soft target."""
    z = torch.tensor([[100.0, 0, 0, 0]], requires_grad=True)
    loss = curve_loss(z, torch.tensor([0]), curves.normal(0), label_smoothing=0.1)
    (gradient,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(gradient, torch.tensor([[-0.85, 0.85 / 3, 0.85 / 3, 0.85 / 3]]))
    soft = torch.tensor([[0.7, 0.1, 0.1, 0.1]])
    (gradient,) = torch.autograd.grad(curve_loss(z, soft, curves.normal(0)), z)
    torch.testing.assert_close(gradient, torch.tensor([[-0.4, 0.4 / 3, 0.4 / 3, 0.4 / 3]]))


def test_many_rows_of_which_few_are_certain_are_what_each_is_alone():
    """Blocks of rows look at their most certain row: the others must not notice."""
    g = torch.Generator().manual_seed(0)
    z = 2 * torch.randn(64, 40, generator=g)
    z[::9, 3] += torch.linspace(40, 9000, 8)
    z[5] = -torch.inf
    z[5, 7] = 1.0
    q = torch.rand(64, 40, generator=g) ** 4
    q[5] = torch.nn.functional.one_hot(torch.tensor(7), 40)
    q = q / q.sum(1, keepdim=True)
    for curve in (curves.normal(0), curves.conservative(), curves.cross_entropy()):
        for target, arguments in ((q, {}), (torch.full((64,), 7), {"label_smoothing": 0.1})):
            whole = z.clone().requires_grad_()
            losses = curve_loss(whole, target, curve, reduction="none", **arguments)
            (together,) = torch.autograd.grad(losses.sum(), whole)
            for i in range(64):
                alone = z[i:i + 1].clone().requires_grad_()
                loss = curve_loss(alone, target[i:i + 1], curve, reduction="sum", **arguments)
                torch.testing.assert_close(losses[i], loss, equal_nan=True)
                torch.testing.assert_close(together[i:i + 1], torch.autograd.grad(loss, alone)[0], equal_nan=True)


def test_the_plain_form_is_exact_too():
    """The form of transforms, second derivatives and compiled graphs."""
    for curve in ALL_CURVES:
        for kind in SOFT:
            target, _, mass = case(kind, torch.float32)
            z = torch.tensor([[1e4, *RIVALS]])
            check(class_sums.mass_values(z, target, curve)[0], class_sums.mass_gradient(z, target, curve), curve, 1e4,
                  mass)
