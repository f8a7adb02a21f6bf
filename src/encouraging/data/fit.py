"""Convert images of any size and number of channels for a model that was trained on others."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import DataError

LUMA = (0.299, 0.587, 0.114)  # of red, green and blue in grey (ITU-R BT.601)


def fit_images(images: Tensor, channels: int, side: tuple[int, int]) -> Tensor:
    """Bytes (N, C, H, W) with ``channels`` channels and the height and width of ``side``.

    Colours become grey by their luma and grey becomes three equal colours; a fourth or second channel (transparency) is
    left out. Images are resized, with antialiasing, to cover ``side``, and centre-cropped. Images that already fit are
    returned as they are.

    >>> fit_images(torch.full((2, 3, 32, 40), 7, dtype=torch.uint8), 1, (28, 28)).shape
    torch.Size([2, 1, 28, 28])
    """
    if images.ndim != 4 or images.dtype != torch.uint8 or 0 in images.shape:
        raise DataError(f"images: expected bytes of the shape (N, C, H, W), got {images.dtype} {tuple(images.shape)}.")
    return _resize(_recolour(images, channels), side)


def _recolour(images: Tensor, channels: int) -> Tensor:
    if images.shape[1] in (2, 4):
        images = images[:, :-1]
    if images.shape[1] == channels:
        return images
    if images.shape[1] == 1:
        return images.expand(-1, channels, -1, -1).contiguous()
    if images.shape[1] == 3 and channels == 1:
        weights = torch.tensor(LUMA, device=images.device)[:, None, None]
        return (images.float() * weights).sum(1, keepdim=True).round().to(torch.uint8)
    raise DataError(f"images of {images.shape[1]} channels for a model of {channels}: expected 1 or 3 channels.")


def _resize(images: Tensor, side: tuple[int, int]) -> Tensor:
    high, wide = images.shape[2:]
    if (high, wide) == tuple(side):
        return images
    scale = max(side[0] / high, side[1] / wide)
    size = [max(side[0], round(high * scale)), max(side[1], round(wide * scale))]
    resized = F.interpolate(images.float(), size=size, mode="bilinear", antialias=True)
    top, left = (size[0] - side[0]) // 2, (size[1] - side[1]) // 2
    cropped = resized[:, :, top : top + side[0], left : left + side[1]]
    return cropped.round().clamp(0, 255).to(torch.uint8).contiguous()
