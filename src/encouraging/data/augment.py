"""Random crops and flips of batches of images on the device, as torchvision defines them.

The random numbers follow from a few integers (seed, stage, epoch) and the index of the example alone: the crop is the
same in any batch, on any rank, and in a resumed run. Cropping and resizing are linear in the pixels and separable, so a
batch takes two products with matrices of interpolation weights, one matrix per image and axis. Boxes, antialiasing and
rounding are those of ``torchvision.transforms.functional.resized_crop``.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError, ShapeError
from ..splitmix import GOLDEN, mix, shift_right

SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10
_BOX, _FLIP = 0, 1  # independent streams of random numbers


def random_boxes(index: Tensor, height: int, width: int, words: tuple[int, ...],
                 scale: tuple[float, float] = SCALE, ratio: tuple[float, float] = RATIO) -> Tensor:
    """The boxes of ``torchvision.transforms.RandomResizedCrop``, one per example.

    Area and aspect ratio are drawn up to ten times until the box fits into the image; after that it is the largest
    central box whose ratio is allowed.

    Args:
        index: (N,) indices of the examples, or their positions in the epoch if an example can occur twice.
        height: height of the images.
        width: width of the images.
        words: non-negative integers that seed the draw, such as (seed, stage, epoch).
        scale: area of the box as a fraction of the image's, lowest and highest.
        ratio: width divided by height, lowest and highest; drawn uniformly in its logarithm.

    Returns:
        (N, 4) integers: top, left, height, width.

    >>> boxes = random_boxes(torch.arange(4), 32, 32, (0, 1))
    >>> torch.equal(boxes[2:], random_boxes(torch.arange(2, 4), 32, 32, (0, 1)))
    True
    """
    if not (0 < scale[0] <= scale[1] and 0 < ratio[0] <= ratio[1]):
        raise ArgumentError(f"random_boxes(scale={scale}, ratio={ratio}): expected the lowest and then the highest, "
                            "both above 0.")
    drawn = uniforms(index, 2 * TRIES + 2, (*words, _BOX))
    area = height * width * (scale[0] + (scale[1] - scale[0]) * drawn[:, :TRIES])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = (low + (high - low) * drawn[:, TRIES : 2 * TRIES]).exp()
    wide, tall = (area * aspect).sqrt().round().long(), (area / aspect).sqrt().round().long()
    fits = (wide > 0) & (wide <= width) & (tall > 0) & (tall <= height)
    first = fits.to(torch.uint8).argmax(1, keepdim=True)
    wide, tall = wide.gather(1, first)[:, 0], tall.gather(1, first)[:, 0]
    top, left = ((drawn[:, number] * room).long() for number, room in
                 ((-2, height - tall + 1), (-1, width - wide + 1)))
    fallback = torch.tensor(central_box(height, width, ratio), device=index.device)
    return torch.where(fits.any(1, keepdim=True), torch.stack([top, left, tall, wide], 1), fallback)


def random_flips(index: Tensor, words: tuple[int, ...]) -> Tensor:
    """Which of these examples are mirrored: each with probability one half.

    >>> random_flips(torch.arange(1000), (0, 1)).sum()
    tensor(506)
    """
    return uniforms(index, 1, (*words, _FLIP))[:, 0] < 0.5


def resized_crop(images: Tensor, boxes: Tensor, size: int, flip: Tensor | None = None) -> Tensor:
    """A box of each image, resized to ``size`` x ``size`` pixels by antialiased bilinear interpolation.

    Args:
        images: (N, C, H, W), bytes or floating-point numbers.
        boxes: (N, 4) integers: top, left, height, width, within the image.
        size: Height and width of the result.
        flip: (N,) booleans, which results are mirrored; None for none.

    Returns:
        (N, C, size, size) of the type of ``images``; bytes are rounded.

    >>> image = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4)
    >>> resized_crop(image, torch.tensor([[1, 2, 2, 2]]), 2)[0, 0]
    tensor([[ 6,  7],
            [10, 11]], dtype=torch.uint8)
    """
    if images.ndim != 4 or boxes.shape != (len(images), 4):
        raise ShapeError(f"resized_crop: expected images (N, C, H, W) and boxes (N, 4), got {tuple(images.shape)} and "
                         f"{tuple(boxes.shape)}.")
    top, left, tall, wide = boxes.unbind(1)
    rows = _weights(top, tall, size, images.shape[2])
    columns = _weights(left, wide, size, images.shape[3])
    if flip is not None:
        columns = torch.where(flip[:, None, None], columns.flip(1), columns)
    return _interpolate(images, rows, columns)


def resize_center_crop(images: Tensor, resize: int = 256, crop: int = 224) -> Tensor:
    """``torchvision.transforms.Resize(resize)``, of the shorter side, and then ``CenterCrop(crop)``.

    Args:
        images: (N, C, H, W), bytes or floating-point numbers.
        resize: What the shorter side is resized to.
        crop: Height and width of the result.

    Returns:
        (N, C, crop, crop) of the type of ``images``; bytes are rounded.

    >>> resize_center_crop(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([2, 3, 224, 224])
    """
    if images.ndim != 4:
        raise ShapeError(f"resize_center_crop: expected images (N, C, H, W), got {tuple(images.shape)}.")
    if not 0 < crop <= resize:
        raise ArgumentError(f"resize_center_crop(resize={resize}, crop={crop}): expected 0 < crop <= resize.")
    shorter = min(images.shape[2:])
    start = torch.zeros(1, dtype=torch.int64, device=images.device)
    weights = []
    for pixels in images.shape[2:]:
        resized = int(resize * pixels / shorter)
        first = round((resized - crop) / 2)
        weights.append(_weights(start, start + pixels, resized, pixels)[:, first : first + crop].expand(
            len(images), -1, -1))
    return _interpolate(images, *weights)


def uniforms(index: Tensor, draws: int, words: tuple[int, ...]) -> Tensor:
    """(N, draws) random numbers from 0 to 1 that follow from the words and the index of each example.

    A counter-based generator (SplitMix64): no state, the same numbers on every device and in every batch.
    """
    key = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0].astype(np.int64))
    counter = index.to(torch.int64)[:, None] * draws + torch.arange(1, draws + 1, device=index.device)
    return shift_right(mix(counter * GOLDEN + key), 11).double() * 2.0**-53


def central_box(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int, int, int]:
    """Top, left, height and width of the largest box in the middle whose ratio is allowed."""
    tall, wide = height, width
    if width / height < min(ratio):
        tall = round(width / min(ratio))
    elif width / height > max(ratio):
        wide = round(height * max(ratio))
    return (height - tall) // 2, (width - wide) // 2, tall, wide


def _weights(start: Tensor, length: Tensor, size: int, pixels: int) -> Tensor:
    """(N, size, pixels): the weight of each pixel of an axis in each pixel of the result. Weights fall linearly with
    the distance, over one pixel or, if the box shrinks, over one pixel of the result; pixels outside of the box have
    none."""
    scale = (length.float() / size)[:, None, None]
    center = scale * (torch.arange(size, device=start.device)[:, None] + 0.5)
    position = torch.arange(pixels, device=start.device) - start[:, None, None] + 0.5  # within the box
    weights = (1 - ((position - center) / scale.clamp(min=1)).abs()).clamp(min=0)
    weights = weights * ((position > 0) & (position < length[:, None, None]))
    return weights / weights.sum(-1, keepdim=True)


def _interpolate(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """``rows @ image @ columns.T`` for each channel, in float32 whatever autocast says."""
    count, channels, height, width = images.shape
    high, wide = rows.shape[1], columns.shape[1]
    with torch.autocast(images.device.type, enabled=False):
        across = torch.bmm(images.float().reshape(count, channels * height, width), columns.transpose(1, 2))
        across = across.view(count, channels, height, wide).transpose(1, 2).reshape(count, height, channels * wide)
        resized = torch.bmm(rows, across).view(count, high, channels, wide).transpose(1, 2)
    if images.is_floating_point():
        return resized.to(images.dtype)
    return resized.round_().clamp_(0, 255).to(images.dtype)
