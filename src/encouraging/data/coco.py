"""COCO's official layout of images with boxes.

    annotations/instances_train2017.json, instances_val2017.json
    train2017/*.jpg, val2017/*.jpg

The files number 80 classes from 1 to 90, with gaps; here they are counted from 0, in the order of those numbers. COCO's
own test part has no public boxes, so the test part is val2017, as is usual. Your own folder may have boxes for both,
``instances_val.json`` and ``instances_test.json``. Training uses neither crowd boxes nor images without other boxes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import DataError
from ._once import read_once
from .boxes import Boxes, BoxImage, BoxSet, make_image

PARTS = {"train": ("train2017", "train"), "validation": ("val2017", "val", "valid", "validation"),
         "test": ("test2017", "test")}


@read_once(lambda folder: (folder / "annotations").glob("*.json"))
def read_coco(folder: Path) -> Boxes:
    """The parts of a folder: ``instances_NAME.json`` beside the images in ``NAME/``. Without boxes for tests the
    validation part is the test part.

    Raises:
        DataError: a file is missing or damaged, or the parts have different classes.
    """
    parts: dict[str, BoxSet] = {}
    classes: list[tuple[int, str]] = []
    files = {part: file for part, names in PARTS.items() if (file := _annotations(folder, names)) is not None}
    if "test" not in files and "validation" in files:
        files["test"] = files.pop("validation")
    for part in ("train", "test"):
        if part not in files:
            names = PARTS["train"] if part == "train" else (*PARTS["validation"], *PARTS["test"])
            raise DataError(f"{folder / 'annotations'}: there is no instances_{names[0]}.json (or _"
                            f"{', _'.join(names[1:])}), the boxes of the {part} part.")
    for part, path in files.items():
        part_classes, images = _read_json(path, folder / path.stem.removeprefix("instances_"))
        if classes and part_classes != classes:
            raise DataError(f"{path}: has other categories than the training part.")
        classes = part_classes
        parts[part] = images
    with_boxes = tuple(image for image in parts["train"].images if bool((~image.crowd).any()))
    if with_boxes:
        parts["train"] = BoxSet(with_boxes, parts["train"].skipped)
    return Boxes(parts, tuple(name for _, name in classes), tuple(number for number, _ in classes))


def _annotations(folder: Path, names: tuple[str, ...]) -> Path | None:
    paths = (folder / "annotations" / f"instances_{name}.json" for name in names)
    return next((path for path in paths if path.is_file()), None)


def _read_json(path: Path, images: Path) -> tuple[list[tuple[int, str]], BoxSet]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))  # some editors write a byte order mark
        classes = sorted((_integer(entry["id"]), str(entry["name"])) for entry in content["categories"])
        label = {number: index for index, (number, _) in enumerate(classes)}
        of_image: dict[int, list[dict[str, Any]]] = {_integer(entry["id"]): [] for entry in content["images"]}
        for kind, ids in (("categories", label), ("images", of_image)):
            if len(ids) != len(content[kind]):
                raise ValueError(f"two of the {kind} have the same id")
        for entry in content["annotations"]:
            for key, defined in (("category_id", label), ("image_id", of_image)):
                if _integer(entry[key]) not in defined:
                    raise ValueError(f"annotation {entry.get('id')} has the {key} {entry[key]}, which the file does "
                                     "not have")
            of_image[int(entry["image_id"])].append(entry)
        box_images: list[BoxImage] = []
        skipped = 0
        for entry in sorted(content["images"], key=lambda entry: int(entry["id"])):
            objects = of_image[int(entry["id"])]
            boxes = [(x, y, x + w, y + h) for x, y, w, h in (object["bbox"] for object in objects)]
            image, without_area = make_image(
                images / entry["file_name"], int(entry["id"]), int(entry["width"]), int(entry["height"]), boxes,
                [label[int(object["category_id"])] for object in objects],
                [bool(_integer(object.get("iscrowd") or 0)) for object in objects],
                [float(w * h if (area := object.get("area")) is None else area)
                 for object, (_, _, w, h) in ((object, object["bbox"]) for object in objects)])
            box_images.append(image)
            skipped += without_area
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"{path}: expected COCO's instances, with images, annotations and categories "
                        f"({f'{error} is missing' if isinstance(error, KeyError) else error}).") from error
    return classes, BoxSet(tuple(box_images), skipped)


def _integer(value: Any) -> int:
    """An id as a number; a fraction is refused."""
    number = int(value)
    if isinstance(value, float) and number != value:
        raise ValueError(f"{value}: expected a whole number")
    return number
