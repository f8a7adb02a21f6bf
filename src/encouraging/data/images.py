"""Images by name: a known dataset, a folder of one's own, or what a function of one's own returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from ..plugins import is_reference, load_object
from ._load import load
from .folder import class_folders, read_folder
from .registry import data_dir, dataset


@dataclass(frozen=True)
class Images:
    """Splits of images as bytes (N, C, H, W) with labels (N), and what belongs to them.

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
        return _measured(read, names=tuple(class_folders(path)))
    if is_reference(name):
        found = load_object(name, folder)()
        return found if isinstance(found, Images) else _own(name, found, splits)
    facts = dataset(name, imbalance)
    return Images({split: load(name, split, root, imbalance) for split in splits}, facts.classes, facts.mean, facts.std,
                  facts.highest, facts.names)


def folder_path(name: str, root: str | Path | None, folder: str | None) -> Path:
    """Where ``folder:PATH`` leads: as it stands, beside the recipe, or in the data directory."""
    path = Path(name.removeprefix("folder:")).expanduser()
    places = [path, *([Path(folder) / path] if folder else []), data_dir(root) / path]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise DataError(f"{name}: no such folder; looked for {', '.join(dict.fromkeys(map(str, places)))}.")
    return found


def _own(name: str, found: Any, splits: tuple[str, ...]) -> Images:
    if not isinstance(found, Mapping) or not set(splits) <= set(found):
        raise DataError(f"{name} returned a {type(found).__name__}: expected a dict with {' and '.join(splits)}, each "
                        "a pair of images and labels.")
    read: dict[str, tuple[Tensor, Tensor]] = {}
    for split in splits:
        images, labels = (torch.as_tensor(np.asarray(part)) for part in found[split])
        images = images[:, None] if images.ndim == 3 else images
        if images.dtype != torch.uint8 or images.ndim != 4 or labels.shape != images.shape[:1]:
            raise DataError(f"{name}: {split} has images of {images.dtype} {tuple(images.shape)} and labels "
                            f"{tuple(labels.shape)}: expected uint8 (N, C, H, W) or (N, H, W), and (N).")
        read[split] = images, labels.long()
    return _measured(read)


def _measured(splits: Mapping[str, tuple[Tensor, Tensor]], names: tuple[str, ...] = ()) -> Images:
    """Mean and deviation of the training part; as many classes as its labels name."""
    images, _ = next(iter(splits.values()))
    counts = torch.stack([torch.bincount(images[:, channel].flatten(), minlength=256).double()
                          for channel in range(images.shape[1])])
    levels = torch.arange(256).double() / 255
    share = counts / counts.sum(1, keepdim=True)
    mean = share @ levels
    std = (share @ levels.square() - mean.square()).clamp(min=1e-12).sqrt()
    highest = int(max(int(part.max()) for _, part in splits.values()))
    return Images(splits, len(names) or highest + 1, tuple(mean.tolist()), tuple(std.tolist()), names=names)
