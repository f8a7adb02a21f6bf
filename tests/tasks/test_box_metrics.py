"""Average precision: what pycocotools says about the official file, and where it says nothing."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from box_toys import write_coco, write_voc
from encouraging.data import generator
from encouraging.data.coco import read_coco
from encouraging.data.voc import read_voc
from encouraging.errors import RunError
from encouraging.tasks.box_metrics import NAMES, Evaluator


def guesses(part, seed: int, spread: float):
    """The true boxes moved a little, some with another class, and some boxes that are nowhere."""
    g = generator(seed)
    found = {}
    for place, image in enumerate(part.images):
        boxes = torch.cat([image.boxes + spread * torch.randn(image.boxes.shape, generator=g),
                           torch.tensor([[2.0, 2.0, 14.0, 15.0]])])
        labels = torch.cat([image.labels, torch.tensor([1])])
        wrong = torch.rand(len(labels), generator=g) < 0.2
        found[place] = {"boxes": boxes, "labels": torch.where(wrong, (labels + 1) % 3, labels),
                        "scores": torch.rand(len(labels), generator=g)}
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_numbers_are_those_of_the_official_file_with_crowds_areas_and_class_numbers(tmp_path, seed):
    boxes = read_coco(write_coco(tmp_path))
    part = boxes.parts["test"]
    found = guesses(part, seed, 1.5)
    whole, by_class = Evaluator(boxes, part).measure(found)
    rows = [[part.images[place].number, box[0], box[1], box[2] - box[0], box[3] - box[1], score, boxes.numbers[label]]
            for place, one in found.items() for box, score, label in
            zip(one["boxes"].tolist(), one["scores"].tolist(), one["labels"].tolist(), strict=True)]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(tmp_path / "annotations" / "instances_val2017.json"))
        truth.anns = {key: ann for key, ann in truth.anns.items() if ann["bbox"][2] > 0}
        truth.dataset["annotations"] = list(truth.anns.values())
        truth.createIndex()
        official = COCOeval(truth, truth.loadRes(np.array(rows)), "bbox")
        official.evaluate()
        official.accumulate()
        official.summarize()
    expected = {name: 100 * value for name, value in zip(NAMES, official.stats, strict=False) if value >= 0}
    assert whole == pytest.approx(expected, abs=1e-9)
    assert np.mean(list(by_class.values())) == pytest.approx(whole["ap"])
    assert set(by_class) == {"stop sign", "toothbrush"}  # the only person had no area


def test_the_truth_itself_has_100_and_no_detections_have_0(tmp_path, capsys):
    boxes = read_voc(write_voc(tmp_path, {"train": 1, "test": 4}))
    evaluator = Evaluator(boxes, boxes.parts["test"])
    exact = {place: {"boxes": image.boxes, "labels": image.labels, "scores": torch.ones(len(image.labels))}
             for place, image in enumerate(boxes.parts["test"].images)}
    whole, by_class = evaluator.measure(exact)
    assert whole == pytest.approx({"ap": 100, "ap50": 100, "ap75": 100, "ap_small": 100})  # all are below 32 pixels
    assert by_class == pytest.approx({"blue": 100, "red": 100})
    nothing = {place: {name: value[:0] for name, value in one.items()} for place, one in exact.items()}
    whole, by_class = evaluator.measure(nothing)
    assert whole == {"ap": 0.0, "ap50": 0.0, "ap75": 0.0, "ap_small": 0.0}
    assert set(by_class.values()) == {0.0}
    assert capsys.readouterr().out == ""
    with pytest.raises(RunError, match="detections of 3 images: expected those of all 4"):
        evaluator.measure({place: exact[place] for place in range(3)})
