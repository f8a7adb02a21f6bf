"""Boxes as people have them: odd ids, names, areas, encodings and image files are read right, or refused in words."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from box_toys import drawn, voc_xml, write_coco, write_voc
from encouraging.data import Boxes, BoxSet
from encouraging.data.boxes import make_image
from encouraging.data.coco import read_coco
from encouraging.data.voc import read_voc
from encouraging.errors import DataError
from encouraging.tasks.box_metrics import Evaluator


def change_coco(folder: Path, change) -> Path:
    """The same change in both parts."""
    for path in (write_coco(folder) / "annotations").iterdir():
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
    return folder


def exact(part: BoxSet) -> dict:
    """Every true box, detected."""
    return {place: {"boxes": image.boxes, "labels": image.labels, "scores": torch.ones(len(image.labels))}
            for place, image in enumerate(part.images)}


def large_ids(content: dict) -> None:
    for entry in content["images"]:
        entry["id"] += 2**60
    for entry in content["annotations"]:
        entry["image_id"] += 2**60


def large_class_ids(content: dict) -> None:
    for entry in content["categories"]:
        entry["id"] += 2**60
    for entry in content["annotations"]:
        entry["category_id"] += 2**60


@pytest.mark.parametrize("change", [large_ids, large_class_ids])
def test_ids_that_a_float64_does_not_have_are_measured_like_others(tmp_path, change):
    boxes = read_coco(change_coco(tmp_path, change))
    assert Evaluator(boxes, boxes.parts["test"]).measure(exact(boxes.parts["test"]))[0]["ap"] == pytest.approx(100)


def test_images_of_ones_own_may_share_a_number():
    corners = [(1, 1, 9, 9), (20, 20, 40, 40)]
    images = [make_image(Path("x.png"), 1, 60, 48, [box], [0])[0] for box in corners]
    boxes = Boxes({"train": BoxSet(images), "test": BoxSet(images)}, ("one",))
    evaluator, found = Evaluator(boxes, boxes.parts["test"]), exact(boxes.parts["test"])
    assert evaluator.measure(found)[0]["ap"] == pytest.approx(100)
    assert evaluator.measure({0: found[1], 1: found[0]})[0]["ap"] == 0


@pytest.mark.parametrize("corner", range(4))
def test_a_predicted_box_that_is_not_a_number_finds_nothing(tmp_path, corner):
    """pycocotools would match it with any box."""
    boxes = read_voc(write_voc(tmp_path, {"train": 1, "test": 2}))
    found = exact(boxes.parts["test"])
    for one in found.values():
        one["boxes"] = one["boxes"].clone()
        one["boxes"][:, corner] = math.nan
    assert Evaluator(boxes, boxes.parts["test"]).measure(found)[0]["ap"] == 0


@pytest.mark.parametrize(("change", "words"), [
    (lambda content: content["annotations"][0].update(area=math.nan), "the area of a box is nan"),
    (lambda content: content["annotations"][0].update(area=-3), "the area of a box is -3"),
    (lambda content: content["annotations"][0].update(category_id=13.5), "13.5: expected a whole number"),
    (lambda content: content["annotations"][0].update(category_id=math.inf), "infinity"),
    (lambda content: content["annotations"][0].update(bbox=[10**400, 1, 2, 3]), "four finite numbers"),
    (lambda content: content["annotations"][0].update(bbox=["1", "2", "3", "4"]), "four finite numbers"),
    (lambda content: content["images"][0].update(width=math.inf), "infinity"),
    (lambda content: [entry.update(name="thing") for entry in content["categories"]], "two classes have 'thing'"),
])
def test_numbers_and_names_that_cannot_be_are_refused_in_words(tmp_path, change, words):
    with pytest.raises(DataError, match=re.escape(words)):
        read_coco(change_coco(tmp_path, change))


def test_json_that_is_nested_too_deep_is_refused_in_words(tmp_path):
    path = write_coco(tmp_path) / "annotations" / "instances_val2017.json"
    path.write_text("[" * 100_000)
    with pytest.raises(DataError, match="expected COCO's instances"):
        read_coco(tmp_path)


def test_zero_as_text_is_no_crowd(tmp_path):
    def change(content):
        for entry in content["annotations"]:
            entry["iscrowd"] = str(entry["iscrowd"])

    plain, text = read_coco(write_coco(tmp_path / "a")), read_coco(change_coco(tmp_path / "b", change))
    for ours, theirs in zip(text.parts["test"].images, plain.parts["test"].images, strict=True):
        assert torch.equal(ours.crowd, theirs.crowd)


def test_byte_order_marks_are_no_text(tmp_path):
    for path in [*(write_coco(tmp_path / "coco") / "annotations").iterdir(),
                 *(write_voc(tmp_path / "voc", {"train": 1, "test": 1}) / "ImageSets" / "Main").iterdir()]:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_coco(tmp_path / "coco").parts["test"]) == 4
    assert len(read_voc(tmp_path / "voc").parts["test"]) == 1


@pytest.mark.parametrize(("file", "content", "words"), [
    ("ImageSets/Main/train.txt", "bildö\n".encode("latin-1"), "train.txt: expected the names of images, in UTF-8"),
    ("Annotations/image000.xml", voc_xml(60, 48, []).replace("60", "1e999").encode(), "infinity"),
    ("Annotations/image000.xml", None, "image000.xml: expected an annotation"),
])
def test_files_of_vocs_layout_that_cannot_be_read_are_named(tmp_path, file, content, words):
    write_voc(tmp_path, {"train": 1, "test": 1})
    if content is None:
        (tmp_path / file).unlink()
        (tmp_path / file).mkdir()
    else:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_voc(tmp_path)


@pytest.mark.parametrize(("name", "content"), [
    ("one.ppm", b"P6 6x 48 255\n" + bytes(9)), ("one.png", None), ("one.bmp", None)])
def test_a_damaged_image_of_any_format_is_refused_in_words(tmp_path, name, content):
    path = tmp_path / name
    if content is None:
        Image.fromarray(drawn(1)[0]).save(path)
        content = bytearray(path.read_bytes())
        if name.endswith("png"):
            content[8:12] = b"\0\0\0\2"  # a header of two bytes
        else:
            content[18:26] = b"\xff\xff\xff\0\xff\xff\xff\0"  # far more pixels than Pillow takes
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{name}: not an image that can be read"):
        make_image(path, 1, 60, 48, [], [])[0].read()


@pytest.mark.parametrize(("given", "words"), [
    ({"labels": [0.7]}, "a label is 0.7: expected a class index"), ({"labels": [math.nan]}, "a label is nan"),
    ({"labels": ["cat"]}, "a label is cat"), ({"labels": [2**70]}, "expected a class index"),
    ({"areas": [math.nan]}, "the area of a box is nan"), ({"areas": [None]}, "the area of a box is None"),
    ({"boxes": [5]}, "a box is 5: expected four"), ({"boxes": [("1", "2", "3", "4")]}, "expected four finite numbers"),
    ({"width": 60.5}, "60.5 x 48 pixels"), ({"width": "60"}, "expected the size of the image"),
])
def test_what_is_no_box_no_label_and_no_size_is_refused_instead_of_rounded(given, words):
    one = {"width": 60, "height": 48, "boxes": [(1, 1, 9, 9)], "labels": [0]} | given
    with pytest.raises(DataError, match=re.escape(words)):
        make_image(Path("x.png"), 1, **one)


@pytest.mark.parametrize("boxes", [[torch.tensor([1.0, 1, 9, 9])], torch.tensor([[1.0, 1, 9, 9]]),
                                   np.array([[1, 1, 9, 9]])])
def test_boxes_labels_and_sizes_may_be_tensors_and_arrays(boxes):
    image, _ = make_image(Path("x.png"), 1, np.int64(60), 48, boxes, np.array([1]), areas=np.array([3.0]))
    assert image.boxes.tolist() == [[1, 1, 9, 9]]
    assert image.labels.tolist() == [1]
    assert image.areas.tolist() == [3]


@pytest.mark.parametrize(("how", "words"), [
    ({"names": "cat"}, "expected a list of names"), ({"names": ("a", "a")}, "two classes have 'a'"),
    ({"names": ("a", "b"), "numbers": (1,)}, "2 names of classes with 1 numbers"),
    ({"names": ("a", "b"), "numbers": (4, 4)}, "two classes have 4"),
])
def test_every_class_has_a_name_and_a_number_of_its_own(how, words):
    part = BoxSet([make_image(Path("x.png"), 1, 60, 48, [(1, 1, 9, 9)], [0])[0]])
    with pytest.raises(DataError, match=words):
        Boxes({"train": part, "test": part}, **how)


def test_a_part_is_a_set_of_boxes():
    images = [make_image(Path("x.png"), 1, 60, 48, [(1, 1, 9, 9)], [0])[0]]
    with pytest.raises(DataError, match="the part 'train' is a list: expected a BoxSet"):
        Boxes({"train": images, "test": BoxSet(images)}, ("a",))
