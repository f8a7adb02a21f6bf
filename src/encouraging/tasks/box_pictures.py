"""Test images with predicted and true boxes, small enough for the records of a run."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ..data import BoxImage

WIDTH = 344  # pixels: the width of a panel of the report
QUALITY = 72
CONFIDENT = 0.5  # the lowest score of a box that is drawn


def picture(image: BoxImage, detections: Mapping[str, Any]) -> dict[str, Any]:
    """An image with its true boxes and the confident boxes of a model, in pixels of the resized image.

    A true box has its corners and its class; a predicted box also has its score.
    """
    from PIL import Image

    scale = min(1.0, WIDTH / image.width)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    small = Image.fromarray(image.read().permute(1, 2, 0).numpy()).resize(size, Image.Resampling.LANCZOS)
    content = io.BytesIO()
    small.save(content, "JPEG", quality=QUALITY, optimize=True)
    confident = detections["scores"] >= CONFIDENT
    predicted = [[*corners, label, round(score, 3)] for corners, label, score in zip(
        _scaled(detections["boxes"][confident], scale), detections["labels"][confident].tolist(),
        detections["scores"][confident].tolist(), strict=True)]
    true = [[*corners, label]
            for corners, label in zip(_scaled(image.boxes, scale), image.labels.tolist(), strict=True)]
    return {"name": image.path.name, "width": size[0], "height": size[1], "true": true, "predicted": predicted,
            "jpeg": base64.b64encode(content.getvalue()).decode()}


def pictures(images: Sequence[BoxImage], detections: Mapping[int, Mapping[str, Any]], names: Sequence[str],
             count: int) -> dict[str, Any]:
    """The first ``count`` images of a part, for the diagnosis of a run."""
    drawn = [picture(image, detections[index]) for index, image in enumerate(images[:count])]
    return {"names": list(names), "confident": CONFIDENT, "images": drawn}


def _scaled(boxes: Tensor, scale: float) -> list[list[float]]:
    return [[round(corner * scale, 1) for corner in box] for box in boxes.tolist()]
