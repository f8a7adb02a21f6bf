"""RetinaNet with any curve: torchvision's own loss at focal 2 and 0.25, the halted forms, and every divisor."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torchvision.models.detection import retinanet_resnet50_fpn, retinanet_resnet50_fpn_v2
from torchvision.models.detection.retinanet import RetinaNetClassificationHead, RetinaNetRegressionHead

from box_toys import tiny_retinanet
from encouraging import curves, sigmoid_curve_loss
from encouraging.errors import ArgumentError, DtypeError
from encouraging.integrations.torchvision import CurveClassificationHead, least_value, with_curve
from strategies import SEEDS, generator

BETWEEN = -2  # an anchor between the thresholds of the matcher
CLASSES = 3


def batch(seed: int = 0, images: int = 3) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Images with boxes of different numbers; the last one has none."""
    g = generator(seed)
    targets = []
    for number in range(images):
        count = images - 1 - number
        corners = 24 * torch.rand(count, 2, generator=g)
        sides = 8 + 14 * torch.rand(count, 2, generator=g)
        targets.append({"boxes": torch.cat([corners, corners + sides], 1),
                        "labels": torch.randint(CLASSES, (count,), generator=g)})
    return [torch.rand(3, 48, 56, generator=g) for _ in range(images)], targets


def losses_and_gradients(model, images, targets):
    model.zero_grad()
    losses = model(images, targets)
    sum(losses.values()).backward()
    return losses, {name: param.grad.clone() for name, param in model.named_parameters()}


@pytest.mark.parametrize("build", [lambda: tiny_retinanet(CLASSES),
                                   lambda: retinanet_resnet50_fpn_v2(weights=None, weights_backbone=None, num_classes=3,
                                                                     min_size=48, max_size=64)], ids=["tiny", "v2"])
def test_focal_at_2_and_a_quarter_is_torchvisions_own_loss(build):
    torch.manual_seed(0)
    model = build().train()
    ours = with_curve(copy.deepcopy(model), curves.focal(2.0), alpha=0.25)
    (expected, gradients), (found, our_gradients) = (losses_and_gradients(one, *batch()) for one in (model, ours))
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=1e-7)
    for name, gradient in gradients.items():
        assert (our_gradients[name] - gradient).norm() <= 2e-3 * gradient.norm() + 1e-7, name
    assert list(ours.state_dict()) == list(model.state_dict())


def test_a_detector_of_one_class_has_torchvisions_own_loss():
    torch.manual_seed(0)
    model = tiny_retinanet(1).train()
    ours = with_curve(copy.deepcopy(model), curves.focal(2.0), alpha=0.25)
    images, targets = batch()
    targets = [{**target, "labels": torch.zeros_like(target["labels"])} for target in targets]
    (expected, _), (found, _) = (losses_and_gradients(one, images, targets) for one in (model, ours))
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("build", [retinanet_resnet50_fpn, retinanet_resnet50_fpn_v2])
def test_weights_and_detections_stay_as_they_are(build):
    model = build(weights=None, weights_backbone=None, num_classes=CLASSES, min_size=32, max_size=48, score_thresh=0.0,
                  detections_per_img=3, topk_candidates=20).eval()
    before, weights = model([torch.ones(3, 32, 32)]), {name: t.clone() for name, t in model.state_dict().items()}
    assert with_curve(model, curves.encouraging(0.75)) is model
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name])
    torch.testing.assert_close(model([torch.ones(3, 32, 32)]), before)
    assert isinstance(model.head.classification_head, RetinaNetClassificationHead)
    assert type(model.head.regression_head) is RetinaNetRegressionHead


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


def test_easy_negatives_would_make_the_loss_of_the_halted_form_very_negative():
    model = tiny_retinanet(CLASSES).train()
    images, targets = batch()
    torch.manual_seed(0)
    plain, from_zero = (with_curve(copy.deepcopy(model), curves.halted_focal(1.0, 0.5), alpha=0.5, from_zero=flag)
                        (images, targets)["classification"].item() for flag in (False, True))
    assert plain < -5
    assert 0 < from_zero < 5


@pytest.mark.parametrize("divisor", ["positives", "moving_positives"])
def test_both_heads_are_divided_by_the_same_number(divisor):
    torch.manual_seed(0)
    model = tiny_retinanet(CLASSES).train()
    images, targets = batch(images=4)
    each = [with_curve(copy.deepcopy(model), curves.focal(2.0), alpha=0.25)([image], [target])
            for image, target in zip(images, targets, strict=True)]
    ours = with_curve(model, curves.focal(2.0), alpha=0.25, divisor=divisor)
    counts = []
    for image, target in zip(images, targets, strict=True):
        probe = with_curve(copy.deepcopy(model), curves.focal(2.0))
        probe([image], [target])
        counts.append(int(probe.head.classification_head.positives))
    whole = sum(counts) if divisor == "positives" else 0.9 * 100 + 0.1 * sum(counts)
    found = ours(images, targets)
    for name in ("classification", "bbox_regression"):
        total = sum(losses[name].item() * max(count, 1) for losses, count in zip(each, counts, strict=True))
        assert found[name].item() == pytest.approx(total / whole, rel=1e-4), name


