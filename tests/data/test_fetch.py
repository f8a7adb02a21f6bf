"""Downloads that were interrupted, and files that are damaged, are repaired by the next download."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from pathlib import Path

import pytest

from encouraging.data import fetch, missing
from encouraging.data.registry import DATASETS, Archive, Dataset, File
from encouraging.errors import DataError

SIZES = {"a.bin": 3073, "b.bin": 6146}


def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, checked: bool) -> Path:
    """A dataset whose archive lies in ``tmp_path``; the data directory."""
    (tmp_path / "in/toy-bin").mkdir(parents=True)
    for name, size in SIZES.items():
        (tmp_path / "in/toy-bin" / name).write_bytes(bytes(size))
    with tarfile.open(tmp_path / "toy.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "in/toy-bin", "toy-bin")
    train, test = ((File(f"toy-bin/{name}", size=size if checked else None),) for name, size in SIZES.items())
    monkeypatch.setitem(DATASETS, "toy", Dataset("toy", "cifar", 10, (3, 32, 32), (0.0,) * 3, (1.0,) * 3, train, test,
                                                 ("place://",), Archive("toy.tar.gz", "0")))
    monkeypatch.setattr(fetch, "_fetch", lambda *_: tmp_path / "toy.tar.gz")
    return tmp_path / "data"


@pytest.mark.parametrize("checked", [True, False])
def test_what_an_interrupted_unpacking_leaves_is_repaired(tmp_path, monkeypatch, checked):
    root, copied = toy(monkeypatch, tmp_path, checked=checked), []

    def interrupted(source, target):
        copied.append(target)
        if len(copied) == 2:
            target.write(source.read(100))
            target.flush()
            raise KeyboardInterrupt
        target.write(source.read())

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch.download("toy", root)
    assert missing("toy", root) == ["toy-bin/b.bin"]
    assert [path.name for path in (root / "toy-bin").iterdir()] == ["a.bin"]  # nothing else is left behind
    fetch.download("toy", root)
    assert {path.name: path.stat().st_size for path in (root / "toy-bin").iterdir()} == SIZES


def test_a_file_of_the_wrong_size_is_unpacked_again(tmp_path, monkeypatch):
    root = toy(monkeypatch, tmp_path, checked=True)
    fetch.download("toy", root)
    (root / "toy-bin/b.bin").write_bytes(bytes(100))
    assert not fetch.is_whole("toy", root)
    assert fetch.is_whole("toy", root, ("train",))
    fetch.download("toy", root)
    assert (root / "toy-bin/b.bin").stat().st_size == 6146


def test_a_file_with_another_checksum_is_fetched_again(tmp_path, monkeypatch):
    right = hashlib.md5(b"right").hexdigest()
    files = (File("toy/a", right),)
    monkeypatch.setitem(DATASETS, "toy", Dataset("toy", "idx", 5, (1, 4, 4), (0.0,), (1.0,), train=files, test=files,
                                                 urls=("place://",)))
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/a").write_bytes(b"wrong")
    fetched = []
    monkeypatch.setattr(fetch, "_fetch", lambda facts, name, md5, folder: fetched.append((name, md5)))
    fetch.download("toy", tmp_path)
    assert fetched == [("a", right)]
    (tmp_path / "toy/a").write_bytes(b"right")
    fetch.download("toy", tmp_path)
    assert len(fetched) == 1


def test_a_damaged_file_is_refused_with_what_repairs_it(tmp_path, monkeypatch):
    from encouraging.data import load

    root = toy(monkeypatch, tmp_path, checked=True)
    fetch.download("toy", root)
    (root / "toy-bin/b.bin").write_bytes(bytes(100))
    with pytest.raises(DataError, match=r"b\.bin: expected 6146 bytes, got 100\. .*--download"):
        load("toy", "test", root)
