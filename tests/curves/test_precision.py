"""Values and gradients against arithmetic with hundreds of digits, up to gaps of 80 in float32 and 700 in float64.

Tolerances are units in the last place of the largest term that a number is a sum of. Logits are exact, so an exact gap
exists; the gap that a float can hold is off by up to half a unit of itself, and ``(1-p)^k`` shows that k-fold. Hence
``8 + degree * |gap|`` units: 8 for the handful of roundings, the rest is the gap's own.
"""

from __future__ import annotations

import mpmath
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from encouraging import curve_loss, curves, mirror_mse_loss, sigmoid_curve_loss
from paper_formulas import DIGITS, Exact, degree, edges, phi
from strategies import CURVES, SEEDS, generator, rows_with_gaps

REACH = {torch.float32: 80.0, torch.float64: 700.0}
DTYPES = st.sampled_from(list(REACH))


@st.composite
def rows(draw: st.DrawFn) -> tuple[torch.Tensor, int]:
    """One row of logits of a type, its label's gap anywhere in that type's reach; sometimes far from the origin."""
    dtype, seed, classes = draw(DTYPES), draw(SEEDS), draw(st.integers(2, 6))
    gap = draw(st.floats(-1, 1)) * REACH[dtype] * draw(st.sampled_from([1.0, 0.25, 0.05]))
    spread = draw(st.sampled_from([1.0, 10.0]))
    logits, label = rows_with_gaps(torch.tensor([gap], dtype=torch.float64), classes, seed, spread)
    shifted = logits[0] + draw(st.sampled_from([0.0, 0.0, 5000.0, -300.0]))
    return shifted.to(dtype), label.item()


def away_from_edges(exact: Exact) -> bool:
    """A curve's pull may jump at an edge: not where a rounded gap could fall on its other side."""
    return all(abs(gap - edge) > 1e-3 * (1 + abs(gap)) for gap in exact.gaps for edge in edges(exact.curve))


def units(exact: Exact, dtype: torch.dtype, k: int) -> float:
    return (8 + degree(exact.curve) * abs(exact.gaps[k])) * torch.finfo(dtype).eps


def check(got: float, expected, allowed: float, dtype: torch.dtype) -> None:
    with mpmath.workdps(DIGITS):
        error = abs(mpmath.mpf(got) - expected)
        # Below the smallest normal number a float has absolute, not relative, precision.
        assert error <= allowed + 4 * torch.finfo(dtype).tiny, (got, mpmath.nstr(expected, 20), float(error), allowed)


@settings(max_examples=150)
@given(row=rows(), curve=CURVES)
def test_value_and_gradient_of_a_label_are_exact(row, curve):
    logits, y = row
    exact = Exact(logits.tolist(), curve)
    assume(away_from_edges(exact))
    logits.requires_grad_()
    loss = curve_loss(logits, torch.tensor(y), curve)
    loss.backward()
    unit = units(exact, logits.dtype, y)
    expected, size = exact.value(y)
    check(loss.item(), expected, unit * size, logits.dtype)
    spread = (logits.max() - logits.min()).item() * torch.finfo(logits.dtype).eps
    for j, got in enumerate(logits.grad.tolist()):
        derivative = exact.derivative(y, j)
        check(got, derivative, (unit + (spread if j != y else 0)) * float(abs(derivative)), logits.dtype)


@settings(max_examples=80)
@given(row=rows(), curve=CURVES, smoothing=st.sampled_from([None, 0.1, 0.9]))
def test_value_and_gradient_of_smoothed_and_soft_targets_are_exact(row, curve, smoothing):
    logits, y = row
    exact, classes = Exact(logits.tolist(), curve), len(logits)
    assume(away_from_edges(exact))
    if smoothing is None:
        target = torch.rand(classes, generator=generator(y + classes), dtype=torch.float64).to(logits.dtype)
        mass, arguments = target.tolist(), {}
    else:
        target, arguments = torch.tensor(y), {"label_smoothing": smoothing}
        mass = [smoothing / classes + (1 - smoothing) * (k == y) for k in range(classes)]
    logits.requires_grad_()
    loss = curve_loss(logits, target, curve, **arguments)
    loss.backward()
    values = [exact.value(k) for k in range(classes)]
    allowed = [(units(exact, logits.dtype, k) + 8 * torch.finfo(logits.dtype).eps) * mass[k] for k in range(classes)]
    with mpmath.workdps(DIGITS):
        expected = mpmath.fsum(u * value for u, (value, _) in zip(mass, values, strict=True))
    check(loss.item(), expected, sum(a * size for a, (_, size) in zip(allowed, values, strict=True)), logits.dtype)
    spread = (logits.max() - logits.min()).item() * torch.finfo(logits.dtype).eps
    for j, got in enumerate(logits.grad.tolist()):
        parts = [exact.derivative(k, j) for k in range(classes)]
        with mpmath.workdps(DIGITS):
            expected = mpmath.fsum(u * part for u, part in zip(mass, parts, strict=True))
            bound = sum((a + spread * u) * float(abs(part)) for a, u, part in zip(allowed, mass, parts, strict=True))
        check(got, expected, bound, logits.dtype)


