"""Halted focal losses in RetinaNet's head: their formulas on both sides, every divisor, and the constant below 0."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from box_toys import tiny_retinanet
from encouraging import curves, sigmoid_curve_loss
from encouraging.integrations.torchvision import CurveClassificationHead, least_value, with_curve
from strategies import SEEDS, generator

BETWEEN = -2  # an anchor between the thresholds of the matcher
CLASSES = 3


def head_of(curve, **how) -> CurveClassificationHead:
    return with_curve(tiny_retinanet(CLASSES), curve, **how).head.classification_head


def matches(seed: int, images: int = 3, anchors: int = 40):
    """Logits of an image, the boxes' classes, and what each anchor was matched with."""
    g = generator(seed)
    logits = 6 * torch.randn(images, anchors, CLASSES, generator=g, dtype=torch.float64)
    targets = [{"labels": torch.randint(CLASSES, (number,), generator=g)} for number in range(images)]
    matched = [torch.randint(-2, number, (anchors,), generator=g) for number in range(images)]
    return logits, targets, matched


def by_hand(logits, targets, matched, formula, alpha: float, divisor):
    """Image by image with dense targets, in float64 and differentiated by autograd."""
    sums, counts = [], []
    for z, target, match in zip(logits, targets, matched, strict=True):
        present = torch.zeros_like(z)
        for anchor, box in enumerate(match.tolist()):
            if box >= 0:
                present[anchor, target["labels"][box]] = 1
        kept = match != BETWEEN
        weight = alpha * present + (1 - alpha) * (1 - present)
        sums.append((weight * formula(z, present))[kept].sum())
        counts.append(int((match >= 0).sum()))
    if divisor == "images":
        return sum(one / max(count, 1) for one, count in zip(sums, counts, strict=True)) / len(sums)
    whole = max(sum(counts), 1)
    return sum(sums) / (whole if divisor == "positives" else 0.9 * 100 + 0.1 * whole)


def p_of_truth(z: Tensor, present: Tensor) -> Tensor:
    return torch.where(present.bool(), torch.sigmoid(z), torch.sigmoid(-z))


def focal(p: Tensor, gamma: float) -> Tensor:
    return -((1 - p) ** gamma) * p.log()


def halted(p: Tensor, gamma: float, halt: float) -> Tensor:
    shift = (1 - (1 - halt) ** gamma) * math.log(halt)
    return torch.where(p <= halt, focal(p, gamma), -p.log() + shift)


def halted_on_likelihood(gamma: float, halt: float):
    return lambda z, present: halted(p_of_truth(z, present), gamma, halt)


def halted_on_logit(gamma: float, halt: float):
    """Cross-entropy, shifted to be continuous, wherever the class is predicted: sigma(z) > halt."""
    def formula(z: Tensor, present: Tensor) -> Tensor:
        p = p_of_truth(z, present)
        at_halt = torch.where(present.bool(), halt, torch.tensor(1 - halt, dtype=z.dtype))
        shift = (1 - (1 - at_halt) ** gamma) * at_halt.log()
        return torch.where(torch.sigmoid(z) <= halt, focal(p, gamma), -p.log() + shift)
    return formula


FORMULAS = {"likelihood": halted_on_likelihood, "logit": halted_on_logit}


@given(seed=SEEDS, halt_on=st.sampled_from(["likelihood", "logit"]), gamma=st.sampled_from([1.0, 2.0, 0.5]),
       halt=st.sampled_from([0.5, 0.3, 0.8]), alpha=st.sampled_from([0.5, 0.25, 0.9]),
       divisor=st.sampled_from(["images", "positives", "moving_positives"]))
def test_the_halted_losses_are_their_formulas_with_alpha_on_both_branches_and_every_divisor(seed, halt_on, gamma, halt,
                                                                                           alpha, divisor):
    logits, targets, matched = matches(seed)
    head = head_of(curves.halted_focal(gamma, halt), alpha=alpha, halt_on=halt_on, divisor=divisor, from_zero=False)
    results = []
    for loss in (lambda z: head.compute_loss(targets, {"cls_logits": z}, matched),
                 lambda z: by_hand(z, targets, matched, FORMULAS[halt_on](gamma, halt), alpha, divisor)):
        z = logits.clone().requires_grad_()
        value = loss(z)
        results.append((value.detach(), torch.autograd.grad(value, z)[0]))
    rough = 1e-6 if divisor == "moving_positives" else 1e-10  # the average is a buffer of the model, in float32
    torch.testing.assert_close(results[0], results[1], rtol=rough, atol=1e-12)
    assert int(head.positives) == sum(int((match >= 0).sum()) for match in matched)


