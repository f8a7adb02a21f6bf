"""Images in folders, one per class: ``PATH/train/CLASS/*.png`` and ``PATH/test/CLASS/*.png``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from .pictures import open_picture

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


def class_folders(path: Path) -> list[str]:
    """The names of the classes of the training part, in alphabetical order."""
    folder = split_folder(path, "train")
    names = _folders(folder)
    if len(names) < 2:
        raise DataError(f"{folder}: expected one folder per class, two or more; found {len(names)}.")
    return names


def read_folder(path: Path, split: str, size: int | None = None) -> tuple[Tensor, Tensor]:
    """All images of a split as bytes (N, C, H, W), and their labels.

    Hidden files and folders are left out. If all images are grey they stay so; otherwise all become RGB. With ``size``
    the shorter side is resized to it and the image is centre-cropped; without it, all images must have one size.
    """
    names, folder = class_folders(path), split_folder(path, split)
    images, labels = [], []
    for label, name in enumerate(names):
        for file in sorted((folder / name).glob("*")) if (folder / name).is_dir() else ():
            if file.suffix.lower() in ENDINGS and not file.name.startswith("."):  # macOS puts ._0.png beside 0.png
                images.append(_read(file, size))
                labels.append(label)
    unknown = [name for name in _folders(folder) if name not in names]
    if unknown:
        raise DataError(f"{folder} has the class {unknown[0]!r}, which the training part does not have. Remove or "
                        "rename the folder.")
    if not images:
        raise DataError(f"{folder}: no images; expected files ending in {', '.join(ENDINGS)} in a folder per class.")
    empty = [folder / name for label, name in enumerate(names) if split == "train" and label not in set(labels)]
    if empty:
        raise DataError(f"{empty[0]}: no images in it, so this class could not be learned; expected files ending in "
                        f"{', '.join(ENDINGS)}. Remove the folder if it is not a class.")
    colour = any(image.ndim == 3 for image in images)
    images = [np.stack([image] * 3, -1) if colour and image.ndim == 2 else image for image in images]
    sizes = {image.shape[:2] for image in images}
    if len(sizes) > 1:
        shown = ", ".join(f"{width} x {height}" for height, width in sorted(sizes)[:3])
        raise DataError(f"{folder}: images of {len(sizes)} sizes ({shown}, ...). Set options.size, to which they are "
                        "resized and cut, for example --set options.size=64.")
    stacked = torch.from_numpy(np.stack(images))
    stacked = stacked.permute(0, 3, 1, 2).contiguous() if colour else stacked[:, None]
    return stacked, torch.tensor(labels)


def split_folder(path: Path, split: str) -> Path:
    """The folder of a split; the test part may also be called val, valid or validation."""
    choices = [split] if split == "train" else [split, "val", "valid", "validation"]
    folder = next((path / name for name in choices if (path / name).is_dir()), None)
    if folder is None:
        raise DataError(f"{path}: expected a folder {' or '.join(choices[:2])} in it, with a folder of images per "
                        "class.")
    return folder


def _folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _read(file: Path, size: int | None) -> np.ndarray:
    from PIL.Image import Resampling

    image = open_picture(file)
    if size is not None:
        scale = size / min(image.size)
        width, height = (max(size, round(side * scale)) for side in image.size)
        image = image.resize((width, height), Resampling.BILINEAR)
        left, upper = (width - size) // 2, (height - size) // 2
        image = image.crop((left, upper, left + size, upper + size))
    return np.asarray(image)

