"""Crops of one decoded picture, resized by torch's antialiased bilinear interpolation on bytes: three to five times
as fast as Pillow's, and within one grey level of it. Boxes and flips are those that torchvision's transforms v2 draw.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .augment import RATIO, SCALE, TRIES, central_box

LONGEST = 64  # times the shorter side: pixels farther out would be cropped anyway, after filling the memory
_LOG_RATIO = tuple(torch.log(torch.tensor(RATIO)).tolist())


class RandomCrop:
    """RandomResizedCrop to ``size`` x ``size`` pixels, and a flip; both are drawn from torch's global random state.

    >>> RandomCrop(4)(np.zeros((30, 50, 3), np.uint8)).shape
    torch.Size([4, 4, 3])
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, picture: np.ndarray) -> Tensor:
        top, left, tall, wide = random_box(*picture.shape[:2])
        crop = resize(picture[top : top + tall, left : left + wide], self.size, self.size)
        return crop.flip(1) if float(torch.rand(1)) < 0.5 else crop


class MiddleCrop:
    """The shorter side resized to ``resize``, and the centre cropped to ``size`` x ``size`` pixels.

    >>> MiddleCrop(8, 4)(np.zeros((30, 50, 3), np.uint8)).shape
    torch.Size([4, 4, 3])
    """

    def __init__(self, resize: int, size: int) -> None:
        self.resize, self.size = resize, size

    def __call__(self, picture: np.ndarray) -> Tensor:
        shorter = min(picture.shape[:2])
        top, left = (max(0, side - LONGEST * shorter) // 2 for side in picture.shape[:2])
        picture = picture[top : top + LONGEST * shorter, left : left + LONGEST * shorter]
        high, wide = (self.resize * side // shorter for side in picture.shape[:2])
        top, left = (round((side - self.size) / 2) for side in (high, wide))
        return resize(picture, high, wide)[top : top + self.size, left : left + self.size]


def random_box(height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width as ``RandomResizedCrop`` draws them, number by number, from the same random state."""
    area = height * width
    for _ in range(TRIES):
        target = area * torch.empty(1).uniform_(*SCALE).item()
        aspect = torch.exp(torch.empty(1).uniform_(*_LOG_RATIO)).item()
        wide, tall = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            top = int(torch.randint(0, height - tall + 1, (1,)))
            return top, int(torch.randint(0, width - wide + 1, (1,))), tall, wide
    return central_box(height, width, RATIO)


def resize(picture: np.ndarray, height: int, width: int) -> Tensor:
    """Bytes (H, W, 3), resized with antialiasing."""
    # A contiguous copy with the channels last: other orders do not use vector instructions.
    images = torch.from_numpy(np.array(picture, order="C")).permute(2, 0, 1)[None]
    if images.shape[2:] == (height, width):
        return images[0].permute(1, 2, 0)
    return F.interpolate(images, (height, width), mode="bilinear", antialias=True)[0].permute(1, 2, 0)
