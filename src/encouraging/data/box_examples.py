"""Images with boxes as batches: read, resized and flipped with their boxes by torchvision's transforms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError
from .boxes import BoxImage

CACHED = 2**29  # bytes: decoded datasets up to this size are kept in memory


@dataclass
class BoxBatch:
    """Images of unequal size, and for each its boxes and labels as torchvision's detectors take them."""

    images: list[Tensor]
    targets: list[dict[str, Tensor]]
    numbers: list[int]

    def to(self, device: torch.device) -> BoxBatch:
        """On the device, with pixels from 0 to 1."""
        return BoxBatch([image.to(device, non_blocking=True).float() / 255 for image in self.images],
                        [{key: value.to(device, non_blocking=True) for key, value in target.items()}
                         for target in self.targets], self.numbers)


def check_shapes(images: Iterable[BoxImage], max_size: int) -> None:
    """Refuse an image whose shorter side would vanish when the longer one is resized to ``max_size``."""
    for image in images:
        if max_size * min(image.width, image.height) <= max(image.width, image.height):
            raise DataError(f"{image.path}: {image.width} x {image.height} pixels are too long and narrow: if the "
                            f"longer side is resized to max_size = {max_size}, the shorter one has a pixel or less. "
                            "Leave the image out, or raise max_size.")


class BoxExamples:
    """Images to train on (with ``sizes``) or to evaluate.

    In training the shorter side is resized to one of ``sizes``, drawn at random, as long as the longer one does not
    exceed ``max_size``, and the image is flipped from left to right with the probability ``flip``; crowd boxes are left
    out. In evaluation images are not resized, because the model does that, and crowd boxes stay.

    A dataset of up to :data:`CACHED` bytes is decoded once and kept on ``device``, where it is transformed. With worker
    processes this must be the CPU.
    """

    def __init__(self, images: Sequence[BoxImage], sizes: Sequence[int] = (), max_size: int = 1333, flip: float = 0.0,
                 device: torch.device | None = None) -> None:
        self.images, self.sizes, self.max_size, self.flip = images, tuple(sizes), max_size, flip
        self.device = device or torch.device("cpu")
        self.cached = sum(3 * image.width * image.height for image in images) <= CACHED
        self._pixels: dict[int, Tensor] = {}
        self._transform: Any = None

    def example(self, index: int, draw: torch.Generator) -> BoxBatch:
        image = self.images[index]
        pixels, not_crowd = self._read(index), ~image.crowd
        if not self.sizes:
            return BoxBatch([pixels], [{"boxes": image.boxes, "labels": image.labels}], [index])
        boxes, labels = image.boxes[not_crowd], image.labels[not_crowd]
        pixels, boxes = self._augmented(pixels, boxes)
        has_area = (boxes[:, 2:] > boxes[:, :2]).all(1)  # thin boxes may vanish when resized; the model refuses them
        return BoxBatch([pixels], [{"boxes": boxes[has_area], "labels": labels[has_area]}], [index])

    def collate(self, examples: list[BoxBatch], draw: torch.Generator) -> BoxBatch:
        return BoxBatch([image for one in examples for image in one.images],
                        [target for one in examples for target in one.targets],
                        [number for one in examples for number in one.numbers])

    def _read(self, index: int) -> Tensor:
        if not self.cached:
            return self.images[index].read()
        if index not in self._pixels:
            self._pixels[index] = self.images[index].read().to(self.device)
        return self._pixels[index]

    def _augmented(self, pixels: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Random size and flip, drawn from torch's global random state, which the source sets for every example."""
        from torchvision import tv_tensors
        from torchvision.transforms import v2

        if self._transform is None:
            self._transform = v2.Compose([v2.RandomShortestSize(list(self.sizes), self.max_size, antialias=True),
                                          v2.RandomHorizontalFlip(self.flip),
                                          v2.ClampBoundingBoxes()])  # rounding may move corners out of the image
        high, wide = pixels.shape[-2:]
        image, new_boxes = self._transform(tv_tensors.Image(pixels), tv_tensors.BoundingBoxes(
            boxes, format="XYXY", canvas_size=(high, wide)))
        return image.as_subclass(Tensor), new_boxes.as_subclass(Tensor)
