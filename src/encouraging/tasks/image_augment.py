"""RandomResizedCrop and mixup of images that live on the device, and how test images are cut to match."""

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
PIECE = 2000  # images that are evaluated at once, up to 79 pixels; fewer where they are larger
_MIXUP = 2  # its stream of random numbers: 0 and 1 are those of examples and batches that workers load


class AugmentOptions(Frozen):
    """What a recipe may say about the images in its ``options``.

    ``train_size`` is the side of what RandomResizedCrop makes, and of the test images: their shorter side is resized
    to ``test_resize``, 8/7 of it unless given (256 for 224), and the middle is cut out. ``mixup`` is the parameter of
    the beta distribution from which each batch draws how it is mixed with itself.
    """

    augment: Literal["none", "crop_flip", "resized_crop"] = "none"
    train_size: int | None = Field(default=None, gt=0)
    test_resize: int | None = Field(default=None, gt=0)
    mixup: float = Field(default=0.0, ge=0, le=1e6)  # far above it numpy draws 0 instead of one half

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if (self.augment == "resized_crop") != (self.train_size is not None):
            raise ValueError(f"augment = {self.augment!r} with train_size = {self.train_size}: train_size, the side of "
                             "the crops, belongs to 'resized_crop', which needs it")
        if self.test_resize is not None and (self.train_size is None or self.test_resize < self.train_size):
            raise ValueError(f"test_resize = {self.test_resize} with train_size = {self.train_size}: expected "
                             "augment = 'resized_crop' and at least train_size, which is then cut out of it")
        return self


class ResizedCrop:
    """RandomResizedCrop and flip for training; resize and central crop for everything that is evaluated."""

    def __init__(self, options: AugmentOptions, device: torch.device) -> None:
        assert options.train_size is not None
        self.size, self.device = options.train_size, device
        self.resize = options.test_resize or round(self.size * 8 / 7)

    def draw(self, count: int, side: torch.Size, draw: torch.Generator) -> list[Tensor]:
        """Box and flip of every image of an epoch, by its position in it. They are made on the device from one number:
        fifty thousand boxes would keep a slow host busy for a tenth of a second."""
        words = (int(torch.randint(1 << 62, (), generator=draw)),)
        position = torch.arange(count, device=self.device)
        return [random_boxes(position, side[0], side[1], words), random_flips(position, words)]

    def train(self, images: Tensor, boxes: Tensor, flip: Tensor) -> Tensor:
        return resized_crop(images, boxes, self.size, flip)

    def test(self, images: Tensor) -> Tensor:
        return resize_center_crop(images, self.resize, self.size)

    @property
    def piece(self) -> int:
        """How many images are evaluated at once: their activations grow with their area."""
        return max(1, min(PIECE, int(250 * (224 / self.size) ** 2)))


class Mixed(NamedTuple):
    """A batch, its partners, and the fraction of each image that is its own."""

    own: Batch
    other: Batch
    fraction: Tensor

    @classmethod
    def of(cls, batch: Batch) -> Mixed:
        """Take apart what :class:`MixedSource` has put together."""
        *columns, fraction = batch
        half = len(columns) // 2
        return cls(tuple(columns[:half]), tuple(columns[half:]), fraction)

    def images(self, own: Tensor, other: Tensor) -> Tensor:
        return torch.lerp(other, own, self.fraction.to(own.dtype))

    def target(self, own: Tensor, other: Tensor, classes: int) -> Tensor:
        """Labels as probabilities: the two of a mixed image, by their fractions."""
        first, second = (F.one_hot(labels, classes).float() for labels in (own, other))
        return torch.lerp(second, first, self.fraction)

    def correct(self, own: Tensor, other: Tensor) -> Tensor:
        """How much of a batch is right, where either label counts by its fraction."""
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
        fractions = np.random.default_rng(words).beta(self.alpha, self.alpha, self.length(clock))
        shares = torch.tensor(fractions, dtype=torch.float32, device=self.source.device)
        for number, whole in enumerate(self.source.batches(clock, start, 0, 1), start):
            order = torch.randperm(len(whole[0]), generator=generator(*words, number)).to(self.source.device)
            partners = [column[order[rank::world]] for column in whole]
            yield (*(column[rank::world] for column in whole), *partners, shares[number])
