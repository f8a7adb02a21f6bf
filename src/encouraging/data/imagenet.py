"""ImageNet (ILSVRC 2012) as it is shipped: folders by WordNet id, or the validation images flat beside the devkit.

    imagenet/train/n01440764/n01440764_10026.JPEG     one folder per class
    imagenet/val/n01440764/ILSVRC2012_val_00000293.JPEG
    imagenet/val/ILSVRC2012_val_00000293.JPEG         or all in one folder, and then also
    imagenet/ILSVRC2012_devkit_t12/data/              the devkit, unpacked, or ILSVRC2012_devkit_t12.tar.gz
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import DataError
from .class_folders import class_folders, image_names, list_classes
from .file_list import FileList, FileSplit

FOLDERS = ("imagenet", "ImageNet", "ILSVRC2012", "imagenet-1k", "ILSVRC/Data/CLS-LOC", "")
DEVKIT = "ILSVRC2012_devkit_t12"
_TRUTH, _META = "data/ILSVRC2012_validation_ground_truth.txt", "data/meta.mat"
_FLAT = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG", re.IGNORECASE)


def imagenet_folder(root: Path) -> Path:
    """The folder below the data directory that has ``train`` or ``val``; the usual one if none has."""
    existing = (root / name for name in FOLDERS if (root / name / "train").is_dir() or (root / name / "val").is_dir())
    return next(existing, root / FOLDERS[0])


def missing_imagenet(root: Path, splits: Sequence[str]) -> list[str]:
    """The folders of these splits that are missing, relative to ``root``."""
    folder = imagenet_folder(root)
    # The labels of the validation part are numbers of classes, which are the folders of the training part.
    parts = dict.fromkeys(["train", *("val" for split in splits if split == "test")])
    return [str((folder / part).relative_to(root)) for part in parts if not (folder / part).is_dir()]


def read_imagenet(root: Path, split: str) -> tuple[FileSplit, tuple[str, ...]]:
    """The files of ``train`` or ``test``, which is the validation part, and the WordNet ids of the classes."""
    folder = imagenet_folder(root)
    if split == "train" and (folder / "train").is_dir():
        _refuse_archives(folder / "train")
    classes = class_folders(folder)
    part = folder / ("train" if split == "train" else "val")
    if not part.is_dir():
        raise DataError(f"{part}: no such folder; expected ImageNet's validation images, in a folder per class or "
                        f"flat beside {DEVKIT}.")
    flat = split == "test" and not any(entry.is_dir() for entry in part.iterdir() if not entry.name.startswith("."))
    files = _flat(part, classes, folder, root) if flat else list_classes(part, classes, every=split == "train")
    return files, tuple(classes)


def _refuse_archives(train: Path) -> None:
    """The training part is shipped as an archive of archives, of which the inner ones are easily forgotten."""
    if not any(entry.is_dir() for entry in train.iterdir()):
        archives = sorted(train.glob("*.tar"))
        if archives:
            raise DataError(f"{train}: {len(archives)} archives such as {archives[0].name} and no folders. Unpack each "
                            "into a folder of its name: for f in *.tar; do mkdir ${f%.tar}; tar xf $f -C ${f%.tar}; "
                            "done")


def _flat(part: Path, classes: Sequence[str], folder: Path, root: Path) -> FileSplit:
    names = image_names(part, deep=False)
    if not names:
        raise DataError(f"{part}: no images; expected 50000 such as ILSVRC2012_val_00000001.JPEG, or a folder per "
                        "class.")
    ids = _validation_ids(folder, root)
    label_of = {name: label for label, name in enumerate(classes)}
    labels = []
    for name in names:
        match = _FLAT.fullmatch(name)
        if match is not None and int(match[1]) > len(ids):
            raise DataError(f"{part / name}: the devkit's {_TRUTH} has {len(ids)} lines, and so no label for this "
                            f"image. Expected one line per image, 50000 as shipped: unpack {DEVKIT}.tar.gz again.")
        if match is None or not int(match[1]):
            raise DataError(f"{part / name}: expected names ILSVRC2012_val_00000001.JPEG to {len(ids):08d}: the number "
                            "is the line of the label in the devkit's file.")
        wordnet = ids[int(match[1]) - 1]
        if wordnet not in label_of:
            raise DataError(f"{part / name} is of the class {wordnet!r}, which the training part does not have.")
        labels.append(label_of[wordnet])
    return FileSplit(FileList(part, names), torch.tensor(labels))


def _validation_ids(folder: Path, root: Path) -> list[str]:
    """The WordNet id of every validation image, in the order of their numbers."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    truth, meta = (_devkit_file(name, folder, root) for name in (_TRUTH, _META))
    try:
        numbers = [int(line) for line in truth.split()]
        synsets: Any = loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"]
        wordnet_ids = {int(number): str(name)
                       for number, name in zip(synsets["ILSVRC2012_ID"], synsets["WNID"], strict=True)}
        return [wordnet_ids[number] for number in numbers]
    except (ValueError, KeyError, TypeError, IndexError, NotImplementedError, OSError, zlib.error,
            MatReadError) as error:  # OSError, too, is about the content, which is in memory
        raise DataError(f"{DEVKIT}: {_TRUTH} or {_META} is not what ImageNet's devkit has ({type(error).__name__}: "
                        f"{error}). Unpack it again.") from error


def _devkit_file(name: str, folder: Path, root: Path) -> bytes:
    parents = list(dict.fromkeys([folder, folder.parent, root]))
    for parent in parents:
        if (parent / DEVKIT / name).is_file():
            return (parent / DEVKIT / name).read_bytes()
        archive = parent / f"{DEVKIT}.tar.gz"
        if archive.is_file():
            try:
                with tarfile.open(archive) as tar:
                    member = tar.extractfile(f"{DEVKIT}/{name}")
                    if member is not None:
                        return member.read()
            except (tarfile.TarError, KeyError, OSError, EOFError, zlib.error) as error:
                raise DataError(f"{archive}: {DEVKIT}/{name} cannot be read from it ({error}). Fetch it again."
                                ) from error
    raise DataError(f"{folder / 'val'} has images and no folders per class, and {DEVKIT}/{name}, which has their "
                    f"labels, is not in {' or '.join(map(str, parents))}. Put ImageNet's devkit ({DEVKIT}.tar.gz, or "
                    "unpacked) there, or move the images into folders by WordNet id.")
