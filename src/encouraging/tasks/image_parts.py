"""Training, validation and test images of a task: all of them, or a few to rehearse a recipe."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data import generator
from ..errors import DataError
from .image_options import Options

Part = tuple[Tensor, Tensor]  # images and labels


def few_positions(labels: Tensor, count: int | None) -> Tensor | None:
    """The positions of the first ``count`` examples; None if these are all of them.

    The first examples of data that is sorted by class, as folders are, would have one class. From such data ``count``
    examples are drawn at random, the same ones for every seed.

    >>> few_positions(torch.tensor([1, 0, 1, 0]), 2)
    tensor([0, 1])
    >>> len(few_positions(torch.arange(100) // 10, 30))
    30
    """
    if count is None or count >= len(labels):
        return None
    if bool((labels[1:] >= labels[:-1]).all()):
        return torch.randperm(len(labels), generator=generator(0))[:count].sort().values
    return torch.arange(count)


def few_images(part: Part, count: int | None) -> Part:
    """``count`` images of a part and their labels; all if it is None."""
    images, labels = part
    chosen = few_positions(labels, count)
    return part if chosen is None else (images[chosen], labels[chosen])


def training_parts(part: Part, options: Options, data: str) -> tuple[Part, Part | None, Tensor]:
    """Training images, validation images taken from them, and the labels from which classes are counted.

    Classes are counted before ``options.train_images`` removes images: class weights, margins and the groups of a long
    tail are then those of all training images, and no class has a count of 0.
    """
    images, labels = part
    count, validation = options.validation, None
    if count >= len(images):
        raise DataError(f"options.validation = {count}: {data} has {len(images)} training images, and some must be "
                        "left to train on.")
    if count:  # the same examples for every seed, so that seeds can be compared
        order = torch.randperm(len(images), generator=generator(0))
        validation = few_images((images[order[:count]], labels[order[:count]]), options.test_images)
        images, labels = images[order[count:]], labels[order[count:]]
    return few_images((images, labels), options.train_images), validation, labels
