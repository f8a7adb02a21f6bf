"""What comes with a loss (p, logsumexp, prediction, share of learned rows), and gradients written over the logits."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch
from torch import Tensor

from encouraging import LossStats, curve_loss, curve_loss_and_gradient_, curve_loss_with_stats, curves
from encouraging.errors import ArgumentError, DtypeError, ShapeError, TargetError
from plain_formula import CURVES
from strategies import rows_with_gaps


def draw(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    logits, target = rows_with_gaps(torch.linspace(-8, 12, 20, dtype=torch.float64), 6, 3)
    target[::7] = -100
    return logits.to(dtype), target


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_curve_loss_with_its_gradient(reduction, smoothing):
    logits, target = draw()
    for curve in CURVES:
        z = logits.clone().requires_grad_()
        arguments = {"reduction": reduction, "label_smoothing": smoothing}
        ours, _ = curve_loss_with_stats(z, target, curve, **arguments)
        theirs = curve_loss(z, target, curve, **arguments)
        assert torch.equal(ours, theirs)
        assert torch.equal(*(torch.autograd.grad(loss.sum(), z)[0] for loss in (ours, theirs)))


def test_the_by_products_are_what_their_names_say():
    logits, target = draw()
    _, stats = curve_loss_with_stats(logits.requires_grad_(), target, curves.conservative(0.6))
    assert isinstance(stats, LossStats)
    assert not any(part.requires_grad for part in stats)
    labelled = target != -100
    p = logits.softmax(1).gather(1, target.clamp(min=0)[:, None])[:, 0]
    torch.testing.assert_close(stats.p[labelled], p[labelled])
    assert stats.p[~labelled].isnan().all()
    torch.testing.assert_close(stats.lse, logits.logsumexp(1))
    assert torch.equal(stats.argmax, logits.argmax(1))
    torch.testing.assert_close(stats.past.double(), (p[labelled] > 0.6).double().mean())


def test_they_have_the_targets_shape():
    logits, target = torch.randn(2, 5, 3, 4), torch.randint(5, (2, 3, 4))
    _, stats = curve_loss_with_stats(logits, target, curves.normal())
    assert stats.p.shape == stats.lse.shape == stats.argmax.shape == target.shape
    assert torch.equal(stats.argmax, logits.argmax(1))
    _, one = curve_loss_with_stats(logits[0, :, 0, 0], target[0, 0, 0], curves.normal())
    assert one.p.shape == one.past.shape == ()


@pytest.mark.parametrize(("curve", "edge"), [
    (curves.conservative(0.9), 0.9), (curves.aggressive(0.3), 0.3), (curves.halted_focal(2.0, 0.7), 0.7),
    (curves.cross_entropy(), 0.5)])
def test_learned_is_past_the_probability_at_which_the_curve_changes_unless_you_say_so(curve, edge):
    logits, target = draw()
    p = curve_loss_with_stats(logits, target, curve)[1].p
    share = lambda edge: (p > edge).sum() / (target != -100).sum()  # noqa: E731
    assert curve_loss_with_stats(logits, target, curve)[1].past == share(edge)
    assert curve_loss_with_stats(logits, target, curve, past=0.2)[1].past == share(0.2)


def test_p_is_right_far_from_the_origin():
    logits, target = draw(torch.float32)
    p = curve_loss_with_stats(logits, target, curves.normal())[1].p
    moved = curve_loss_with_stats(logits.double() + 2.0**20, target, curves.normal())[1].p
    torch.testing.assert_close(moved.float(), p, equal_nan=True, rtol=1e-5, atol=0)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_the_logits_become_their_gradient(curve, smoothing, soft):
    logits, target = draw()
    target = (2 * logits).softmax(1) if soft else target
    weight, upstream = torch.rand(6, dtype=torch.float64), torch.randn(20, dtype=torch.float64)
    z = logits.clone().requires_grad_()
    rows = curve_loss(z, target, curve, weight, reduction="none", label_smoothing=smoothing)
    (expected,) = torch.autograd.grad((rows * upstream).sum() / 3, z)
    ours = logits.clone()
    losses = curve_loss_and_gradient_(ours, target, curve, weight=weight, label_smoothing=smoothing, divisor=3,
                                      upstream=upstream)
    torch.testing.assert_close(losses, rows.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-14)


def test_inplace_is_a_permission_that_changes_no_number_here():
    logits, target = draw()
    source = logits.requires_grad_()
    ours, theirs = (curve_loss(2 * source, target, curves.normal(), inplace=inplace) for inplace in (True, False))
    assert torch.equal(ours, theirs)
    assert torch.equal(*(torch.autograd.grad(loss, source)[0] for loss in (ours, theirs)))


def refusals():
    logits, target = draw()
    leaf = logits.clone().requires_grad_()
    curve = curves.normal()
    return {
        "a leaf": (lambda: curve_loss(leaf, target, curve, inplace=True), ArgumentError, "leaf"),
        "a view of a leaf": (lambda: curve_loss(leaf[:9], target[:9], curve, inplace=True), ArgumentError, "leaf"),
        "a leaf with stats":
            (lambda: curve_loss_with_stats(leaf, target, curve, inplace=True), ArgumentError, "leaf"),
        "stats of probabilities": (lambda: curve_loss_with_stats(logits, logits, curve), TargetError, "argmax"),
        "no probability": (lambda: curve_loss_with_stats(logits, target, curve, past=2), ArgumentError, "past=2"),
        "no curve": (lambda: curve_loss_with_stats(logits, target, "normal"), DtypeError, "str"),
        "logits with a gradient":
            (lambda: curve_loss_and_gradient_(leaf, target, curve), ArgumentError, r"no_grad"),
        "an image": (lambda: curve_loss_and_gradient_(torch.zeros(1, 2, 3), torch.zeros(1, 3).long(), curve),
                     ShapeError, r"\(N, C\)"),
        "upstream of another length":
            (lambda: curve_loss_and_gradient_(logits, target, curve, upstream=torch.ones(3)), ShapeError, r"\(3,\)"),
    }


@pytest.mark.parametrize("what", refusals())
def test_refused_in_words(what):
    call, error, words = refusals()[what]
    with pytest.raises(error, match=words):
        call()


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1" or not importlib.util.find_spec("triton"),
                    reason="the kernels run here in Triton's interpreter (TRITON_INTERPRET=1)")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, on which the interpreter runs
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_kernels_give_the_same_by_products_and_gradients(reduction):
    logits, target = draw(torch.float32)
    curve, weight = curves.conservative(0.6), torch.rand(6)
    divisor = 11.0 if reduction == "mean" else None
    results = []
    for impl, inplace in (("reference", False), ("triton", False), ("triton", True)):
        source = logits.clone().requires_grad_()
        loss, stats = curve_loss_with_stats(1.0 * source, target, curve, weight, reduction=reduction, divisor=divisor,
                                            inplace=inplace, impl=impl)
        results.append((loss, *stats, torch.autograd.grad(loss.sum(), source)[0]))
    for ours in results[1:]:
        for mine, theirs in zip(ours, results[0], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6, equal_nan=True, check_dtype=False)
    gradients = []
    for impl in ("reference", "triton"):
        z = logits.clone()
        rows = curve_loss_and_gradient_(z, target, curve, weight=weight, divisor=3, upstream=torch.ones(20), impl=impl)
        gradients.append((rows, z))
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)
