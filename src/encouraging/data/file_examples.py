"""Batches of pictures from files, loaded by workers; broken files are left out and reported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import DataError
from .decode import decode
from .file_list import FileSplit
from .picture_transforms import Transform, erased_box
from .pictures import REPAIR, BrokenImageError


class Picture(NamedTuple):
    """One example: its pixels, or None and an error of the file (``fault``) or of the disk (``lost``)."""

    pixels: Tensor | None
    label: int
    box: Tensor
    fault: str = ""
    lost: str = ""


class Loaded(NamedTuple):
    """A batch: bytes (N, H, W, 3), labels, boxes to erase (N, 4), and the number of broken files.

    Errors are sent as strings, because an exception of a worker arrives with the traceback of another process.
    """

    images: Tensor
    labels: Tensor
    boxes: Tensor
    skipped: Tensor
    faults: list[str]
    lost: list[str]


class FileExamples:
    """The pictures of a split, decoded and transformed; ``erase`` is the probability of a box that is erased later.

    Workers get a copy of this object.
    """

    def __init__(self, split: FileSplit, transform: Transform, size: int, erase: float = 0.0) -> None:
        self.split, self.transform, self.size, self.erase = split, transform, size, erase

    def example(self, index: int, draw: torch.Generator) -> Picture:
        label = int(self.split.labels[index])
        box = erased_box(self.size, self.erase, draw) if self.erase else torch.zeros(4, dtype=torch.long)
        try:
            picture = decode(self.split.path(index))
        except BrokenImageError as error:
            return Picture(None, label, box, fault=str(error).removesuffix(f".{REPAIR}"))
        except DataError as error:
            return Picture(None, label, box, lost=str(error))
        return Picture(self.transform(picture), label, box)

    def collate(self, examples: list[Picture], draw: torch.Generator) -> Loaded:
        return self.fill(examples, torch.empty(len(examples), self.size, self.size, 3, dtype=torch.uint8))

    def fill(self, examples: Iterable[Picture], memory: Tensor) -> Loaded:
        """A batch whose images are written, one by one, to the first rows of ``memory`` (N, size, size, 3)."""
        labels: list[int] = []
        boxes: list[Tensor] = []
        faults: list[str] = []
        lost: list[str] = []
        for example in examples:
            if example.pixels is not None:
                memory[len(labels)] = example.pixels
                labels.append(example.label)
                boxes.append(example.box)
            faults += [example.fault] if example.fault else []
            lost += [example.lost] if example.lost else []
        stacked = torch.stack(boxes) if boxes else torch.empty(0, 4, dtype=torch.long)
        return Loaded(memory[: len(labels)], torch.tensor(labels, dtype=torch.long), stacked, torch.tensor(len(faults)),
                      faults, lost)
