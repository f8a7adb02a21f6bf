"""Images in folders, one per class: ``PATH/train/CLASS/*.png`` and ``PATH/test/CLASS/*.png``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from .class_folders import list_class_folders, split_folder
from .pictures import open_picture


def read_folder(path: Path, split: str, size: int | None = None) -> tuple[Tensor, Tensor]:
    """All images of a split as bytes (N, C, H, W), and their labels.

    Hidden files and folders are left out. If all images are grey they stay so; otherwise all become RGB. With ``size``
    the shorter side is resized to it and the image is centre-cropped; without it, all images must have one size.
    """
    listed, folder = list_class_folders(path, split), split_folder(path, split)
    images = [_read(listed.path(index), size) for index in range(len(listed))]
    colour = any(image.ndim == 3 for image in images)
    images = [np.stack([image] * 3, -1) if colour and image.ndim == 2 else image for image in images]
    sizes = {image.shape[:2] for image in images}
    if len(sizes) > 1:
        shown = ", ".join(f"{width} x {height}" for height, width in sorted(sizes)[:3])
        raise DataError(f"{folder}: images of {len(sizes)} sizes ({shown}, ...). Set options.size, to which they are "
                        "resized and cut, for example --set options.size=64.")
    stacked = torch.from_numpy(np.stack(images))
    stacked = stacked.permute(0, 3, 1, 2).contiguous() if colour else stacked[:, None]
    return stacked, listed.labels


def _read(file: str, size: int | None) -> np.ndarray:
    from PIL.Image import Resampling

    image = open_picture(file)
    if size is not None:
        scale = size / min(image.size)
        width, height = (max(size, round(side * scale)) for side in image.size)
        image = image.resize((width, height), Resampling.BILINEAR)
        left, upper = (width - size) // 2, (height - size) // 2
        image = image.crop((left, upper, left + size, upper + size))
    return np.asarray(image)

