"""iNaturalist 2018 as it is shipped: the annotations as JSON, the images of both parts below one folder.

    inaturalist2018/train2018.json, val2018.json
    inaturalist2018/train_val2018/Plantae/7477/3b60c9486db1d2ee875f11a669fbde4a.jpg
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import DataError
from .file_list import FileList, FileSplit

FOLDERS = ("inaturalist2018", "iNaturalist2018", "inat2018", "iNat2018", "")
IMAGES = "train_val2018"
_PARTS = {"train": "train2018.json", "test": "val2018.json"}


def inaturalist_folder(root: Path) -> Path:
    """The folder below the data directory that has the JSON files; the usual one if none has."""
    existing = (root / name for name in FOLDERS if any((root / name / part).is_file() for part in _PARTS.values()))
    return next(existing, root / FOLDERS[0])


def missing_inaturalist(root: Path, splits: Sequence[str]) -> list[str]:
    """What is missing for these splits, relative to ``root``."""
    folder = inaturalist_folder(root)
    wanted = [*(folder / _PARTS[split] for split in splits), folder / IMAGES]
    return [str(path.relative_to(root)) for path in wanted if not path.exists()]


def read_inaturalist(root: Path, split: str) -> tuple[FileSplit, tuple[str, ...]]:
    """The files of ``train`` or ``test``, which is the validation part, in the order of their file; the class names.

    Labels are the positions of the categories, sorted by their numbers, which are 0 to 8141 in the official files.
    """
    folder = inaturalist_folder(root)
    path = folder / _PARTS[split]
    try:
        content = json.loads(path.read_bytes())
        categories = sorted(content["categories"], key=lambda entry: int(entry["id"]))
        label_of = {int(entry["id"]): label for label, entry in enumerate(categories)}
        names = tuple(str(entry.get("name", entry["id"])) for entry in categories)
        category = {entry["image_id"]: int(entry["category_id"]) for entry in content["annotations"]}
        files = [str(image["file_name"]) for image in content["images"]]
        labels = [label_of[category[image["id"]]] for image in content["images"]]
        listed = FileList(folder, files)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Expected the annotations of iNaturalist 2018."
                        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(f"{path}: not the annotations of iNaturalist 2018, with images, annotations and categories "
                        f"({type(error).__name__}: {error}). Unpack {path.name}.tar.gz again.") from error
    for part, key in (("categories", "id"), ("images", "id"), ("annotations", "image_id")):
        _refuse_duplicates(path, part, key, [entry[key] for entry in content[part]])
    _check(path, folder, files, labels, names, split)
    return FileSplit(listed, torch.tensor(labels)), names


def _refuse_duplicates(path: Path, part: str, key: str, numbers: Sequence[Any]) -> None:
    """Of two entries with the same number only the last would be used, and an image could get a wrong label."""
    duplicate = next((number for number, count in Counter(numbers).items() if count > 1), None)
    if duplicate is not None:
        raise DataError(f"{path}: {part} has several entries with {key} {duplicate!r}; expected one. Unpack "
                        f"{path.name}.tar.gz again, or remove the others.")


def _check(path: Path, folder: Path, files: Sequence[Any], labels: Sequence[int], names: Sequence[str],
           split: str) -> None:
    if not files:
        raise DataError(f"{path}: has no images.")
    for file in files:
        if file.startswith("/") or ".." in file.split("/") or "\0" in file:
            raise DataError(f"{path}: the file name {file!r} is not below {folder}.")
    empty = sorted(set(range(len(names))) - set(labels)) if split == "train" else []
    if empty:
        raise DataError(f"{path}: the category {names[empty[0]]!r} (and {len(empty) - 1} more) has no training "
                        "images; expected at least one each.")
    first = next((file for file in (files[0], files[-1]) if not (folder / file).is_file()), None)
    if first is not None:
        raise DataError(f"{folder / first}: no such file, although {path.name} names it. Unpack {IMAGES}.tar.gz in "
                        f"{folder}.")
