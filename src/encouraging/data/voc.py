"""Pascal VOC's layout of images with boxes.

    ImageSets/Main/train.txt, val.txt, test.txt   the names of the images of each part
    Annotations/NAME.xml                          size, and name and bndbox of every object
    JPEGImages/NAME.jpg                           the images

Corners are pixels counted from 1, both ends included: a box from 1 to the width covers the whole image. Here it is 0 to
the width. A box whose ends are the same pixel has no area, is left out and is counted. Objects that are marked
*difficult* count like all others.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from ..errors import DataError
from ._once import read_once
from .boxes import Boxes, BoxImage, BoxSet, make_image
from .class_folders import ENDINGS

PARTS = {"train": ("train",), "validation": ("val", "valid", "validation"), "test": ("test",)}
CORNERS = ("xmin", "ymin", "xmax", "ymax")
_Object = tuple[str, tuple[float, float, float, float]]


def _paths(folder: Path) -> list[Path]:
    return [*(folder / "ImageSets" / "Main").glob("*.txt"), *(folder / "Annotations").glob("*.xml"),
            folder / "JPEGImages"]  # a new image there may have another ending


@read_once(_paths, keep=4)
def read_voc(folder: Path) -> Boxes:
    """The parts of a folder, with the classes in alphabetical order. Without a list for tests the validation part is
    the test part.

    Raises:
        DataError: a file is missing or damaged.
    """
    lists = {part: listed for part, names in PARTS.items() if (listed := _list(folder, names)) is not None}
    if "test" not in lists and "validation" in lists:
        lists["test"] = lists.pop("validation")
    if not {"train", "test"} <= lists.keys():
        raise DataError(f"{folder / 'ImageSets' / 'Main'}: expected train.txt and test.txt (or val.txt), lists of the "
                        "images of each part.")
    annotations = {name: _read_xml(folder / "Annotations" / f"{name}.xml") for names in lists.values()
                   for name in names}
    classes = sorted({label for _, _, objects in annotations.values() for label, _ in objects})
    if not classes:
        raise DataError(f"{folder / 'Annotations'}: no annotation names an object.")
    parts = {}
    for part, names in lists.items():
        images: list[BoxImage] = []
        skipped = 0
        for number, name in enumerate(names, 1):
            width, height, objects = annotations[name]
            image, without_area = make_image(_image_path(folder, name), number, width, height,
                                             [box for _, box in objects],
                                             [classes.index(label) for label, _ in objects])
            images.append(image)
            skipped += without_area
        parts[part] = BoxSet(tuple(images), skipped)
    return Boxes(parts, tuple(classes))


def _list(folder: Path, names: tuple[str, ...]) -> list[str] | None:
    for name in names:
        path = folder / "ImageSets" / "Main" / f"{name}.txt"
        if path.is_file():
            try:
                text = path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
            except (OSError, UnicodeDecodeError) as error:
                raise DataError(f"{path}: expected the names of images, in UTF-8 ({error}).") from error
            lines = [line.split()[0] for line in text.splitlines() if line.strip()]
            if len(set(lines)) != len(lines):
                raise DataError(f"{path}: names an image twice.")
            return lines
    return None


def _image_path(folder: Path, name: str) -> Path:
    paths = [folder / "JPEGImages" / f"{name}{ending}" for ending in (".jpg", *ENDINGS)]
    return next((path for path in paths if path.is_file()), paths[0])


def _read_xml(path: Path) -> tuple[int, int, list[_Object]]:
    """Width, height, and the objects; a box whose ends are the same pixel gets no width or height."""
    try:
        root = ET.fromstring(path.read_bytes())
        width, height = (int(float(_text(root, f"size/{side}"))) for side in ("width", "height"))
        objects = []
        for node in root.iter("object"):
            left, top, right, bottom = (float(_text(node, f"bndbox/{corner}")) for corner in CORNERS)
            flat = right <= left or bottom <= top
            objects.append((_text(node, "name"), (left, top, left, top) if flat else (left - 1, top - 1, right,
                                                                                        bottom)))
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file, but the lists of images name it.") from error
    except (ET.ParseError, ValueError, OverflowError, OSError) as error:
        raise DataError(f"{path}: expected an annotation as Pascal VOC has them, with size, and name and bndbox of "
                        f"every object ({error}).") from error
    return width, height, objects


def _text(node: ET.Element, path: str) -> str:
    text = node.findtext(path)
    if text is None or not text.strip():
        raise ValueError(f"{path} is missing")
    return text.strip()
