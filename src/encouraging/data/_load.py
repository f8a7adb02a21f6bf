"""Read a split of a dataset as two tensors, with checks of its files against the publisher's."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from ..errors import DataError
from ..imbalance import long_tail_indices
from .cifar import read_cifar
from .digits import read_digits
from .idx import read_idx
from .registry import VARIABLE, Dataset, File, data_dir, dataset, find, missing

_RESIDENT = ("digits", "idx", "cifar", "cifar_fine")
# What they hold, and the task that reads it.
_OTHERS = {"tu": ("graphs", "graph"), "voc": ("images with boxes", "detection"),
           "coco": ("images with boxes", "detection"), "multi30k": ("sentences", "translation"),
           "iwslt": ("sentences", "translation"), "text": ("running text", "language")}


def load(name: str, split: str, root: str | Path | None = None,
         imbalance: float | None = None) -> tuple[Tensor, Tensor]:
    """Images (N, C, H, W) as uint8 and labels (N,) as int64.

    Args:
        name: one of :data:`DATASETS`.
        split: ``train`` or ``test``.
        root: the data directory; by default ``ENCOURAGING_DATA``, or else the user's cache.
        imbalance: of a long-tailed dataset such as ``cifar100-lt``; None for 100.

    >>> images, labels = load("digits", "test")
    >>> images.shape, images.dtype, labels.shape
    (torch.Size([597, 1, 8, 8]), torch.uint8, torch.Size([597]))
    """
    facts = dataset(name, imbalance)
    check_resident(facts)
    if split not in ("train", "test"):
        raise DataError(f"split {split!r} of {name}: expected 'train' or 'test'.")
    if facts.reader == "digits":
        return read_digits(split)
    folder = data_dir(root)
    paths = checked_files(name, split, folder)
    if facts.reader == "idx":
        images, labels = (read_idx(path) for path in paths)
        images, labels = images.unsqueeze(1), labels.long()
    else:
        parts = [read_cifar(path, 2 if facts.reader == "cifar_fine" else 1) for path in paths]
        images, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    if len(images) != len(labels):
        raise DataError(f"{name}: {len(images)} images and {len(labels)} labels in {folder}: the files do not "
                        "belong together. Fetch them again.")
    if facts.long_tail is not None and split == "train":
        indices = long_tail_indices(labels, facts.long_tail.imbalance, facts.long_tail.seed)
        images, labels = images[indices], labels[indices]
    return images, labels


def check_resident(facts: Dataset) -> None:
    """Refuse a dataset that is not of labelled images, or whose images do not fit on the device."""
    if facts.reader in _RESIDENT:
        return
    if facts.reader in ("imagenet", "inaturalist"):
        raise DataError(f"{facts.name} is too large for the device: its images are read from files by "
                        "task = \"image_files\".")
    if facts.reader not in _OTHERS:
        raise DataError(f"{facts.name} has no images with labels: its reader is {facts.reader}.")
    holds, task = _OTHERS[facts.reader]
    raise DataError(f"{facts.name} holds {holds}: expected images with labels. {holds.capitalize()} belong to "
                    f"task = \"{task}\".")


def checked_files(name: str, split: str, folder: Path) -> list[Path]:
    """The files of a dataset's split; raises a DataError if one is missing or differs from the publisher's."""
    if missing(name, folder, (split,)):
        raise DataError(absent(name, (split,), folder))
    return [_checked(file, folder) for file in dataset(name).files(split)]


def absent(name: str, splits: tuple[str, ...], folder: Path, *, fetch: str = "--download",
           option: str = "--data") -> str:
    """The message for a dataset that is missing: the exact file names, and how to get them.

    ``fetch`` is the command or option that downloads it, and ``option`` the one that names its folder.
    """
    facts = dataset(name)
    listed = "\n".join(f"  {folder / path}" for path in missing(name, folder, splits))
    sources = [url + (facts.archive.name if facts.archive else "") for url in facts.urls]
    absent_splits = [split for split in splits if missing(name, folder, (split,))]
    start = (f"the {' and the '.join(absent_splits)} part of {name} {'is' if len(absent_splits) == 1 else 'are'} not "
             f"in {folder}.")
    if facts.by_hand:
        return (f"{start} Missing:\n{listed}\nIt takes {facts.gigabytes:g} GB "
                f"and cannot be downloaded from here: {facts.by_hand}; or point {option} or {VARIABLE} at a "
                "directory that has it.")
    return (f"{start} These files are missing:\n{listed}\n"
            f"Fetch them with {fetch}, or put them there by hand (from {' or '.join(sources)}), "
            f"or point {option} or {VARIABLE} at a directory that has them.")


def damage(file: File, path: Path) -> str | None:
    """In which way a file differs from the publisher's; None if it does not, or if nothing is known about that file."""
    if file.size is not None and path.stat().st_size != file.size:
        return f"expected {file.size} bytes, got {path.stat().st_size}."
    # The published checksum is that of the file as shipped; of an unzipped one only the header is checked.
    if file.md5 is not None and path.name == Path(file.path).name:
        digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        if digest != file.md5:
            return f"expected MD5 {file.md5}, got {digest}. The file is damaged or is another one."
    return None


def _checked(file: File, folder: Path) -> Path:
    path = find(file, folder)
    assert path is not None
    if (words := damage(file, path)) is not None:
        raise DataError(f"{path}: {words} Fetch it again (--download replaces it).")
    return path
