"""Image datasets of a few random images in their publishers' layouts, and recipes that train two updates on them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encouraging.data.registry import DATASETS
from encouraging.recipes import Recipe, check_recipe

IMBALANCE = 4  # of the tiny long tails: four images of the first class, one of the last


def _idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return head + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, count: int = 8, classes: int = 4) -> None:
    """MNIST and Fashion-MNIST, unzipped: only the files as shipped have checksums."""
    random = np.random.default_rng(0)
    for name in ("MNIST", "FashionMNIST"):
        raw = folder / name / "raw"
        raw.mkdir(parents=True)
        for prefix in ("train", "t10k"):
            (raw / f"{prefix}-images-idx3-ubyte").write_bytes(_idx(random.integers(0, 256, (count, 28, 28))))
            (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(_idx(np.arange(count) % classes))


def write_cifar(folder: Path, train: int, test: int) -> None:
    """CIFAR-10 and CIFAR-100: ``train`` and ``test`` images, whose labels take turns."""
    random = np.random.default_rng(0)

    def write(path: Path, labels: np.ndarray, label_bytes: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (len(labels), 3072))
        pixels[:, :1024] = pixels[:, :1024] // 4 + 8 * labels[:, None] % 192  # the first channel tells the class
        path.write_bytes(np.concatenate([labels[:, None]] * label_bytes + [pixels], 1).astype(np.uint8).tobytes())

    ten, hundred = folder / "cifar-10-batches-bin", folder / "cifar-100-binary"
    for number, labels in enumerate(np.array_split(np.arange(train) % 10, 5), 1):
        write(ten / f"data_batch_{number}.bin", labels, 1)
    write(ten / "test_batch.bin", np.arange(test) % 10, 1)
    write(hundred / "train.bin", np.arange(train) % 100, 2)
    write(hundred / "test.bin", np.arange(test) % 100, 2)


@contextmanager
def any_size() -> Iterator[None]:
    """The registry without the sizes of the published files."""
    with pytest.MonkeyPatch.context() as patch:
        for name, known in DATASETS.items():
            parts = {split: tuple(replace(file, size=None) for file in known.files(split)) for split in
                     ("train", "test")}
            patch.setitem(DATASETS, name, replace(known, **parts))
        yield


def short(name: str, batch_size: int = 2, **changes: Any) -> Recipe:
    """A shipped recipe as it is, but for two updates per stage, small batches, and the imbalance of the tiny data."""
    tree = tomllib.loads((resources.files("encouraging.recipes") / f"{name}.toml").read_text())
    stages = [*tree.get("stages", []), *(stage for arm in tree["arms"].values() for stage in arm.get("stages", []))]
    for table in (tree["train"], *(stage["train"] for stage in stages if "train" in stage)):
        table.update(max_steps=2, batch_size=batch_size)
    for stage in stages:
        if "train" in stage:  # two updates leave batch norm's averages far off, and features on them are huge
            stage["train"]["lr"] = 1e-9
    if "imbalance" in tree.get("options", {}):
        tree["options"]["imbalance"] = IMBALANCE
    if "validation" in tree.get("options", {}):
        tree["options"]["validation"] = 2
    return check_recipe({**tree, **changes}, name, f"{name}.toml")
