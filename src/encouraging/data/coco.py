"""COCO's official layout of images with boxes.

    annotations/instances_train2017.json, instances_val2017.json
    train2017/*.jpg, val2017/*.jpg

The files number 80 classes from 1 to 90, with holes; here they count from 0, in the order of those numbers. The test
part is val2017, on which everyone reports. Training leaves crowd boxes out, and images without any other box.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import DataError
from .boxes import Boxes, BoxImage, BoxSet, make_image

PARTS = {"train": ("train2017", "train"), "test": ("val2017", "val", "valid", "test")}


@lru_cache(maxsize=2)
def read_coco(folder: Path) -> Boxes:
    """The parts of a folder: ``instances_NAME.json`` beside the images in ``NAME/``.

    Raises:
        DataError: a file is missing or damaged, or the two parts have other classes.
    """
    parts: dict[str, BoxSet] = {}
    classes: list[tuple[int, str]] = []
    for part, names in PARTS.items():
        path = _annotations(folder, names)
        found, images = _read_json(path, folder / path.stem.removeprefix("instances_"))
        if classes and found != classes:
            raise DataError(f"{path}: has other categories than the training part.")
        classes = found
        parts[part] = images
    taught = tuple(image for image in parts["train"].images if bool((~image.crowd).any()))
    if taught:
        parts["train"] = BoxSet(taught, parts["train"].skipped)
    return Boxes(parts, tuple(name for _, name in classes), tuple(number for number, _ in classes))


def _annotations(folder: Path, names: tuple[str, ...]) -> Path:
    places = [folder / "annotations" / f"instances_{name}.json" for name in names]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise DataError(f"{places[0]}: there is no such file.")
    return found


def _read_json(path: Path, images: Path) -> tuple[list[tuple[int, str]], BoxSet]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
        classes = sorted((_whole(entry["id"]), str(entry["name"])) for entry in content["categories"])
        label = {number: index for index, (number, _) in enumerate(classes)}
        of_image: dict[int, list[dict[str, Any]]] = {_whole(entry["id"]): [] for entry in content["images"]}
        for kind, found_ids in (("categories", label), ("images", of_image)):
            if len(found_ids) != len(content[kind]):
                raise ValueError(f"two of the {kind} have the same id")
        for entry in content["annotations"]:
            for key, known in (("category_id", label), ("image_id", of_image)):
                if _whole(entry[key]) not in known:
                    raise ValueError(f"annotation {entry.get('id')} has the {key} {entry[key]}, which the file does "
                                     "not have")
            of_image[int(entry["image_id"])].append(entry)
        found: list[BoxImage] = []
        skipped = 0
        for entry in sorted(content["images"], key=lambda entry: int(entry["id"])):
            objects = of_image[int(entry["id"])]
            boxes = [(x, y, x + w, y + h) for x, y, w, h in (object["bbox"] for object in objects)]
            image, without = make_image(
                images / entry["file_name"], int(entry["id"]), int(entry["width"]), int(entry["height"]), boxes,
                [label[int(object["category_id"])] for object in objects],
                [bool(_whole(object.get("iscrowd") or 0)) for object in objects],
                [float(w * h if (area := object.get("area")) is None else area)
                 for object, (_, _, w, h) in ((object, object["bbox"]) for object in objects)])
            found.append(image)
            skipped += without
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"{path}: expected COCO's instances, with images, annotations and categories "
                        f"({f'{error} is missing' if isinstance(error, KeyError) else error}).") from error
    return classes, BoxSet(tuple(found), skipped)


def _whole(value: Any) -> int:
    """An id as a number; one with a fraction is nobody's."""
    number = int(value)
    if isinstance(value, float) and number != value:
        raise ValueError(f"{value}: expected a whole number")
    return number