def test_the_moving_average_moves_once_per_batch_is_saved_and_goes_away_again():
    model = with_curve(tiny_retinanet(CLASSES).train(), curves.focal(1.0), divisor="moving_positives")
    head = model.head.classification_head
    images, targets = batch()
    model(images, targets)
    first = 0.9 * 100 + 0.1 * int(head.positives)
    assert head.moving_positives.item() == pytest.approx(first)
    model(images, targets)
    assert model.state_dict()["head.classification_head.moving_positives"].item() == pytest.approx(
        0.9 * first + 0.1 * int(head.positives))
    twin = copy.deepcopy(model)
    twin(images, targets)
    assert twin.head.regression_head.classification[0] is twin.head.classification_head
    with_curve(model, curves.focal(1.0))
    assert list(model.state_dict()) == list(tiny_retinanet(CLASSES).state_dict())


@pytest.mark.parametrize("halt", [0.5, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_has_the_curve_of_negatives_too(halt, dtype):
    """Class indices, weights per anchor, and both curves at once, as the head asks for them."""
    pytest.importorskip("triton")
    from encouraging.ops.triton import sigmoid_loss

    g = generator(5)
    logits = (6 * torch.randn(3, 40, CLASSES, generator=g)).to(dtype)
    logits.view(-1)[:3] = torch.tensor([0.0, 30.0, -30.0])
    present = torch.randint(-1, CLASSES, (3, 40), generator=g)
    weight = torch.rand(3, 40, 1, generator=g)
    curve = curves.halted_focal(1.0, halt)
    results = []
    for loss in (sigmoid_loss, sigmoid_curve_loss):
        z = logits.clone().requires_grad_()
        value = loss(z, present, curve, weight=weight, alpha=0.25, negative_curve=curve.on_logit(), reduction="sum")
        results.append((value.detach().float(), torch.autograd.grad(value, z)[0]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5 if dtype == torch.float32 else 1e-2, atol=1e-6)


def test_a_batch_without_a_single_box_has_a_loss():
    model = with_curve(tiny_retinanet(CLASSES).train(), curves.halted_focal(1.0, 0.5), alpha=0.5)
    empty = [{"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}] * 2
    losses, gradients = losses_and_gradients(model, [torch.rand(3, 48, 48)] * 2, empty)
    assert losses["classification"] > 0
    assert losses["bbox_regression"] == 0
    assert all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.parametrize("label", [-1, CLASSES])
def test_a_label_that_the_model_has_no_class_for_is_refused_and_not_taught_as_background(label):
    model = with_curve(tiny_retinanet(CLASSES).train(), curves.focal(2.0))
    images, targets = batch()
    targets[0]["labels"] = torch.full_like(targets[0]["labels"], label)
    with pytest.raises(ArgumentError, match=f"expected 0 to {CLASSES - 1}"):
        model(images, targets)
    for target in targets:
        target["labels"] = torch.ones(len(target["boxes"]))
    with pytest.raises(DtypeError, match=r"labels are torch\.float32: expected integers"):
        model(images, targets)


def test_under_autocast_the_loss_is_that_of_float32():
    torch.manual_seed(0)
    model = with_curve(tiny_retinanet(CLASSES).train(), curves.halted_focal(1.0, 0.5), alpha=0.5)
    expected = model(*batch())["classification"]
    with torch.autocast("cpu", torch.bfloat16):
        found = model(*batch())["classification"]
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=0.05)


@pytest.mark.parametrize(("how", "words"), [
    ({"divisor": "positive"}, "Did you mean 'positives'"), ({"alpha": 2.0}, "alpha=2.0"),
    ({"halt_on": "logits"}, "Did you mean 'logit'"), ({"halt_on": "logit"}, "expected curves.halted_focal"),
])
def test_wrong_arguments_are_refused_in_words(how, words):
    with pytest.raises(ArgumentError, match=words):
        with_curve(tiny_retinanet(CLASSES), curves.focal(2.0), **how)


def test_other_models_and_other_heads_are_refused_in_words():
    with pytest.raises(DtypeError, match="expected a RetinaNet"):
        with_curve(torch.nn.Linear(2, 2), curves.focal(2.0))
    with pytest.raises(DtypeError, match="expected a Curve"):
        with_curve(tiny_retinanet(CLASSES), "focal")

    class OwnHead(RetinaNetClassificationHead):
        pass

    model = tiny_retinanet(CLASSES)
    model.head.classification_head = OwnHead(16, 1, CLASSES)
    with pytest.raises(ArgumentError, match="the model has a OwnHead: expected torchvision's"):
        with_curve(model, curves.focal(2.0))