@given(seed=SEEDS, gamma=st.sampled_from([1.0, 2.0]), halt=st.sampled_from([0.5, 0.3, 0.8]), present=st.booleans())
def test_halted_focal_is_focal_below_halt_and_parallel_to_cross_entropy_above_on_both_sides(seed, gamma, halt, present):
    z = 8 * torch.randn(200, generator=generator(seed), dtype=torch.float64)
    truth = torch.full_like(z, float(present))
    below = p_of_truth(z, truth) <= halt
    values = {name: sigmoid_curve_loss(z, truth.long(), curve, reduction="none") for name, curve in
              (("halted", curves.halted_focal(gamma, halt)), ("focal", curves.focal(gamma)))}
    ce = F.binary_cross_entropy_with_logits(z, truth, reduction="none")
    torch.testing.assert_close(values["halted"][below], values["focal"][below], rtol=1e-12, atol=0)
    distance = (values["halted"] - ce)[~below]
    torch.testing.assert_close(distance, torch.full_like(distance, curves.halted_focal(gamma, halt).shift), rtol=1e-9,
                               atol=1e-9)


@given(seed=SEEDS, gamma=st.sampled_from([1.0, 2.0]), halt=st.sampled_from([0.5, 0.3]))
def test_halting_on_the_logit_leaves_easy_negatives_to_focal_loss(seed, gamma, halt):
    z = 8 * torch.randn(200, generator=generator(seed), dtype=torch.float64)
    curve = curves.halted_focal(gamma, halt)
    negatives = sigmoid_curve_loss(z, torch.zeros_like(z).long(), curve, negative_curve=curve.on_logit(),
                                   reduction="none")
    easy = torch.sigmoid(z) <= halt
    expected = sigmoid_curve_loss(z, torch.zeros_like(z).long(), curves.focal(gamma), reduction="none")
    torch.testing.assert_close(negatives[easy], expected[easy], rtol=1e-12, atol=0)
    slope = curve.on_logit().pull(-z)
    torch.testing.assert_close(slope[~easy], torch.sigmoid(z)[~easy])
    edge = torch.tensor([math.log((1 - halt) / halt)], dtype=torch.float64)
    step = curve.on_logit().value(edge - 1e-9) - curve.on_logit().value(edge + 1e-9)
    assert abs(step.item()) < 1e-8


@pytest.mark.parametrize("curve", [curves.halted_focal(1.0, 0.5), curves.conservative(0.75), curves.normal(1e-5),
                                   curves.focal(2.0), curves.normal(0.0)], ids=repr)
@pytest.mark.parametrize("halt_on", ["likelihood", "logit"])
def test_without_its_constant_a_certain_batch_has_no_loss_and_the_gradient_is_the_same(curve, halt_on):
    if halt_on == "logit" and not isinstance(curve, curves.halted_focal):
        halt_on = "likelihood"
    logits, targets, matched = matches(3)
    plain, from_zero = (head_of(curve, alpha=0.5, halt_on=halt_on, from_zero=flag) for flag in (False, True))
    gradients = []
    for head in (plain, from_zero):
        z = logits.clone().requires_grad_()
        gradients.append(torch.autograd.grad(head.compute_loss(targets, {"cls_logits": z}, matched), z)[0])
    assert torch.equal(*gradients)
    certain = torch.full_like(logits, -60.0)
    for z, target, match in zip(certain, targets, matched, strict=True):
        hit = match >= 0
        z[hit, target["labels"][match[hit]]] = 60.0
    loss = from_zero.compute_loss(targets, {"cls_logits": certain}, matched)
    if math.isfinite(curve.value(torch.tensor(math.inf)).item()):
        assert abs(loss.item()) < 1e-10
        with_constant = plain.compute_loss(targets, {"cls_logits": certain}, matched).item()
        assert (with_constant < -0.05) == (least_value(curve) < 0)


@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-3)], ids=str)
def test_the_loss_of_many_confident_anchors_is_not_lost_beside_the_constant(dtype, rel):
    head = head_of(curves.halted_focal(1.0, 0.5), alpha=0.5)
    logits = (torch.randn(1, 60_000, CLASSES, generator=torch.Generator().manual_seed(0)) - 14).to(dtype)
    targets = [{"boxes": torch.zeros(1, 4), "labels": torch.tensor([1])}]
    matched = [torch.full((60_000,), -1)]
    precise = head.compute_loss(targets, {"cls_logits": logits.double()}, matched).item()
    assert head.compute_loss(targets, {"cls_logits": logits}, matched).item() == pytest.approx(precise, rel=rel)
