"""Images with boxes: the common form of all annotation formats, and datasets by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from ..plugins import is_reference, load_function
from ._load import checked_files
from .images import folder_path
from .pictures import open_picture
from .registry import VARIABLE, data_dir, dataset

BOX_READERS = ("voc", "coco")


@dataclass(frozen=True)
class BoxImage:
    """One image and its boxes: corners (x1, y1, x2, y2) in pixels from the upper left corner, inside the image.

    ``labels`` count classes from 0. ``crowd`` boxes are evaluated by COCO's rules for them and not used in training.
    ``areas`` decide the size of a box (small, medium, large).
    """

    path: Path
    number: int
    width: int
    height: int
    boxes: Tensor
    labels: Tensor
    crowd: Tensor
    areas: Tensor

    def read(self) -> Tensor:
        """The pixels as bytes (3, height, width)."""
        try:
            picture = open_picture(self.path)
        except DataError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise DataError(f"{self.path}: there is no such image, but the annotations name it.") from error
            raise
        pixels = np.array(picture.convert("RGB"))
        if pixels.shape[:2] != (self.height, self.width):
            raise DataError(f"{self.path}: {pixels.shape[1]} x {pixels.shape[0]} pixels; its annotations say "
                            f"{self.width} x {self.height}.")
        return torch.from_numpy(pixels).permute(2, 0, 1)


@dataclass(frozen=True)
class BoxSet:
    """The images of one part of a dataset. ``skipped`` boxes had no area and were left out."""

    images: Sequence[BoxImage]
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Boxes:
    """A dataset of images with boxes: its parts by name (train, test, and validation if there is one), the names of its
    classes, and their numbers in its own files."""

    parts: Mapping[str, BoxSet]
    names: Sequence[str]
    numbers: Sequence[int] = field(default=())

    def __post_init__(self) -> None:
        _check_names(self.names, self.numbers)
        for part in ("train", "test", *self.parts):
            if not isinstance(self.parts.get(part, BoxSet(())), BoxSet):
                raise DataError(f"the part {part!r} is a {type(self.parts[part]).__name__}: expected a BoxSet.")
            if part not in self.parts or not len(self.parts[part]):
                raise DataError(f"a dataset of boxes has the parts {', '.join(self.parts) or 'none'}: expected images "
                                f"in {part!r}.")
        for part, boxes in self.parts.items():
            if not any(bool((~image.crowd).any()) for image in boxes.images):
                skipped = f" {boxes.skipped} were left out, because they have no area." if boxes.skipped else ""
                raise DataError(f"the {len(boxes)} images of {part!r} have no box (crowds do not count): there is "
                                f"nothing to {'learn from' if part == 'train' else 'measure'}.{skipped}")
            labels = torch.cat([image.labels for image in boxes.images])
            if not 0 <= int(labels.min()) <= int(labels.max()) < len(self.names):
                raise DataError(f"the labels of {part!r} go from {int(labels.min())} to {int(labels.max())}: expected "
                                f"0 to {len(self.names) - 1}, one for each of the {len(self.names)} names.")
        if not self.numbers:
            object.__setattr__(self, "numbers", tuple(range(1, len(self.names) + 1)))

    @property
    def classes(self) -> int:
        return len(self.names)


def make_image(path: Path, number: int, width: int, height: int, boxes: Sequence[Sequence[float]],
               labels: Sequence[int], crowd: Sequence[bool] | None = None,
               areas: Sequence[float] | None = None) -> tuple[BoxImage, int]:
    """An image with the boxes that have an area inside it, and the number of boxes that have none.

    Raises:
        DataError: the size, a box or the number of labels is impossible.
    """
    if not all(isinstance(side, Integral) for side in (width, height)) or width < 1 or height < 1:
        raise DataError(f"{path}: its annotations say {width} x {height} pixels: expected the size of the image.")
    for name, values in (("labels", labels), ("crowd marks", crowd), ("areas", areas)):
        if values is not None and len(values) != len(boxes):
            raise DataError(f"{path}: {len(boxes)} boxes with {len(values)} {name}: expected one for each box.")
    corners = torch.tensor([_corners(path, box) for box in boxes], dtype=torch.float32).reshape(-1, 4)
    classes = torch.tensor([_label(path, label) for label in labels], dtype=torch.int64)
    limits = torch.tensor([width, height, width, height], dtype=torch.float32)
    clipped = torch.minimum(corners.clamp(min=0), limits)
    sides = clipped[:, 2:] - clipped[:, :2]
    has_area = (sides > 0).all(1)
    sizes = sides.clamp(min=0).prod(1) if areas is None else torch.tensor([_area(path, area) for area in areas])
    crowds = torch.tensor(crowd if crowd is not None else [False] * len(corners), dtype=torch.bool)
    image = BoxImage(path, number, width, height, clipped[has_area], classes[has_area], crowds[has_area],
                     sizes.float()[has_area])
    return image, int((~has_area).sum())


def _corners(path: Path, box: object) -> list[float]:
    try:
        corners = [math.nan if isinstance(corner, str) else float(corner) for corner in box]  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        corners = []
    if len(corners) != 4 or not all(math.isfinite(corner) for corner in corners):
        raise DataError(f"{path}: a box is {_short(box)}: expected four finite numbers, the corners x1, y1, x2, y2.")
    return corners


def _label(path: Path, label: object) -> int:
    """A class index. A number with a fraction is refused, because ``int`` would cut it off."""
    try:
        index: int = int(label)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        index = -1
    if isinstance(label, str) or index != label or abs(index) >= 2**63:
        raise DataError(f"{path}: a label is {_short(label)}: expected a class index, counted from 0.")
    return index


def _area(path: Path, area: object) -> float:
    try:
        number = float(area)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise DataError(f"{path}: the area of a box is {_short(area)}: expected a number of pixels, 0 or more.")
    return number


def _short(value: object) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) < 80 else f"{text[:80]}..."


def _check_names(names: Sequence[str], numbers: Sequence[int]) -> None:
    """Check that every class has one name and one number, all different, because results are identified by them."""
    if isinstance(names, str):
        raise DataError(f"names = {names!r}: expected a list of names, one for each class.")
    for words, values in (("names", names), ("numbers", numbers)):
        twice = [value for value in values if list(values).count(value) > 1]
        if twice:
            raise DataError(f"two classes have {twice[0]!r} among their {words}: expected another one for each class.")
    if numbers and len(numbers) != len(names):
        raise DataError(f"{len(names)} names of classes with {len(numbers)} numbers: expected one for each name, or "
                        "none.")


def read_boxes(name: str, root: str | Path | None = None, folder: str | None = None) -> Boxes:
    """The dataset that ``name`` names: bccd, coco, ``folder:PATH`` in the layout of either, or what ``module:function``
    returns (:class:`Boxes`)."""
    from .coco import read_coco
    from .voc import read_voc

    if name.startswith("folder:"):
        path = folder_path(name, root, folder)
        if (path / "ImageSets").is_dir():
            return read_voc(path)
        if (path / "annotations").is_dir():
            return read_coco(path)
        raise DataError(f"{path}: expected Pascal VOC's layout (ImageSets/Main/, Annotations/, JPEGImages/) or COCO's "
                        "(annotations/instances_*.json and a folder of images for each).")
    if is_reference(name):
        boxes = load_function(name, folder, "data")()
        if not isinstance(boxes, Boxes):
            raise DataError(f"{name} returned a {type(boxes).__name__}: expected encouraging.data.Boxes.")
        return boxes
    facts = dataset(name)
    if facts.reader not in BOX_READERS:
        raise DataError(f"{name} has no boxes: expected bccd, coco, folder:PATH or module:function.")
    data = data_dir(root)
    for split in ("train", "test"):
        checked_files(name, split, data)
    own_folder = data / facts.train[0].path.partition("/")[0]
    if not own_folder.is_dir():
        raise DataError(f"{own_folder}: there is no such folder. Point --data or {VARIABLE} at the directory that has "
                        "it.")
    return read_voc(own_folder) if facts.reader == "voc" else read_coco(own_folder)
