"""The two layouts of images with boxes, Pascal VOC's and COCO's: what is read of them, and what is refused."""

from __future__ import annotations

import json
import math
import re
import shutil

import pytest
import torch

from box_toys import drawn, voc_xml, write_coco, write_voc
from encouraging.data import data_dir, missing
from encouraging.data.boxes import read_boxes
from encouraging.data.coco import read_coco
from encouraging.data.registry import VARIABLE
from encouraging.data.voc import read_voc
from encouraging.errors import DataError


def test_a_voc_box_of_one_pixel_line_has_no_area(tmp_path):
    write_voc(tmp_path, {"train": 1, "test": 1})
    (tmp_path / "Annotations" / "image000.xml").write_text(voc_xml(60, 48, [("red", (8, 9, 9, 30)),
                                                                           ("blue", (8, 9, 20, 30))]))
    part = read_voc(tmp_path).parts["train"]
    assert part.skipped == 1
    assert part.images[0].boxes.tolist() == [[8, 9, 20, 30]]


def test_cocos_layout_has_its_class_numbers_crowds_and_areas(tmp_path):
    boxes = read_coco(write_coco(tmp_path))
    assert boxes.names == ("person", "stop sign", "toothbrush")
    assert boxes.numbers == (1, 13, 90)
    train, test = boxes.parts["train"], boxes.parts["test"]
    assert [image.number for image in train.images] == [100, 101]  # without the empty one and the one of a crowd
    assert [image.number for image in test.images] == [200, 201, 202, 203]
    assert (train.skipped, test.skipped) == (1, 1)
    assert test.images[3].crowd.all()
    assert len(test.images[2].boxes) == 0
    _, corners, labels = drawn(201)
    assert test.images[1].boxes.tolist() == [list(map(float, box)) for box in corners]
    assert test.images[1].labels.tolist() == [label + 1 for label in labels]
    left, top, right, bottom = corners[0]
    assert test.images[1].areas[0].item() == pytest.approx(0.7 * (right - left) * (bottom - top))
    assert read_boxes(f"folder:{tmp_path}").numbers == (1, 13, 90)


def test_a_coco_folder_of_ones_own_may_have_three_parts(tmp_path):
    """Boxes for tests were not read, and those for validation were called test."""
    write_coco(tmp_path)
    for kind in ("val", "test"):
        (tmp_path / kind).mkdir()
    shutil.copytree(tmp_path / "train2017", tmp_path / "test", dirs_exist_ok=True)
    shutil.copy(tmp_path / "annotations" / "instances_train2017.json", tmp_path / "annotations" / "instances_test.json")
    parts = read_coco(tmp_path).parts
    assert [image.number for image in parts["validation"].images] == [200, 201, 202, 203]
    assert [image.number for image in parts["test"].images] == [100, 101, 102, 103]
    assert parts["test"].images[0].path.parent.name == "test"


@pytest.mark.parametrize(("missing", "words"), [
    ("train2017", r"there is no instances_train2017.json \(or _train\), the boxes of the train part"),
    ("val2017", r"there is no instances_val2017.json \(or _val, _valid, _validation, _test2017, _test\)")])
def test_a_part_that_a_coco_folder_lacks_is_named(tmp_path, missing, words):
    write_coco(tmp_path)
    (tmp_path / "annotations" / f"instances_{missing}.json").unlink()
    with pytest.raises(DataError, match=words):
        read_coco(tmp_path)


