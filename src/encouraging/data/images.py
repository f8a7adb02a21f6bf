"""Images by name: a known dataset, a folder of one's own, or what a function of one's own returns."""

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


def check_images(name: str, key: str, folder: str | None = None) -> None:
    """Refuse a name that names no images, before anything is read; ``key`` is where it stands in the recipe."""
    if is_reference(name):
        load_function(name, folder, key)
    elif not name.startswith("folder:"):
        try:
            dataset(name)
        except DataError as error:
            raise RecipeError(f"{error} Your own are folder:PATH or module:function.", key) from error


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
        found = load_function(name, folder, "data")()
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
        raise DataError(f"{name}: no such folder; looked for "
                        f"{', '.join(dict.fromkeys(str(place.absolute()) for place in places))}.")
    return found


def _own(name: str, found: Any, splits: tuple[str, ...]) -> Images:
    if not isinstance(found, Mapping) or not set(splits) <= set(found):
        came = f"with {', '.join(map(str, found)) or 'nothing in it'}" if isinstance(found, Mapping) else ""
        raise DataError(f"{name} returned a {f'{type(found).__name__} {came}'.strip()}: expected a dict with "
                        f"{' and '.join(splits)}, each a pair of images and labels.")
    read: dict[str, tuple[Tensor, Tensor]] = {}
    for split in splits:
        try:
            images, labels = (torch.as_tensor(np.asarray(part)) for part in found[split])
        except (TypeError, ValueError) as error:
            raise DataError(f"{name}: {split} is a {type(found[split]).__name__}: expected a pair of images and "
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
    if "train" in read and not read["train"][1].max():
        raise DataError(f"{name}: all labels of train are 0: expected two classes or more.")
    if "train" in read and (absent := sorted({*read["test"][1].tolist()} - {*read["train"][1].tolist()})
                            if "test" in read else []):
        raise DataError(f"{name}: test has the class {absent[0]}, which the training part has not.")
    return _measured(read)


def _check_shapes(name: str, splits: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    shapes = {split: tuple(images.shape[1:]) for split, (images, _) in splits.items()}
    if len(set(shapes.values())) > 1:
        words = " and ".join(f"{split} has images of {shape}" for split, shape in shapes.items())
        raise DataError(f"{name}: {words} (channels, height, width): expected one shape. For images in folders set "
                        "options.size, to which they are resized and cut.")


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
