"""Transforms of a decoded picture in a worker, to bytes: torchvision's transforms v2, and timm's RandAugment.

All of them draw from the global random states, which :class:`LoaderSource` sets for every example. Bilinear crops are
computed by torch on bytes; the others need pictures of Pillow, which is several times slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, install_words
from .resized_crop import LONGEST, MiddleCrop, RandomCrop

Transform = Callable[[np.ndarray], Tensor]  # bytes (height, width, 3) to bytes (size, size, 3)
ERASED_AREA, ERASED_RATIO, TRIES = (0.02, 1 / 3), (0.3, 1 / 0.3), 10  # as timm has them


def training_transform(size: int, interpolation: str = "bilinear", rand_augment: str | None = None,
                       mean: Sequence[float] = (0.485, 0.456, 0.406)) -> Transform:
    """RandomResizedCrop, flip and, if given, timm's RandAugment.

    Args:
        size: height and width of the result.
        interpolation: ``bilinear``, ``bicubic``, or ``random`` for one of the two per picture, as in timm.
        rand_augment: a string as timm takes it, such as ``rand-m9-mstd0.5``; None for no RandAugment.
        mean: the mean of the data, from 0 to 1: the colour of areas that come from outside of the picture.
    """
    if interpolation == "bilinear" and rand_augment is None:
        return RandomCrop(size)
    v2 = _v2()
    modes = ["bilinear", "bicubic"] if interpolation == "random" else [interpolation]
    crops = [v2.RandomResizedCrop(size, interpolation=_mode(mode), antialias=True) for mode in modes]
    steps = [crops[0] if len(crops) == 1 else v2.RandomChoice(crops), v2.RandomHorizontalFlip()]
    if rand_augment is not None:
        steps.append(_rand_augment(rand_augment, size, interpolation, mean))
    return OnPictures(steps)


def evaluation_transform(resize: int, size: int, interpolation: str = "bilinear") -> Transform:
    """Resize the shorter side, and crop the centre."""
    if interpolation == "bilinear":
        return MiddleCrop(resize, size)
    v2 = _v2()
    # A very long picture is shortened first, as in MiddleCrop.
    return OnPictures([_shorten, v2.Resize(resize, interpolation=_mode(interpolation), antialias=True),
                       v2.CenterCrop(size)])


class OnPictures:
    """Transforms of Pillow's pictures, one after the other."""

    def __init__(self, steps: Sequence[Callable[[Any], Any]]) -> None:
        self.steps = steps

    def __call__(self, picture: np.ndarray) -> Tensor:
        from PIL import Image

        image: Any = Image.fromarray(picture)
        for step in self.steps:
            image = step(image)
        return torch.from_numpy(np.array(image, dtype=np.uint8))


def _shorten(image: Any) -> Any:
    wide, high = image.size
    most = LONGEST * min(wide, high)
    left, top = max(0, wide - most) // 2, max(0, high - most) // 2
    return image.crop((left, top, left + min(wide, most), top + min(high, most))) if most < max(wide, high) else image


def erased_box(size: int, probability: float, draw: torch.Generator) -> Tensor:
    """Top, left, height and width of the box to erase; an empty box with probability ``1 - probability``.

    Area and aspect ratio are drawn up to ten times until the box fits, as in timm's RandomErasing.

    >>> erased_box(224, 0.0, torch.Generator()).tolist()
    [0, 0, 0, 0]
    """
    drawn = torch.rand(2 * TRIES + 3, generator=draw, dtype=torch.float64).tolist()
    if drawn[0] < probability:
        low, high = (math.log(ratio) for ratio in ERASED_RATIO)
        for number in range(TRIES):
            area = size * size * (ERASED_AREA[0] + (ERASED_AREA[1] - ERASED_AREA[0]) * drawn[3 + number])
            ratio = math.exp(low + (high - low) * drawn[3 + TRIES + number])
            tall, wide = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < tall < size and 0 < wide < size:
                top, left = int(drawn[1] * (size - tall + 1)), int(drawn[2] * (size - wide + 1))
                return torch.tensor([top, left, tall, wide])
    return torch.zeros(4, dtype=torch.long)


def erase(images: Tensor, boxes: Tensor) -> Tensor:
    """Normalised images (N, C, H, W) with noise, normal per pixel, in the boxes of :func:`erased_box`.

    >>> images = erase(torch.zeros(1, 3, 4, 4), torch.tensor([[1, 1, 2, 3]]))
    >>> (images != 0).sum().item()
    18
    """
    top, left, tall, wide = boxes[:, :, None].unbind(1)
    down, across = (torch.arange(side, device=images.device) for side in images.shape[2:])
    rows, columns = (down >= top) & (down < top + tall), (across >= left) & (across < left + wide)
    inside = rows[:, None, :, None] & columns[:, None, None, :]
    return torch.where(inside, torch.randn_like(images), images)


def _rand_augment(words: str, size: int, interpolation: str, mean: Sequence[float]) -> Transform:
    try:
        from timm.data.auto_augment import rand_augment_transform
    except (ImportError, RuntimeError) as error:
        raise DataError(f"rand_augment = {words!r} needs {install_words('timm', error)}") from error
    # The largest shift and the colour of what comes in are those of timm's own training script.
    settings: dict[str, Any] = {"translate_const": int(size * 0.45),
                                "img_mean": tuple(min(255, round(255 * value)) for value in mean)}
    if interpolation != "random":
        from PIL import Image

        settings["interpolation"] = getattr(Image.Resampling, interpolation.upper())
    transform: Transform = rand_augment_transform(words, settings)
    return transform


def _mode(name: str) -> Any:
    from torchvision.transforms import InterpolationMode

    return InterpolationMode(name)


def _v2() -> Any:
    try:
        from torchvision.transforms import v2
    except (ImportError, RuntimeError) as error:
        raise DataError(f"images in files need {install_words('torchvision', error)}") from error
    return v2
