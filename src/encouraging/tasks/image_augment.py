"""RandomResizedCrop and mixup of images on the device, and the matching crops of test images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from ..data import Clock, ResidentSource, generator
from ..data.augment import random_boxes, random_flips, resize_center_crop, resized_crop
from ..engine.settings import Frozen

Batch = tuple[Tensor, ...]
PIECE = 2000  # images per batch of an evaluation, up to 79 pixels; fewer if they are larger
_MIXUP = 2  # its stream of random numbers; 0 and 1 are those of examples and batches that workers load


class AugmentOptions(Frozen):
    """The ``options`` of a recipe about augmentation.

    ``train_size`` is the side of RandomResizedCrop's crops and of test images: their shorter side is resized to
    ``test_resize`` (by default 8/7 of ``train_size``: 256 for 224), and a central crop is taken. ``mixup`` is the
    parameter of the beta distribution from which each batch draws the fraction for mixing it with itself.
    """

    augment: Literal["none", "crop_flip", "resized_crop"] = "none"
    train_size: int | None = Field(default=None, gt=0)
    test_resize: int | None = Field(default=None, gt=0)
    mixup: float = Field(default=0.0, ge=0, le=1e6)  # for far larger values numpy draws 0 instead of one half

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if (self.augment == "resized_crop") != (self.train_size is not None):
            raise ValueError(f"augment = {self.augment!r} with train_size = {self.train_size}: 'resized_crop' needs "
                             "train_size, the side of the crops, and no other augment takes it")
        if self.test_resize is not None and (self.train_size is None or self.test_resize < self.train_size):
            raise ValueError(f"test_resize = {self.test_resize} with train_size = {self.train_size}: expected "
                             "augment = 'resized_crop' and a test_resize of at least train_size")
        return self


class ResizedCrop:
    """RandomResizedCrop and flip for training; resize and central crop for evaluation."""

    def __init__(self, options: AugmentOptions, device: torch.device) -> None:
        assert options.train_size is not None
        self.size, self.device = options.train_size, device
        self.resize = options.test_resize or round(self.size * 8 / 7)

    def draw(self, count: int, side: torch.Size, draw: torch.Generator) -> list[Tensor]:
        """Box and flip of every image of an epoch. They are computed on the device from one number, because fifty
        thousand boxes would take a slow host a tenth of a second."""
        words = (int(torch.randint(1 << 62, (), generator=draw)),)
        position = torch.arange(count, device=self.device)
        return [random_boxes(position, side[0], side[1], words), random_flips(position, words)]

    def train(self, images: Tensor, boxes: Tensor, flip: Tensor) -> Tensor:
        return resized_crop(images, boxes, self.size, flip)

    def test(self, images: Tensor) -> Tensor:
        return resize_center_crop(images, self.resize, self.size)

    @property
    def piece(self) -> int:
        """Images per batch of an evaluation: their activations grow with their area."""
        return max(1, min(PIECE, int(250 * (224 / self.size) ** 2)))


class Mixed(NamedTuple):
    """A batch, its partners, and the fraction of the batch's own images in the mixture."""

    own: Batch
    other: Batch
    fraction: Tensor

    @classmethod
    def of(cls, batch: Batch) -> Mixed:
        """Split a batch of :class:`MixedSource`."""
        *columns, fraction = batch
        half = len(columns) // 2
        return cls(tuple(columns[:half]), tuple(columns[half:]), fraction)

    def images(self, own: Tensor, other: Tensor) -> Tensor:
        return torch.lerp(other, own, self.fraction.to(own.dtype))

    def target(self, own: Tensor, other: Tensor, classes: int) -> Tensor:
        """Targets as probabilities: both labels of a mixed image, weighted by their fractions."""
        first, second = (F.one_hot(labels, classes).float() for labels in (own, other))
        return torch.lerp(second, first, self.fraction)

    def correct(self, own: Tensor, other: Tensor) -> Tensor:
        """The number of correct predictions, where each label counts by its fraction."""
        return torch.lerp(other.float(), own.float(), self.fraction).sum()


class MixedSource:
    """Mixup: every batch with a random permutation of itself as partners, and one fraction from Beta(alpha, alpha).

    Both follow from seed, stage, epoch and the number of the batch, on any number of ranks.
    """

    def __init__(self, source: ResidentSource, alpha: float) -> None:
        self.source, self.alpha = source, alpha

    def length(self, clock: Clock) -> int:
        return self.source.length(clock)

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[Batch]:
        words = (self.source.seed, clock.stage, clock.epoch, _MIXUP)
        drawn = np.random.default_rng(words).beta(self.alpha, self.alpha, self.length(clock))
        fractions = torch.tensor(drawn, dtype=torch.float32, device=self.source.device)
        for number, batch in enumerate(self.source.batches(clock, start, 0, 1), start):  # of all ranks together
            order = torch.randperm(len(batch[0]), generator=generator(*words, number)).to(self.source.device)
            partners = [column[order[rank::world]] for column in batch]
            yield (*(column[rank::world] for column in batch), *partners, fractions[number])
