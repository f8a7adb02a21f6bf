"""RetinaNet by name: torchvision's own architectures, and weights from files."""

from __future__ import annotations

import re

import pytest
import safetensors.torch
import torch
from torchvision.models import resnet18
from torchvision.models.detection import retinanet_resnet50_fpn, retinanet_resnet50_fpn_v2
from torchvision.ops import FrozenBatchNorm2d

from encouraging import curves
from encouraging.errors import RecipeError
from encouraging.models.detection import build_detector, check_detector

SMALL = "retinanet_resnet18_fpn"


@pytest.mark.parametrize("build", [retinanet_resnet50_fpn, retinanet_resnet50_fpn_v2])
def test_by_name_it_is_torchvisions_model_weight_by_weight(build):
    torch.manual_seed(3)
    theirs = build(weights=None, weights_backbone=None, num_classes=4, min_size=64, max_size=96)
    ours = build_detector(build.__name__, 4, min_size=64, max_size=96)
    expected = {name: tensor.shape for name, tensor in theirs.state_dict().items()}
    assert {name: tensor.shape for name, tensor in ours.net.state_dict().items()} == expected
    ours.net.load_state_dict(theirs.state_dict())
    images = [torch.rand(3, 64, 80)]
    for one in (theirs, ours.net):
        one.score_thresh, one.topk_candidates, one.detections_per_img = 0.0, 20, 5
    torch.testing.assert_close(ours.eval()(images), theirs.eval()(images))


def test_in_training_images_keep_their_size_and_in_evaluation_the_model_resizes_them():
    model = build_detector(SMALL, 2, min_size=64, max_size=96)
    images, sizes = [torch.rand(3, 50, 40)], []
    model.net.backbone.register_forward_pre_hook(lambda module, inputs: sizes.append(inputs[0].shape[-2:]))
    target = {"boxes": torch.tensor([[3.0, 4.0, 30.0, 40.0]]), "labels": torch.tensor([1])}
    model.train()(images, [target], curves.focal(1.0))
    model.eval()(images)
    assert [tuple(size) for size in sizes] == [(64, 64), (96, 64)]  # both are filled up to multiples of 32


