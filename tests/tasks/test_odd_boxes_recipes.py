"""Options of detectors, and labels of one's own training loop, that cannot be: refused before anything is trained."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import torch

from box_toys import tiny_retinanet, write_recipe, write_voc
from encouraging import curves
from encouraging.data.voc import read_voc
from encouraging.errors import ArgumentError, RecipeError, ShapeError
from encouraging.integrations.torchvision import with_curve
from encouraging.models.detection import build_detector, check_detector
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task
from encouraging.tasks.box_metrics import Evaluator


@pytest.mark.parametrize(("options", "words"), [
    ({"score_thresh": "abc"}, "score_thresh = 'abc': expected a number from 0.0 to 1.0"),
    ({"score_thresh": float("nan")}, "score_thresh = nan"), ({"nms_thresh": -1}, "nms_thresh = -1"),
    ({"detections_per_img": 0}, "detections_per_img = 0: expected a whole number of 1 or more"),
    ({"detections_per_img": 2.5}, "expected a whole number"), ({"topk_candidates": True}, "topk_candidates = True"),
    ({"trainable_layers": 9}, "trainable_layers = 9: expected a whole number from 0 to 5"),
    ({"fg_iou_thresh": 0.2}, "bg_iou_thresh = 0.4 with fg_iou_thresh = 0.2"),
    ({"bg_iou_thresh": [1]}, "bg_iou_thresh = [1]"),
])
def test_numbers_of_a_detector_are_checked_before_it_is_built(options, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        check_detector("retinanet_resnet18_fpn", options)


def test_numbers_at_their_limits_are_taken():
    check_detector("retinanet_resnet18_fpn", {"score_thresh": 0, "nms_thresh": 1, "detections_per_img": 1,
                                              "fg_iou_thresh": 0.4, "bg_iou_thresh": 0.4})


@pytest.mark.parametrize(("override", "words"), [
    ("options.sizes=[1]", "expected numbers of pixels, 2 or more"), ("options.test_size=1", "options.test_size"),
    ("arms.focal.logit_scale=3", "logit_scale belong to classification"),
])
def test_options_without_an_effect_or_without_an_image_are_refused(tmp_path, override, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        read_recipe(write_recipe(tmp_path), [override])


def batch(dtype: torch.dtype = torch.int64):
    images = [torch.rand(3, 48, 60, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    two = torch.tensor([[5.0, 5, 25, 25], [30, 20, 45, 40]])
    return images, [{"boxes": two, "labels": torch.tensor([1, 2]).to(dtype)},
                    {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=dtype)}]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_labels_of_any_integer_type_teach_the_same(dtype):
    """-1 marks the background, and as a byte it would be 255: every box was taught as background."""
    torch.manual_seed(0)
    model = tiny_retinanet(3).train()
    expected = model(*batch())["classification"]
    found = with_curve(copy.deepcopy(model), curves.focal(2.0), alpha=0.25)(*batch(dtype))["classification"]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("labels", [torch.tensor([1]), torch.tensor([1, 2, 0]), torch.tensor([[1], [2]])])
@pytest.mark.parametrize("divisor", ["images", "moving_positives"])
def test_as_many_labels_as_boxes_are_expected(labels, divisor):
    model = with_curve(tiny_retinanet(3).train(), curves.focal(2.0), divisor=divisor)
    images, targets = batch()
    targets[0]["labels"] = labels
    with pytest.raises(ShapeError, match=r"with 2 boxes in image 0 of this batch: expected one class index for each"):
        model(images, targets)


@pytest.mark.parametrize("given", ["no", None, 1])
def test_from_zero_is_yes_or_no(given):
    with pytest.raises(ArgumentError, match="expected True or False"):
        with_curve(tiny_retinanet(3), curves.focal(2.0), from_zero=given)


def test_a_file_with_other_things_than_tensors_is_refused_without_advice_to_run_its_code(tmp_path):
    (tmp_path / "one.pth").write_text("import torch\n")
    torch.save(Path("x"), tmp_path / "two.pth")
    for name in ("one.pth", "two.pth"):
        with pytest.raises(RecipeError, match=rf"{name}: cannot be read .*: it is damaged, or contains") as error:
            build_detector("retinanet_resnet18_fpn", 2, {"weights": str(tmp_path / name)})
        assert "weights_only" not in str(error.value)


def test_without_detections_the_numbers_are_those_of_detections_that_are_all_wrong(tmp_path):
    """A model that has found nothing yet has an AP of small boxes where there are small boxes, and of no others: it can
    choose an epoch from the first one on."""
    boxes = read_voc(write_voc(tmp_path, {"train": 1, "test": 2}))
    evaluator = Evaluator(boxes, boxes.parts["test"])
    wrong = {place: {"boxes": torch.tensor([[0.0, 0, 2, 2]]), "labels": torch.tensor([0]), "scores": torch.ones(1)}
             for place in range(2)}
    nothing = {place: {key: value[:0] for key, value in one.items()} for place, one in wrong.items()}
    assert evaluator.measure(nothing) == evaluator.measure(wrong)
    assert evaluator.measure(nothing)[0].keys() == {"ap", "ap50", "ap75", "ap_small"}
    assert evaluator.absent == ["ap_medium", "ap_large"]


def test_a_size_that_no_box_has_cannot_choose_the_best_epoch(tmp_path):
    recipe = write_recipe(tmp_path)
    build_task("detection", read_recipe(recipe, ["train.monitor=val_ap_small"]).task_spec("focal"))
    for monitor, part in (("val_ap_large", "validation"), ("ap_medium", "test")):
        spec = read_recipe(recipe, [f"train.monitor={monitor}"]).task_spec("focal")
        with pytest.raises(RecipeError, match=f"monitor = '{monitor}': the {part} part of .* has no box of that size"):
            build_task("detection", spec)