BROKEN = {
    "Annotations/image000.xml": [(None, "there is no such file"), ("<annotation>", "expected an annotation"),
                                 ("<annotation><size><width>60</width></size></annotation>", "size/height is missing"),
                                 (voc_xml(61, 48, [("red", (1, 1, 9, 9))]), "its annotations say 61 x 48"),
                                 (voc_xml(0, 0, [("red", (1, 1, 9, 9))]), "say 0 x 0 pixels: expected the size"),
                                 (voc_xml(60, 48, [("red", (1, 1, float("nan"), 9))]), "four finite numbers"),
                                 (voc_xml(60, 48, [("red", (1, 1, float("inf"), 9))]), "four finite numbers"),
                                 (voc_xml(60, 48, []), "the 1 images of 'train' have no box"),
                                 (voc_xml(60, 48, [("red", (8, 9, 9, 30))]), "1 were left out")],
    "ImageSets/Main/val.txt": [("", "expected images in 'validation'")],
    "ImageSets/Main/train.txt": [(None, "expected train.txt and test.txt"), ("image000\nimage000\n", "twice"),
                                 ("", "expected images in 'train'")],
    "JPEGImages/image000.jpg": [(None, "there is no such image"), ("no image", "not an image that can be read")],
}


@pytest.mark.parametrize(("file", "content", "words"), [(file, content, words) for file, cases in BROKEN.items()
                                                        for content, words in cases])
def test_a_damaged_voc_folder_is_refused_in_words(tmp_path, file, content, words):
    write_voc(tmp_path, {"train": 1, "test": 1})
    (tmp_path / file).unlink(missing_ok=True)
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match=re.escape(words)):
        read_voc(tmp_path).parts["train"].images[0].read()


@pytest.mark.parametrize(("change", "words"), [
    (lambda content: content.pop("categories"), "expected COCO's instances"),
    (lambda content: content["annotations"][0].update(category_id=7), "annotation 1 has the category_id 7"),
    (lambda content: content["annotations"][0].update(image_id=7), "annotation 1 has the image_id 7"),
    (lambda content: content["annotations"][0].update(bbox=[math.nan] * 4), "four finite numbers"),
    (lambda content: content["images"][0].update(id=content["images"][1]["id"]), "two of the images have the same id"),
    (lambda content: content["categories"][0].update(id=1), "two of the categories have the same id"),
    (lambda content: content["images"][0].update(width=0), "0 x 48 pixels"),
    (lambda content: content["annotations"].clear(), "the 4 images of 'test' have no box"),
    (lambda content: content["categories"].append({"id": 5, "name": "boat"}), "other categories"),
])
def test_a_damaged_coco_file_is_refused_in_words(tmp_path, change, words):
    path = write_coco(tmp_path) / "annotations" / "instances_val2017.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=re.escape(words)):
        read_coco(tmp_path)


def test_a_coco_box_without_an_area_of_its_own_has_that_of_its_sides(tmp_path):
    path = write_coco(tmp_path) / "annotations" / "instances_val2017.json"
    content = json.loads(path.read_text())
    content["annotations"][0]["area"] = None
    del content["annotations"][1]["area"]
    path.write_text(json.dumps(content))
    image = read_coco(tmp_path).parts["test"].images[0]
    assert torch.equal(image.areas, (image.boxes[:, 2:] - image.boxes[:, :2]).prod(1))


@pytest.mark.skipif(bool(missing("bccd", data_dir())), reason=f"BCCD is not in the data directory ({VARIABLE})")
def test_the_blood_cells_are_as_they_are_shipped():
    boxes = read_boxes("bccd")
    assert boxes.names == ("Platelets", "RBC", "WBC")
    assert {part: len(images) for part, images in boxes.parts.items()} == {"train": 205, "validation": 87, "test": 72}
    assert {part: images.skipped for part, images in boxes.parts.items()} == {"train": 1, "validation": 1, "test": 0}
    counts = torch.bincount(torch.cat([image.labels for images in boxes.parts.values() for image in images.images]))
    assert counts.tolist() == [361, 4153, 372]
    every = torch.cat([image.boxes for images in boxes.parts.values() for image in images.images])
    assert (every.amin(0).tolist(), every[:, 2:].amax(0).tolist()) == ([0, 0, every[:, 2].min(), every[:, 3].min()],
                                                                      [640, 480])
    assert boxes.parts["test"].images[0].read().shape == (3, 480, 640)