def test_under_autocast_anchors_are_not_rounded():
    """In bfloat16 a corner at 601 would be 600 or 604."""
    model = build_detector(SMALL, 2).train()
    seen = []
    model.net.anchor_generator.register_forward_hook(lambda module, inputs, anchors: seen.append(anchors[0]))
    with torch.autocast("cpu", torch.bfloat16):
        model([torch.zeros(3, 64, 640)], [{"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.long)}],
              curves.focal(1.0))
    with torch.no_grad():
        model([torch.zeros(3, 64, 640)], [{"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.long)}],
              curves.focal(1.0))
    assert torch.equal(*seen)
    assert seen[0].dtype == torch.float32


def test_under_autocast_giou_compares_boxes_that_are_not_rounded(monkeypatch):
    """torchvision decodes boxes in the type of the predicted offsets."""
    model = build_detector("retinanet_resnet50_fpn_v2", 2).train()
    decoded, decode = [], model.net.head.regression_head.box_coder.decode_single

    def spy(codes, anchors):
        decoded.append(decode(codes, anchors))
        return decoded[-1]

    monkeypatch.setattr(model.net.head.regression_head.box_coder, "decode_single", spy)
    target = {"boxes": torch.tensor([[600.0, 5.0, 635.0, 45.0]]), "labels": torch.tensor([1])}
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        model([torch.zeros(3, 64, 640)], [target], curves.focal(1.0))
    assert decoded[0].dtype == torch.float32


@pytest.mark.parametrize("ending", [".pth", ".safetensors"])
def test_a_backbone_starts_from_a_file_with_frozen_norms_and_first_stages(tmp_path, ending):
    torch.manual_seed(0)
    state = resnet18(weights=None).state_dict()
    path = tmp_path / f"resnet18{ending}"
    torch.save(state, path) if ending == ".pth" else safetensors.torch.save_file(state, path)
    model = build_detector(SMALL, 2, {"backbone_weights": path.name}, folder=str(tmp_path))
    body = model.net.backbone.body
    assert torch.equal(body.layer4[1].conv2.weight, state["layer4.1.conv2.weight"])
    assert isinstance(body.bn1, FrozenBatchNorm2d)
    learning = {name.split(".")[0] for name, param in body.named_parameters() if param.requires_grad}
    assert learning == {"layer2", "layer3", "layer4"}
    every = build_detector(SMALL, 2, {"backbone_weights": str(path), "trainable_layers": 5}).net.backbone.body
    assert all(param.requires_grad for param in every.parameters())


def test_a_whole_detector_starts_from_a_file_and_its_last_layer_anew_for_other_classes(tmp_path):
    torch.manual_seed(0)
    whole = build_detector(SMALL, 5).net
    torch.save(whole.state_dict(), tmp_path / "whole.pth")
    same, other = (build_detector(SMALL, classes, {"weights": str(tmp_path / "whole.pth")}).net for classes in (5, 2))
    for net in (same, other):
        assert torch.equal(net.head.regression_head.bbox_reg.weight, whole.head.regression_head.bbox_reg.weight)
        assert torch.equal(net.head.classification_head.conv[0][0].weight,
                           whole.head.classification_head.conv[0][0].weight)
    assert torch.equal(same.head.classification_head.cls_logits.weight,
                       whole.head.classification_head.cls_logits.weight)
    assert other.head.classification_head.cls_logits.out_channels == 18


@pytest.mark.parametrize(("make", "words"), [
    (lambda path: None, "there is no such file"), (lambda path: path.write_text("text"), "cannot be read as a file of"),
    (lambda path: torch.save([1], path), "expected a dict of tensors"),
    (lambda path: torch.save({"conv1.weight": torch.zeros(64, 3, 7, 7)}, path), "lacks bn1.weight and"),
    (lambda path: torch.save({**resnet18().state_dict(), "conv1.weight": torch.zeros(2)}, path), "conv1.weight"),
    (lambda path: torch.save({**resnet18().state_dict(), "more": torch.zeros(2)}, path), "has the unknown more"),
])
def test_other_files_are_refused_in_words(tmp_path, make, words):
    make(tmp_path / "file.pth")
    with pytest.raises(RecipeError, match=re.escape(words)):
        build_detector(SMALL, 2, {"backbone_weights": str(tmp_path / "file.pth")})


def test_a_damaged_file_is_refused_in_words_whatever_its_ending(tmp_path):
    for ending in ("pth", "safetensors"):
        path = tmp_path / f"file.{ending}"
        path.write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{not json")
        for key in ("backbone_weights", "weights"):
            with pytest.raises(RecipeError, match=rf"file\.{ending}: cannot be read as a file of weights"):
                build_detector(SMALL, 2, {key: str(path)})


@pytest.mark.parametrize(("name", "options", "words"), [
    ("retinanet_resnet50", {}, "Did you mean 'retinanet_resnet50_fpn'"),
    (SMALL, {"nms_tresh": 1}, "Did you mean 'nms_thresh'"),
    (SMALL, {"trainable_layers": 3}, "all layers learn"),
    (SMALL, {"weights": __file__, "backbone_weights": __file__}, "give one"),
    (f"{__file__}:not_a_model", {}, "no 'not_a_model'"),
])
def test_models_that_cannot_be_are_refused_before_anything_is_built(name, options, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        check_detector(name, options)


def linear(classes):
    return torch.nn.Linear(2, classes)


def test_a_function_of_ones_own_returns_a_retinanet():
    with pytest.raises(RecipeError, match="returned a Linear: expected a RetinaNet"):
        build_detector(f"{__file__}:linear", 2)
    with pytest.raises(RecipeError, match=r"classe: .* takes classes. Did you mean 'classes'"):
        build_detector(f"{__file__}:linear", 2, {"classe": 1})
