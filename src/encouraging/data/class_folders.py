"""Image files in a folder per class, ``PATH/train/CLASS/*`` and ``PATH/val/CLASS/*``, listed without being read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from ..errors import DataError
from .file_list import FileList, FileSplit
from .folder import ENDINGS, class_folders, split_folder


def list_class_folders(path: Path, split: str) -> FileSplit:
    """The files of a split, class by class; the classes are the folders of the training part in alphabetical order.

    Raises:
        DataError: a class of the training part has no images, or another part has a class that it has not.
    """
    return list_classes(split_folder(path, split), class_folders(path), every=split == "train")


def list_classes(folder: Path, classes: Sequence[str], *, every: bool) -> FileSplit:
    """The files in ``folder`` by class; with ``every`` no class may be empty."""
    unknown = sorted({entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")}
                     - set(classes))
    if unknown:
        raise DataError(f"{folder} has the class {unknown[0]!r}, which the training part has not.")
    names: list[str] = []
    labels: list[int] = []
    empty = []
    for label, name in enumerate(classes):
        files = image_names(folder / name) if (folder / name).is_dir() else []
        names += [f"{name}/{file}" for file in files]
        labels += [label] * len(files)
        empty += [] if files else [name]
    if empty and (every or not names):
        more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
        raise DataError(f"{folder / empty[0]}{more}: no images; expected files ending in {', '.join(ENDINGS)}. Unpack "
                        "the class's archive there, or remove the folder where the class is not wanted.")
    return FileSplit(FileList(folder, names), torch.tensor(labels))


def image_names(folder: Path) -> list[str]:
    """The names of the image files in a folder, sorted."""
    return sorted(entry.name for entry in os.scandir(folder)
                  if entry.name.lower().endswith(ENDINGS) and not entry.name.startswith("."))
