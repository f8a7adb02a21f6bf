"""Images by name: a dataset of the registry, your own folder, or what your own function returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, RecipeError
from ..plugins import is_reference, load_function
from ._load import check_resident, load
from .class_folders import class_folders
from .folder import read_folder
from .registry import data_dir, dataset


@dataclass(frozen=True)
class Images:
    """Splits of images as bytes (N, C, H, W) with labels (N), their classes and statistics.

    ``mean`` and ``std`` are per channel, of images divided by ``highest``.
    """

    splits: Mapping[str, tuple[Tensor, Tensor]]
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    highest: int = 255
    names: tuple[str, ...] = field(default=())

    @property
    def channels(self) -> int:
        return next(iter(self.splits.values()))[0].shape[1]


def check_images(name: str, key: str, folder: str | None = None) -> None:
    """Refuse an unknown name, or one that has no images to keep on the device, before any data is read; ``key`` is its
    key in the recipe."""
    if is_reference(name):
        load_function(name, folder, key)
    elif not name.startswith("folder:"):
        try:
            facts = dataset(name)
        except DataError as error:
            raise RecipeError(f"{error} Your own are folder:PATH or module:function.", key) from error
        try:
            check_resident(facts)
        except DataError as error:
            raise RecipeError(str(error), key) from error


def read_images(name: str, root: str | Path | None = None, *, splits: tuple[str, ...] = ("train", "test"),
                size: int | None = None, folder: str | None = None, imbalance: float | None = None) -> Images:
    """The images that ``name`` names: of a known dataset, ``folder:PATH``, or ``module:function``.

    A function returns :class:`Images`, or a dict with ``train`` and ``test``, each a pair of images (uint8,
    (N, C, H, W) or (N, H, W)) and labels. ``imbalance`` is for a long-tailed set of the registry, such as
    ``cifar100-lt``.
    """
    if imbalance is not None and (name.startswith("folder:") or is_reference(name)):
        raise DataError(f"imbalance = {imbalance:g} for {name}: expected a long-tailed dataset such as cifar100-lt.")
    if name.startswith("folder:"):
        path = folder_path(name, root, folder)
        read = {split: read_folder(path, split, size) for split in splits}
        if len({images.shape[1] for images, _ in read.values()}) > 1:  # one of them is all grey
            read = {split: (images.expand(-1, 3, -1, -1), labels) for split, (images, labels) in read.items()}
        _check_shapes(name, read)
        return _measured(read, names=tuple(class_folders(path)))
    if is_reference(name):
        images = load_function(name, folder, "data")()
        return images if isinstance(images, Images) else _from_dict(name, images, splits)
    facts = dataset(name, imbalance)
    return Images({split: load(name, split, root, imbalance) for split in splits}, facts.classes, facts.mean, facts.std,
                  facts.highest, facts.names)


def folder_path(name: str, root: str | Path | None, folder: str | None) -> Path:
    """The folder of ``folder:PATH``: the path itself, or relative to the recipe or to the data directory."""
    path = Path(name.removeprefix("folder:")).expanduser()
    candidates = [path, *([Path(folder) / path] if folder else []), data_dir(root) / path]
    existing = next((candidate for candidate in candidates if candidate.is_dir()), None)
    if existing is None:
        raise DataError(f"{name}: no such folder; looked for "
                        f"{', '.join(dict.fromkeys(str(candidate.absolute()) for candidate in candidates))}.")
    return existing


def _from_dict(name: str, returned: Any, splits: tuple[str, ...]) -> Images:
    """The images that your own function has returned."""
    if not isinstance(returned, Mapping) or not set(splits) <= set(returned):
        keys = f"with {', '.join(map(str, returned)) or 'nothing in it'}" if isinstance(returned, Mapping) else ""
        raise DataError(f"{name} returned a {f'{type(returned).__name__} {keys}'.strip()}: expected a dict with "
                        f"{' and '.join(splits)}, each a pair of images and labels.")
    read: dict[str, tuple[Tensor, Tensor]] = {}
    for split in splits:
        try:
            images, labels = (torch.as_tensor(np.asarray(part)) for part in returned[split])
        except (TypeError, ValueError) as error:
            raise DataError(f"{name}: {split} is a {type(returned[split]).__name__}: expected a pair of images and "
                            f"labels, as arrays or tensors ({error}).") from error
        images = images[:, None] if images.ndim == 3 else images
        shape, kind = tuple(images.shape), labels.dtype
        if images.dtype != torch.uint8 or images.ndim != 4 or tuple(labels.shape) != shape[:1] or not shape[0]:
            raise DataError(f"{name}: {split} has images of {images.dtype} {shape} and labels {tuple(labels.shape)}: "
                            "expected uint8 (N, C, H, W) or (N, H, W), and one label per image (N), for one image or "
                            "more.")
        if shape[1] > 4 >= shape[3]:
            raise DataError(f"{name}: {split} has images of {shape}: expected the channels before height and width, "
                            f"{(shape[0], shape[3], shape[1], shape[2])}. Permute them: images.transpose(0, 3, 1, 2).")
        if kind.is_floating_point or kind.is_complex or kind == torch.bool or int(labels.min()) < 0:
            raise DataError(f"{name}: the labels of {split} are {kind} from {labels.min().item()}: expected integers "
                            "from 0.")
        read[split] = images, labels.long()
    _check_shapes(name, read)
    if "train" in read and (first := int(read["train"][1].min())):
        raise DataError(f"{name}: the labels of train begin at {first}: expected integers from 0. Subtract {first} "
                        "from the labels of every part; otherwise the network has a class without training images.")
    if "train" in read and not read["train"][1].max():
        raise DataError(f"{name}: all labels of train are 0: expected two classes or more.")
    if "train" in read and (absent := sorted({*read["test"][1].tolist()} - {*read["train"][1].tolist()})
                            if "test" in read else []):
        raise DataError(f"{name}: test has the class {absent[0]}, which the training part does not have.")
    return _measured(read)


def _check_shapes(name: str, splits: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    shapes = {split: tuple(images.shape[1:]) for split, (images, _) in splits.items()}
    if len(set(shapes.values())) > 1:
        words = " and ".join(f"{split} has images of {shape}" for split, shape in shapes.items())
        raise DataError(f"{name}: {words} (channels, height, width): expected one shape. For images in folders set "
                        "options.size, to which they are resized and cut.")


def _measured(splits: Mapping[str, tuple[Tensor, Tensor]], names: tuple[str, ...] = ()) -> Images:
    """The images with the mean and standard deviation of the training part and the number of classes of all labels."""
    images, _ = next(iter(splits.values()))
    counts = torch.stack([torch.bincount(images[:, channel].flatten(), minlength=256).double()
                          for channel in range(images.shape[1])])
    levels = torch.arange(256).double() / 255
    fractions = counts / counts.sum(1, keepdim=True)
    mean = fractions @ levels
    std = (fractions @ levels.square() - mean.square()).clamp(min=1e-12).sqrt()
    largest_label = int(max(int(labels.max()) for _, labels in splits.values()))
    return Images(splits, len(names) or largest_label + 1, tuple(mean.tolist()), tuple(std.tolist()), names=names)
