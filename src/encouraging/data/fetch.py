"""Fetch a dataset from its publisher; files with a wrong checksum are not kept."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from ..errors import DataError
from .registry import Dataset, data_dir, dataset, find, missing


def download(name: str, root: str | Path | None = None) -> Path:
    """Fetch what is missing of a dataset and return the data directory."""
    facts, folder = dataset(name), data_dir(root)
    if facts.archive is not None:
        if missing(name, folder):
            _unpack(facts, folder)
        return folder
    for file in facts.train + facts.test:
        if find(file, folder) is None:
            target = folder / file.path
            _fetch(facts, target.name, file.md5, target.parent)
    return folder


def _fetch(facts: Dataset, name: str, md5: str | None, folder: Path) -> Path:
    import pooch

    reasons = []
    for url in facts.urls:
        try:
            return Path(pooch.retrieve(url + name, known_hash=md5 and f"md5:{md5}", fname=name, path=folder))
        except Exception as error:  # every transport has errors of its own; the next URL may still have the file
            reasons.append(f"{url}{name}: {error}")
    raise DataError(f"{name} could not be fetched into {folder}.\n  " + "\n  ".join(reasons)
                    + f"\nPut the file there by hand, or point --data at a directory that has {facts.name}.")


def _unpack(facts: Dataset, folder: Path) -> None:
    assert facts.archive is not None
    path = _fetch(facts, facts.archive.name, facts.archive.md5, folder)
    # The dataset's own files and nothing else, so that no name in the archive can lead out of the folder.
    with tarfile.open(path) as archive:
        members = {member.name.removeprefix("./"): member for member in archive if member.isfile()}
        for file in dict.fromkeys(facts.train + facts.test):
            source = archive.extractfile(members[file.path]) if file.path in members else None
            if source is None:
                raise DataError(f"{path} holds no {file.path}: not the archive of {facts.name} that was expected.")
            target = folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            with source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)