@given(gap=st.floats(-1, 1), dtype=DTYPES, curve=CURVES, positive=st.booleans())
def test_value_and_gradient_of_the_sigmoid_form_are_exact(gap, dtype, curve, positive):
    logit = torch.tensor(gap * REACH[dtype], dtype=dtype)
    exact = Exact([logit.item(), 0.0], curve)
    assume(away_from_edges(exact))
    logit.requires_grad_()
    loss = sigmoid_curve_loss(logit, torch.tensor(int(positive)), curve)
    loss.backward()
    k = 0 if positive else 1
    expected, size = exact.value(k)
    check(loss.item(), expected, units(exact, dtype, k) * size, dtype)
    derivative = exact.derivative(k, 0)
    check(logit.grad.item(), derivative, units(exact, dtype, k) * float(abs(derivative)), dtype)


@given(row=rows(), bonus=st.booleans(), link=st.sampled_from(["softmax", "sigmoid"]))
def test_the_gradient_of_mse_and_its_mirror_is_exact(row, bonus, link):
    logits, y = row
    dtype, classes = logits.dtype, len(logits)
    assume(link == "softmax" or logits.abs().max() <= REACH[dtype])
    spread = (logits.max() - logits.min()).item()
    together = Exact(logits.tolist(), curves.square())
    alone = [Exact([z, 0.0], curves.square()) for z in logits.tolist()]
    logits.requires_grad_()
    mirror_mse_loss(logits, torch.tensor(y), bonus=bonus, link=link, reduction="sum").backward()
    for j, got in enumerate(logits.grad.tolist()):
        expected, bound = mpmath.mpf(0), 0.0
        for k in range(classes) if link == "softmax" else [j]:
            exact, own = (together, k) if link == "softmax" else (alone[k], 0)
            with mpmath.workdps(DIGITS):
                p, q = exact.p[own], exact.q[own]
                # (1-p)^2 and 1 - 2p for the label, p^2 and 2p - 1 for the others.
                steepness = (-2 if bonus else -2 * q) if k == y else (2 if bonus else 2 * p)
                part = steepness * p * (q if k == j else -exact.p[j])
                expected += part
            bound += (16 + 4 * abs(exact.gaps[own]) + spread) * torch.finfo(dtype).eps * float(abs(part))
        check(got, expected, bound, dtype)


@pytest.mark.parametrize(("dtype", "low", "high"), [(torch.float32, 18, 80), (torch.float64, 38, 700)])
@given(data=st.data())
def test_there_the_plain_formula_is_not(dtype, low, high, data):
    gap = data.draw(st.floats(low, high))
    logits = torch.tensor([gap, 0.0], dtype=dtype)

    def outcome(loss):
        z = logits.clone().requires_grad_()
        value = loss(z)
        value.backward()
        return value.item(), z.grad.tolist()

    def plain(z):
        return phi(curves.normal(0), z.softmax(0)[0])

    value, _ = outcome(plain)
    assert value == -torch.inf
    clamped, slope = outcome(lambda z: phi(curves.normal(1e-300), z.double().softmax(0)[0].to(dtype)))
    assert clamped != pytest.approx(-logits[0].item(), rel=1e-3) or slope[0] != pytest.approx(-1, rel=1e-3)
    value, slope = outcome(lambda z: curve_loss(z, torch.tensor(0), curves.normal(0)))
    assert value == -logits[0].item()
    assert slope == [-1, 1]


@given(gap=st.floats(18, 80))
def test_cross_entropy_of_the_well_classified_has_digits_where_torchs_has_none(gap):
    logits = torch.tensor([[gap, 0.0]])
    label = torch.tensor([0])
    assert torch.nn.functional.cross_entropy(logits, label) == 0
    exact = Exact(logits[0].tolist(), curves.cross_entropy())
    check(curve_loss(logits, label, curves.cross_entropy()).item(), exact.value(0)[0],
          units(exact, torch.float32, 0) * exact.value(0)[1], torch.float32)


@given(seed=SEEDS, shift=st.sampled_from([2.0**k for k in range(4, 20)]), curve=CURVES)
def test_moving_all_logits_by_a_constant_changes_nothing(seed, shift, curve):
    """Logits on a grid that the shift keeps exactly: the same differences must give the same bits."""
    g = generator(seed)
    logits = torch.randint(-64, 64, (4, 5), generator=g) / 16.0
    label = torch.randint(5, (4,), generator=g)
    results = []
    for z in (logits, logits + shift):
        z = z.clone().requires_grad_()
        loss = curve_loss(z, label, curve, reduction="none", label_smoothing=0.1)
        results.append((loss.detach(), *torch.autograd.grad(loss.sum(), z)))
    for here, there in zip(*results, strict=True):
        torch.testing.assert_close(here, there, rtol=0, atol=0)
