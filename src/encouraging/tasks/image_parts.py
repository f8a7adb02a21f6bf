"""The parts of a set of images that a task uses: all of it, or a few images of each part, to rehearse a recipe."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data import generator
from ..errors import DataError
from .image_options import Options

Part = tuple[Tensor, Tensor]  # images and labels


def few_positions(labels: Tensor, count: int | None) -> Tensor | None:
    """The positions of the first ``count`` examples; None where that is all of them.

    The first ones of a list that is sorted by class, as folders are, would be of one class. Of such a list as many are
    drawn, the same ones for every seed.

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
    """That many images of a part, and their labels; all where ``count`` is None."""
    images, labels = part
    chosen = few_positions(labels, count)
    return part if chosen is None else (images[chosen], labels[chosen])


def training_parts(part: Part, options: Options, data: str) -> tuple[Part, Part | None, Tensor]:
    """Training images, those held out of them for validation, and the labels by which classes are counted.

    Classes are counted before ``options.train_images`` leaves most images out: class weights, margins and the groups of
    a long tail are then those of the whole set, and no class counts 0.
    """
    images, labels = part
    held, validation = options.validation, None
    if held >= len(images):
        raise DataError(f"options.validation = {held}: {data} has {len(images)} training images, and some must be left "
                        "to train on.")
    if held:  # the same examples for every seed, so that seeds are compared on equal terms
        order = torch.randperm(len(images), generator=generator(0))
        validation = few_images((images[order[:held]], labels[order[:held]]), options.test_images)
        images, labels = images[order[held:]], labels[order[held:]]
    return few_images((images, labels), options.train_images), validation, labels
