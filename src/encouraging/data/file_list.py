"""Images that stay in their files until a worker reads them: paths, labels, classes and statistics."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


class FileList:
    """Many paths below one folder, in one block of memory.

    A Python list of a million strings is copied, page by page, into every worker process that touches it: each access
    counts references, which writes to memory that the processes would otherwise share.

    >>> files = FileList("/data", ["a/1.jpg", "b/2.jpg"])
    >>> len(files), files[1]
    (2, '/data/b/2.jpg')
    """

    def __init__(self, folder: str | Path, names: Iterable[str]) -> None:
        self.folder = str(folder)
        encoded = [os.fsencode(name) for name in names]
        self._text = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(index)
        name = self._text[self._ends[index] : self._ends[index + 1]].tobytes()
        return os.path.join(self.folder, os.fsdecode(name))


@dataclass(frozen=True)
class FileSplit:
    """The paths and labels of a split's images. ``chosen`` are the positions in ``files``, if they are a part of it."""

    files: FileList
    labels: Tensor
    chosen: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> str:
        return self.files[index if self.chosen is None else int(self.chosen[index])]

    def sample(self, count: int, draw: torch.Generator) -> FileSplit:
        """``count`` of the images, drawn without replacement, in the order of the data; all if there are fewer."""
        if count >= len(self):
            return self
        return self.part(torch.randperm(len(self), generator=draw)[:count].sort().values)

    def part(self, positions: Tensor) -> FileSplit:
        """The images at these positions of the split."""
        return FileSplit(self.files, self.labels[positions], positions if self.chosen is None else
                         self.chosen[positions])


@dataclass(frozen=True)
class ImageFiles:
    """Splits of colour images in files; like :class:`Images`, but without the pixels."""

    splits: Mapping[str, FileSplit]
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    names: tuple[str, ...] = field(default=())
    highest: int = 255
    channels: int = 3
