"""Fetch a dataset from its publisher; files with a wrong checksum are not kept."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..errors import DataError
from ..whole_file import open_whole
from ._load import absent, damage
from .registry import Dataset, File, data_dir, dataset, find, missing


def download(name: str, root: str | Path | None = None) -> Path:
    """Fetch what is missing or damaged of a dataset and return the data directory."""
    facts, folder = dataset(name), data_dir(root)
    if facts.by_hand:
        if missing(name, folder):
            raise DataError(absent(name, ("train", "test"), folder))
        return folder
    if facts.archive is not None:
        if not is_whole(name, folder):
            _unpack(facts, folder)
        return folder
    for file in dict.fromkeys(facts.train + facts.test):
        if not _is_whole(file, folder):
            target = folder / file.path
            _fetch(facts, target.name, file.md5, target.parent)
    return folder


def is_whole(name: str, folder: Path, splits: tuple[str, ...] = ("train", "test")) -> bool:
    """Whether all files of these splits are there, with the publisher's sizes and checksums where these are known."""
    facts = dataset(name)
    if facts.by_hand:
        return not missing(name, folder, splits)
    return all(_is_whole(file, folder) for split in splits for file in facts.files(split))


def _is_whole(file: File, folder: Path) -> bool:
    path = find(file, folder)
    return path is not None and damage(file, path) is None


def _fetch(facts: Dataset, name: str, md5: str | None, folder: Path) -> Path:
    import pooch

    reasons = []
    for url in facts.urls:
        try:
            return Path(pooch.retrieve(url + name, known_hash=md5 and f"md5:{md5}", fname=name, path=folder))
        except Exception as error:  # every transport has its own errors; the next URL may still have the file
            reasons.append(f"{url}{name}: {error}")
    raise DataError(f"{name} could not be fetched into {folder}.\n  " + "\n  ".join(reasons)
                    + f"\nPut the file there by hand, or point --data at a directory that has {facts.name}.")


def _unpack(facts: Dataset, folder: Path) -> None:
    assert facts.archive is not None
    path = _fetch(facts, facts.archive.name, facts.archive.md5, folder)
    # Only the dataset's own files are unpacked, so that no name in the archive can lead out of the folder.
    with _members(path) as open_member:
        for file in dict.fromkeys(facts.train + facts.test):
            source = open_member(file.path.removeprefix(f"{facts.archive.folder}/"))
            if source is None:
                raise DataError(f"{path} holds no {file.path}: not the archive of {facts.name} that was expected.")
            target = folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            with source, open_whole(target) as copy:
                shutil.copyfileobj(source, copy)


@contextmanager
def _members(path: Path) -> Iterator[Callable[[str], IO[bytes] | None]]:
    """A function that opens a file of an archive by the path that it will have; None if there is no such file."""
    if path.suffix == ".zip":  # of the TU collection: NAME/NAME_A.txt, which torch-geometric keeps in NAME/raw
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            yield lambda name: archive.open(n) if (n := name.replace("/raw/", "/")) in names else None
        return
    with tarfile.open(path) as tar:
        members = {member.name.removeprefix("./"): member for member in tar if member.isfile()}
        yield lambda name: tar.extractfile(members[name]) if name in members else None
