"""Batches of pictures from files, made in workers; files that are broken are left out and named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import DataError
from .decode import BrokenImageError, decode
from .file_list import FileSplit
from .picture_transforms import Transform, erased_box


class Picture(NamedTuple):
    """One example: its pixels, or None and what is wrong: with the file (``fault``), or with the disk (``lost``)."""

    pixels: Tensor | None
    label: int
    box: Tensor
    fault: str = ""
    lost: str = ""


class Loaded(NamedTuple):
    """A batch: bytes (N, H, W, 3), labels, boxes to erase (N, 4), and how many files were broken.

    Errors travel as words: what a worker raises arrives with the traceback of another process.
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
            return Picture(None, label, box, fault=str(error))
        except DataError as error:
            return Picture(None, label, box, lost=str(error))
        return Picture(self.transform(picture), label, box)

    def collate(self, examples: list[Picture], draw: torch.Generator) -> Loaded:
        return self.fill(examples, torch.empty(len(examples), self.size, self.size, 3, dtype=torch.uint8))

    def fill(self, examples: Iterable[Picture], memory: Tensor) -> Loaded:
        """A batch whose images are written to ``memory`` (N, size, size, 3) as they are made: the first rows of it."""
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
        whole = torch.stack(boxes) if boxes else torch.empty(0, 4, dtype=torch.long)
        return Loaded(memory[: len(labels)], torch.tensor(labels, dtype=torch.long), whole, torch.tensor(len(faults)),
                      faults, lost)


class Pieces:
    """A rank's share of a split, in order, for evaluation: whole pieces, so that any number of ranks makes the same."""

    def __init__(self, count: int, size: int, rank: int, world: int) -> None:
        self.count, self.size, self.rank, self.world = count, size, rank, world

    @property
    def numbers(self) -> range:
        return range(self.rank, -(-self.count // self.size), self.world)

    def batches(self, draw: torch.Generator) -> Sequence[Tensor]:
        pieces = torch.split(torch.arange(self.count), self.size)
        return [pieces[number] for number in self.numbers]
