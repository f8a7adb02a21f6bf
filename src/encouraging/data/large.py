"""Datasets by name that are too large for a device: lists of files that workers read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ..errors import DataError
from .class_folders import class_folders, list_class_folders
from .file_list import FileSplit, ImageFiles
from .imagenet import read_imagenet
from .images import folder_path
from .inaturalist import read_inaturalist
from .registry import data_dir, dataset, missing

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, of red, green and blue
_READERS: Mapping[str, Callable[[Path, str], tuple[FileSplit, tuple[str, ...]]]] = {
    "imagenet": read_imagenet, "inaturalist": read_inaturalist,
}


def is_large(name: str) -> bool:
    """Whether this dataset is read from files, image by image."""
    return dataset(name).reader in _READERS


def read_image_files(name: str, root: str | Path | None = None, *, splits: tuple[str, ...] = ("train", "test"),
                     folder: str | None = None) -> ImageFiles:
    """List the files of a large dataset, or of ``folder:PATH`` with a folder per class below ``train`` and ``val``.

    Only names are read. Your own folder gets ImageNet's mean and standard deviation.

    Args:
        name: ``imagenet``, ``inaturalist2018`` or ``folder:PATH``.
        root: the data directory; by default ``ENCOURAGING_DATA``, or else the user's cache.
        splits: some of ``train`` and ``test``.
        folder: the folder of the recipe's file, in which ``folder:PATH`` is also searched.

    Raises:
        DataError: something is missing or differs from what is shipped; the message names it.
    """
    try:
        return _listed(name, root, splits, folder)
    except OSError as error:
        raise DataError(f"{error.filename or name}: cannot be listed ({error.strerror or error}). Check that the disk "
                        "is mounted and that you may read the folder.") from error


def _listed(name: str, root: str | Path | None, splits: tuple[str, ...], folder: str | None) -> ImageFiles:
    if name.startswith("folder:"):
        path = folder_path(name, root, folder)
        return ImageFiles({split: list_class_folders(path, split) for split in splits}, len(class_folders(path)), MEAN,
                          STD, tuple(class_folders(path)))
    facts = dataset(name)
    if facts.reader not in _READERS:
        raise DataError(f"{name} fits on the device: expected a dataset of files (imagenet, inaturalist2018) or "
                        "folder:PATH. Use task = \"image\" for it.")
    data = data_dir(root)
    if missing(name, data, splits):
        from ._load import absent

        raise DataError(absent(name, splits, data))
    read = {split: _READERS[facts.reader](data, split) for split in splits}
    names = next(iter(read.values()))[1]
    for split, (_, others) in read.items():
        if others != names:
            different = sorted(set(others) ^ set(names)) or names
            raise DataError(f"{name}: the {split} part has {len(others)} classes and the {next(iter(read))} part "
                            f"{len(names)}; {different[0]!r}, for example, is not at the same position in both. The "
                            "files do not belong together: fetch them again.")
    return ImageFiles({split: files for split, (files, _) in read.items()}, len(names), facts.mean, facts.std, names)
