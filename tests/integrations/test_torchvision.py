"""RetinaNet with any curve: torchvision's own loss at focal 2 and 0.25, and every divisor."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torchvision.models.detection import retinanet_resnet50_fpn, retinanet_resnet50_fpn_v2
from torchvision.models.detection.retinanet import RetinaNetClassificationHead, RetinaNetRegressionHead

from box_toys import tiny_retinanet
from encouraging import curves, sigmoid_curve_loss
from encouraging.errors import ArgumentError, DtypeError
from encouraging.integrations.torchvision import with_curve
from strategies import generator

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
