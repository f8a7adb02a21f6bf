"""COCO's average precision, computed by pycocotools."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..data import Boxes, BoxSet
from ..errors import RunError

LIMITS = {"ap_small": (0, 32**2), "ap_medium": (32**2, 96**2), "ap_large": (96**2, 1e10)}  # COCO's ranges of areas
NAMES = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")  # the first six numbers of COCO's summary


class Evaluator:
    """Measures detections against the true boxes of one part of a dataset."""

    def __init__(self, boxes: Boxes, part: BoxSet) -> None:
        self.names, self.part = boxes.names, part
        self.truth = _coco(self._truth())

    def measure(self, detections: Mapping[int, Mapping[str, Any]]) -> tuple[dict[str, float], dict[str, float]]:
        """COCO's numbers in percent, and the average precision of every class that the part has.

        ``detections`` has boxes, scores and labels by the index of the image in the part, for all of its images. The
        result has no number for a size of boxes that the part does not have.
        """
        if len(detections) != len(self.part):
            raise RunError(f"detections of {len(detections)} images: expected those of all {len(self.part)}.")
        rows = [row for index, one in sorted(detections.items()) for row in self._rows(index, one)]
        if not rows:  # pycocotools does not accept an empty list
            return ({name: 0.0 for name in NAMES if name not in self.absent},
                    {self.names[label]: 0.0 for label in self._labels()})
        evaluation = self._evaluation(np.asarray(rows, dtype=np.float64))
        numbers = {name: 100 * float(value) for name, value in zip(NAMES, evaluation.stats, strict=False) if value >= 0}
        # axes: IoU thresholds, recall thresholds, classes, sizes of boxes (the first is all), numbers of detections
        precision = evaluation.eval["precision"][:, :, :, 0, -1]
        by_class = {}
        for name, values in zip(self.names, np.moveaxis(precision, 2, 0), strict=True):
            if (values > -1).any():
                by_class[name] = 100 * float(values[values > -1].mean())
        return numbers, by_class

    @property
    def absent(self) -> list[str]:
        """COCO's numbers for sizes of boxes that the part does not have."""
        areas = [area for image in self.part.images for area in image.areas[~image.crowd].tolist()]
        return [name for name, (low, high) in LIMITS.items() if not any(low <= area <= high for area in areas)]

    def _labels(self) -> list[int]:
        return sorted({int(label) for image in self.part.images for label in image.labels[~image.crowd]})

    def _evaluation(self, rows: np.ndarray) -> Any:
        from pycocotools.cocoeval import COCOeval

        with contextlib.redirect_stdout(io.StringIO()):  # it prints its tables
            evaluation = COCOeval(self.truth, self.truth.loadRes(rows), "bbox")
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        return evaluation

    def _truth(self) -> dict[str, Any]:
        # Images are numbered by their index: the numbers of your own images may not be unique, and pycocotools passes
        # them through float64, which cannot hold large ones.
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for index, image in enumerate(self.part.images):
            images.append({"id": index, "width": image.width, "height": image.height})
            for box, label, crowd, area in zip(image.boxes.tolist(), image.labels.tolist(), image.crowd.tolist(),
                                               image.areas.tolist(), strict=True):
                annotations.append({"id": len(annotations) + 1, "image_id": index, "bbox": _sides(box),
                                    "category_id": label, "iscrowd": int(crowd), "area": area})
        categories = [{"id": label, "name": name} for label, name in enumerate(self.names)]
        return {"info": {}, "images": images, "annotations": annotations, "categories": categories}

    def _rows(self, index: int, one: Mapping[str, Any]) -> list[list[float]]:
        """Image, left, top, width, height, score and class of every detection, in the format of pycocotools. Boxes with
        NaN are left out, because pycocotools lets them match every other box."""
        return [[index, *_sides(box), score, label]
                for box, score, label in zip(one["boxes"].tolist(), one["scores"].tolist(), one["labels"].tolist(),
                                             strict=True) if all(map(math.isfinite, (score, *box)))]


def _sides(box: Sequence[float]) -> list[float]:
    left, top, right, bottom = box
    return [left, top, right - left, bottom - top]


def _coco(content: dict[str, Any]) -> Any:
    try:
        from pycocotools.coco import COCO
    except ImportError as error:
        raise RunError(f"average precision is measured by pycocotools ({error}): pip install pycocotools.") from error
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = content
        coco.createIndex()
    return coco
