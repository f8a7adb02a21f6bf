"""Fetch a dataset from where its publisher keeps it; nothing is kept whose checksum is wrong."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from ..errors import DataError
from .registry import Dataset, data_dir, dataset, find, missing


def download(name: str, root: str | Path | None = None) -> Path:
    """Fetch what is missing of a dataset and return the data directory."""
    known, folder = dataset(name), data_dir(root)
    if known.archive is not None:
        if missing(name, folder):
            _unpack(known, folder)
        return folder
    for file in known.train + known.test:
        if find(file, folder) is None:
            target = folder / file.path
            _fetch(known, target.name, file.md5, target.parent)
    return folder


def _fetch(known: Dataset, name: str, md5: str | None, folder: Path) -> Path:
    import pooch

    reasons = []
    for place in known.places:
        try:
            return Path(pooch.retrieve(place + name, known_hash=md5 and f"md5:{md5}", fname=name, path=folder))
        except Exception as error:  # every transport has errors of its own; the next place may still have the file
            reasons.append(f"{place}{name}: {error}")
    raise DataError(f"{name} could not be fetched into {folder}.\n  " + "\n  ".join(reasons)
                    + f"\nPlace the file there by hand, or point --data at a directory that has {known.name}.")


def _unpack(known: Dataset, folder: Path) -> None:
    assert known.archive is not None
    path = _fetch(known, known.archive.name, known.archive.md5, folder)
    # The dataset's own files and nothing else, so that no name in the archive can lead out of the folder.
    with tarfile.open(path) as archive:
        members = {member.name.removeprefix("./"): member for member in archive if member.isfile()}
        for file in dict.fromkeys(known.train + known.test):
            source = archive.extractfile(members[file.path]) if file.path in members else None
            if source is None:
                raise DataError(f"{path} holds no {file.path}: not the archive of {known.name} that was expected.")
            target = folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            with source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)
