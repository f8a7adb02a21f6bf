"""The inputs of image models: from bytes to normalised numbers, and from numbers in [0, 1], which attacks change."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..data.file_list import ImageFiles
from ..data.images import Images
from ..models.normalised import Normalised
from .class_shift import ClassShift
from .classification import Classification
from .image_augment import ResizedCrop

Batch = tuple[Tensor, ...]


class ImageInputs(Classification[Batch]):
    """Prepares images for a model. ``scale`` and ``shift`` normalise bytes, ``unit_scale`` and ``shift`` normalise
    numbers from 0 to 1; ``crops`` resizes and crops, if the recipe has it."""

    data: Images | ImageFiles
    scale: Tensor | float
    shift: Tensor | float
    unit_scale: Tensor | float
    shifts: list[ClassShift]
    crops: ResizedCrop | None
    channels_last: bool

    def _floats(self, images: Tensor) -> Tensor:
        return self._ordered(images.float() * self.scale + self.shift)

    def _ordered(self, images: Tensor) -> Tensor:
        return images.contiguous(memory_format=torch.channels_last) if self.channels_last else images.contiguous()

    def unit(self, images: Tensor, highest: int | None = None) -> Tensor:
        """Images for evaluation as numbers from 0 to 1, on the device, from bytes of the task's data, or from other
        images of the same size whose largest value is ``highest``."""
        return self._ordered(self._test_cut(images).float() / (highest or self.data.highest))

    def normalise(self, images: Tensor) -> Tensor:
        """Normalise images in [0, 1] for the model."""
        return self._ordered(images * self.unit_scale + self.shift)

    def unit_model(self, model: nn.Module) -> Normalised:
        """The model wrapped to take images in [0, 1] and return the logits of evaluations."""
        return Normalised(model, self.unit_scale, self.shift, self.shifts[-1].scale).to(self.device)

    def attacked(self, images: Tensor) -> Tensor:
        """Test images in [0, 1] before they are resized: what an attack changes."""
        return self.unit(images) if self.crops is None else self._ordered(images.to(self.device) / self.data.highest)

    def attacked_model(self, model: nn.Module) -> Normalised:
        """The model wrapped to take the images of :meth:`attacked`: it resizes and crops them itself, without rounding
        to bytes."""
        cut = None if self.crops is None else lambda images: self._ordered(self._test_cut(images))
        return Normalised(model, self.unit_scale, self.shift, self.shifts[-1].scale, cut).to(self.device)

    def _test_cut(self, images: Tensor) -> Tensor:
        images = images.to(self.device)
        return images if self.crops is None else self.crops.test(images)
