"""Image files in a folder per class, ``PATH/train/CLASS/*`` and ``PATH/val/CLASS/*``, listed without being read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from ..errors import DataError
from .file_list import FileList, FileSplit

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


def class_folders(path: Path) -> list[str]:
    """The names of the classes of the training part, in alphabetical order."""
    folder = split_folder(path, "train")
    names = _folders(folder)
    if len(names) < 2:
        raise DataError(f"{folder}: expected one folder per class, two or more; found {len(names)}.")
    return names


def split_folder(path: Path, split: str) -> Path:
    """The folder of a split; the test part may also be called val, valid or validation."""
    choices = [split] if split == "train" else [split, "val", "valid", "validation"]
    folder = next((path / name for name in choices if (path / name).is_dir()), None)
    if folder is None:
        folders = _folders(path)
        classes = split == "train" and len(folders) > 1 and not {"test", "val", "valid", "validation"} & set(folders)
        advice = (f" It has {len(folders)} folders, such as {folders[0]}: if they are the classes, divide the images "
                  f"of each between two folders, here train/{folders[0]} and test/{folders[0]}.") if classes else ""
        raise DataError(f"{path}: expected a folder {' or '.join(choices[:2])} in it, with a folder of images per "
                        f"class.{advice}")
    return folder


def _folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def list_class_folders(path: Path, split: str) -> FileSplit:
    """The files of a split, class by class; the classes are the folders of the training part in alphabetical order.

    Raises:
        DataError: a class of the training part has no images, another part has a class that the training part does not
            have, or there are images outside of the folders of classes.
    """
    return list_classes(split_folder(path, split), class_folders(path), every=split == "train")


def list_classes(folder: Path, classes: Sequence[str], *, every: bool) -> FileSplit:
    """The files in ``folder`` by class; with ``every`` no class may be empty."""
    unknown = sorted({entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")}
                     - set(classes))
    if unknown:
        raise DataError(f"{folder} has the class {unknown[0]!r}, which the training part does not have. Remove or "
                        "rename the folder.")
    loose = image_names(folder, deep=False)
    if loose and not any((folder / name).is_dir() for name in classes):
        raise DataError(f"{folder} has images such as {loose[0]!r} and no folders per class: expected "
                        f"{classes[0]}/{loose[0]} or the like, with the names of the training part's folders.")
    if loose:
        raise DataError(f"{folder / loose[0]}{_more(loose)}: outside of the folders of classes, so without a label. "
                        "Move the images into these folders, or remove them.")
    names: list[str] = []
    labels: list[int] = []
    empty = []
    for label, name in enumerate(classes):
        files = image_names(folder / name) if (folder / name).is_dir() else []
        names += [f"{name}/{file}" for file in files]
        labels += [label] * len(files)
        empty += [] if files else [name]
    if empty and (every or not names):
        raise DataError(f"{folder / empty[0]}{_more(empty)}: no images; expected files ending in {', '.join(ENDINGS)}. "
                        "Unpack the class's archive there, or remove the folder if the class is not wanted.")
    return FileSplit(FileList(folder, names), torch.tensor(labels))


def _more(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def image_names(folder: Path, *, deep: bool = True) -> list[str]:
    """The names of the image files in a folder and, if ``deep``, in the folders below it, sorted.

    Hidden files, and entries that are neither a file nor a folder, are left out.

    Raises:
        DataError: a link is broken, so that an image would be missing unnoticed.
    """
    resolved = folder.resolve()
    return sorted(_walk(str(folder), "", deep, {_identity(path) for path in (resolved, *resolved.parents)}))


def _identity(path: str | Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _walk(folder: str, inner: str, deep: bool, visited: set[tuple[int, int]]) -> Iterator[str]:
    subfolders = []
    with os.scandir(os.path.join(folder, inner)) as opened:
        entries = list(opened)
    for entry in entries:
        if entry.name.startswith("."):
            continue
        name = f"{inner}{entry.name}"
        if entry.name.lower().endswith(ENDINGS) and entry.is_file():
            yield name
        elif entry.is_dir():
            subfolders.append(name)
        elif entry.is_symlink() and not os.path.exists(entry.path):
            raise DataError(f"{entry.path}: a link to {os.readlink(entry.path)}, which does not exist. Mount its disk, "
                            "or remove the link if the image is not wanted.")
    for name in subfolders if deep else ():
        identity = _identity(os.path.join(folder, name))
        if identity not in visited:  # a link may point to a folder that contains it
            visited.add(identity)
            yield from _walk(folder, f"{name}/", deep, visited)
