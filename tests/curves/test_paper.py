"""Every formula of the paper's sections 3 and 4 and its appendix A, each as a law that can fail."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from encouraging import curve_loss, curves, encouraging_loss, halted_focal_loss, mirror_mse_loss
from paper_formulas import edges, phi
from strategies import CURVES, SEEDS, generator, rows_with_gaps

EPS = torch.finfo(torch.float64).eps
CE, EL = curves.cross_entropy(), curves.normal(0)


@st.composite
def examples(draw: st.DrawFn, low: float = -9.0, high: float = 9.0) -> tuple[Tensor, Tensor]:
    """Logits (8, C) with gaps where a float64 1 - p is exact to 12 digits, and their labels."""
    seed, classes = draw(SEEDS), draw(st.integers(2, 6))
    gaps = low + (high - low) * torch.rand(8, generator=generator(seed), dtype=torch.float64)
    return rows_with_gaps(gaps, classes, seed)


def gradient(loss, logits: Tensor) -> Tensor:
    logits = logits.detach().requires_grad_()
    return torch.autograd.grad(loss(logits).sum(), logits)[0]


def rival_energies(logits: Tensor, label: Tensor) -> list[Tensor]:
    """E(y'|x) for y' != y, a tensor a row."""
    return [-torch.cat([row[:y], row[y + 1:]]) for row, y in zip(logits, label.tolist(), strict=True)]


def label_of(rows: Tensor, label: Tensor) -> Tensor:
    return rows.gather(1, label[:, None])[:, 0]


def ours(logits: Tensor, label: Tensor, curve) -> Tensor:
    return curve_loss(logits, label, curve, reduction="none")


@given(example=examples(), curve=CURVES)
def test_every_loss_and_its_gradient_are_float64_autograd_of_the_plain_formula(example, curve):
    logits, label = example
    p = label_of(logits.softmax(1), label)
    assume(all((torch.logit(p) - edge).abs().min() > 1e-6 for edge in edges(curve)))

    def plain(z):
        return phi(curve, label_of(z.softmax(1), label))

    # 1 - p >= 1e-4 is known to 2e-12 of itself, and the conservative tangent at 0.999 magnifies it a thousandfold.
    torch.testing.assert_close(ours(logits, label, curve), plain(logits), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(gradient(lambda z: ours(z, label, curve), logits), gradient(plain, logits),
                               rtol=1e-10, atol=1e-11)


@given(example=examples())
def test_equation_1_cross_entropy_is_the_negative_log_likelihood(example):
    logits, label = example
    torch.testing.assert_close(ours(logits, label, CE), -label_of(logits.log_softmax(1), label), rtol=1e-11, atol=1e-14)


@given(example=examples())
def test_equation_3_cross_entropys_gradient_on_the_label_is_p_minus_1(example):
    logits, label = example
    g = label_of(gradient(lambda z: ours(z, label, CE), logits), label)
    torch.testing.assert_close(g, label_of(logits.softmax(1), label) - 1, rtol=0, atol=16 * EPS)


@given(example=examples())
def test_equation_4_the_energy_form_of_cross_entropy(example):
    logits, label = example
    energy = -label_of(logits, label)
    form = torch.stack([e + torch.log(torch.exp(-e) + torch.exp(-rivals).sum())
                        for e, rivals in zip(energy, rival_energies(logits, label), strict=True)])
    torch.testing.assert_close(ours(logits, label, CE), form, rtol=0, atol=64 * EPS)


@given(example=examples())
def test_the_margin_form_of_cross_entropy(example):
    logits, label = example
    a = [torch.exp(-rivals - own) for own, rivals in zip(label_of(logits, label), rival_energies(logits, label),
                                                          strict=True)]
    form = torch.stack([torch.log1p(each.sum()) for each in a])
    torch.testing.assert_close(ours(logits, label, CE), form, rtol=64 * EPS, atol=0)


@given(example=examples(), normal=st.booleans())
def test_equations_5_and_10_the_gradients_in_the_margins(example, normal):
    """Any parameter: theta is a direction in which all logits move at given speeds."""
    logits, label = example
    speed = torch.randn(logits.shape, generator=generator(label.sum().item()), dtype=torch.float64)
    g = (gradient(lambda z: ours(z, label, EL if normal else CE), logits) * speed).sum(1)
    for row, y, v, got in zip(logits, label.tolist(), speed, g, strict=True):
        keep = torch.arange(len(row)) != y
        a = torch.exp(row[keep] - row[y])
        formula = (a * (v[keep] - v[y])).sum() / (a.sum() if normal else 1 + a.sum())
        torch.testing.assert_close(got, formula, rtol=1e-12, atol=1e-14)


@given(example=examples())
def test_equation_6_the_encouraging_loss_with_the_normal_bonus(example):
    logits, label = example
    p = label_of(logits.softmax(1), label)
    torch.testing.assert_close(ours(logits, label, EL), -p.log() + (1 - p).log(), rtol=1e-11, atol=1e-11)


@given(example=examples(), log_end=st.floats(0.01, 0.99))
def test_equation_7_the_encouraging_loss_with_a_conservative_bonus(example, log_end):
    logits, label = example
    p = label_of(logits.softmax(1), label)
    printed = torch.where(p <= log_end, -p.log() + (1 - p).log(),
                          -p.log() - (p - log_end) / (1 - log_end) + math.log(1 - log_end))
    torch.testing.assert_close(encouraging_loss(logits, label, reduction="none", log_end=log_end), printed,
                               rtol=1e-11, atol=1e-11)


@given(example=examples(), log_end=st.floats(0.01, 0.99))
def test_the_conservative_gradient_past_log_end_is_the_papers(example, log_end):
    logits, label = example
    p = label_of(logits.softmax(1), label)
    assume((p - log_end).abs().min() > 1e-9)
    g = label_of(gradient(lambda z: ours(z, label, curves.conservative(log_end)), logits), label)
    printed = torch.where(p <= log_end, -1.0, (-1 / p - 1 / (1 - log_end)) * (p * (1 - p)))
    torch.testing.assert_close(g, printed, rtol=1e-11, atol=1e-14)


@given(seed=SEEDS, classes=st.integers(2, 50), gap=st.floats(-700, 700), double=st.booleans())
def test_equation_8_without_clamp_the_gradient_on_the_label_is_exactly_minus_1_at_any_p(seed, classes, gap, double):
    logits, label = rows_with_gaps(torch.tensor([gap], dtype=torch.float64), classes, seed)
    g = gradient(lambda z: encouraging_loss(z, label, log_end=1.0, eps=0), logits if double else logits.float())
    assert label_of(g, label).item() == -1
    # Each rival's share is rounded once, and so is their sum.
    assert g.sum().item() == pytest.approx(0, abs=classes * torch.finfo(g.dtype).eps)


@given(example=examples(-60, 60))
def test_equation_9_the_energy_form_of_the_encouraging_loss(example):
    logits, label = example
    form = torch.stack([e + torch.logsumexp(-rivals, 0) for e, rivals in
                        zip(-label_of(logits, label), rival_energies(logits, label), strict=True)])
    torch.testing.assert_close(ours(logits, label, EL), form, rtol=8 * EPS, atol=64 * EPS)


@given(example=examples(-60, 60))
def test_the_margin_form_of_the_encouraging_loss(example):
    logits, label = example
    form = torch.stack([torch.logsumexp(-rivals - own, 0) for own, rivals in
                        zip(label_of(logits, label), rival_energies(logits, label), strict=True)])
    torch.testing.assert_close(ours(logits, label, EL), form, rtol=8 * EPS, atol=64 * EPS)


@given(example=examples(-12, 60))
def test_margins_grow_faster_by_the_ratio_of_1_plus_sum_a_to_sum_a(example):
    logits, label = example
    growth = [gradient(lambda z, curve=curve: ours(z, label, curve), logits) for curve in (EL, CE)]
    sums = torch.stack([torch.exp(-rivals - own).sum() for own, rivals in
                        zip(label_of(logits, label), rival_energies(logits, label), strict=True)])
    ratio = (1 + sums) / sums
    # exp(60) multiplies the rounding of its argument by 60.
    torch.testing.assert_close(growth[0], ratio[:, None] * growth[1], rtol=200 * EPS, atol=0)


@given(example=examples(), log_end=st.floats(0.01, 0.99))
def test_with_a_conservative_bonus_margins_still_grow_faster_but_less_so(example, log_end):
    logits, label = example
    ce, conservative, normal = (-label_of(gradient(lambda z, curve=curve: ours(z, label, curve), logits), label)
                                for curve in (CE, curves.conservative(log_end), EL))
    assert (conservative > ce).all()
    assert (conservative <= normal + EPS).all()


@given(example=examples(), other=st.sampled_from([
    curves.poly(0), curves.focal(0), curves.power(1, weight=0), curves.power(3.5, weight=0),
    curves.halted_focal(0, 0.5), curves.halted_focal(2.0, 0)]))
def test_without_their_change_the_relatives_are_cross_entropy(example, other):
    logits, label = example
    torch.testing.assert_close(ours(logits, label, other), ours(logits, label, CE), rtol=2 * EPS, atol=0)
    torch.testing.assert_close(gradient(lambda z: ours(z, label, other), logits),
                               gradient(lambda z: ours(z, label, CE), logits), rtol=4 * EPS, atol=0)


@given(example=examples(-40, 40))
def test_a_log_that_ends_at_0_is_the_power_bonus_and_poly_1_minus_1(example):
    logits, label = example
    for other, shift in ((curves.power(1, 1), 0), (curves.poly(1), 1)):
        torch.testing.assert_close(ours(logits, label, curves.conservative(0)), ours(logits, label, other) - shift,
                                   rtol=4 * EPS, atol=4 * EPS)
        mine, others = (gradient(lambda z, curve=curve: ours(z, label, curve), logits)
                        for curve in (curves.conservative(0), other))
        torch.testing.assert_close(mine, others,
                                   rtol=8 * EPS, atol=0)


@given(example=examples(), digits=st.integers(5, 15))
def test_as_log_end_nears_1_the_conservative_bonus_nears_the_normal_one(example, digits):
    logits, label = example
    late = curves.conservative(1 - 10.0**-digits)
    # All gaps are below 9, where the log has not ended.
    torch.testing.assert_close(ours(logits, label, late), ours(logits, label, EL), rtol=0, atol=0)
    far = torch.tensor(digits * math.log(10) + 2.0, dtype=torch.float64)
    assert (late.value(far) - EL.value(far)).abs() < 7  # and past its end it has only begun to leave it


@given(gamma=st.floats(0, 5), halt=st.floats(0.01, 0.99))
def test_the_halted_focal_loss_is_continuous_at_halt(gamma, halt):
    edge = math.log(halt) - math.log1p(-halt)
    below, above = (curves.halted_focal(gamma, halt).value(torch.tensor(edge + d, dtype=torch.float64))
                    for d in (-1e-9, 1e-9))
    assert below.item() == pytest.approx(above.item(), abs=1e-8 * (1 + gamma))


@given(gamma=st.floats(0.5, 5), halt=st.floats(0.05, 0.95))
def test_with_the_sign_that_the_paper_prints_the_halted_focal_loss_would_jump(gamma, halt):
    focal = -((1 - halt) ** gamma) * math.log(halt)
    b = (1 - (1 - halt) ** gamma) * math.log(halt)
    printed, continuous = -(math.log(halt) + b), -math.log(halt) + b
    assert continuous == pytest.approx(focal, abs=1e-12)
    assert printed - focal == pytest.approx(-2 * b)
    assert printed - focal > 1e-3
    assert curves.halted_focal(gamma, halt).shift == pytest.approx(b, rel=1e-12)


@given(example=examples(), gamma=st.floats(0.5, 4), halt=st.floats(0.2, 0.8))
def test_the_halted_focal_loss_teaches_the_hard_as_focal_loss_and_the_easy_as_cross_entropy(example, gamma, halt):
    logits, label = example
    p = label_of(logits.softmax(1), label)
    easy = (p > halt)[:, None]
    halted, focal, ce = (gradient(lambda z, loss=loss: loss(z), logits) for loss in (
        lambda z: halted_focal_loss(z, label, gamma=gamma, halt=halt, reduction="none"),
        lambda z: ours(z, label, curves.focal(gamma)), lambda z: ours(z, label, CE)))
    torch.testing.assert_close(halted, torch.where(easy, ce, focal), rtol=4 * EPS, atol=0)


@given(example=examples(-30, 30), link=st.sampled_from(["softmax", "sigmoid"]))
def test_mse_with_its_mirror_is_twice_the_mean_absolute_error_minus_1(example, link):
    logits, label = example
    truth = F.one_hot(label, logits.shape[1]).double()

    def absolute(z):
        p = z.softmax(1) if link == "softmax" else z.sigmoid()
        return 2 * (truth - p).abs() - 1

    torch.testing.assert_close(mirror_mse_loss(logits, label, link=link), absolute(logits).mean(),
                               rtol=0, atol=16 * EPS)
    torch.testing.assert_close(gradient(lambda z: mirror_mse_loss(z, label, link=link, reduction="sum"), logits),
                               gradient(absolute, logits), rtol=0, atol=32 * EPS)


@given(example=examples(-30, 30), link=st.sampled_from(["softmax", "sigmoid"]), soft=st.booleans())
def test_mse_without_bonus_is_torchs_and_the_bonus_is_the_papers(example, link, soft):
    logits, label = example
    y = F.one_hot(label, logits.shape[1]).double()
    if soft:
        y = 0.7 * y + 0.3 / logits.shape[1]
    p = logits.softmax(1) if link == "softmax" else logits.sigmoid()
    plain, mirrored = (mirror_mse_loss(logits, y if soft else label, bonus=bonus, link=link, reduction="none")
                       for bonus in (False, True))
    torch.testing.assert_close(plain.mean(), F.mse_loss(p, y), rtol=0, atol=16 * EPS)
    torch.testing.assert_close(mirrored - plain, -(y * p) ** 2 - ((1 - y) * (1 - p)) ** 2, rtol=0, atol=16 * EPS)
