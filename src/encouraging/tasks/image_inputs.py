"""Images as a model takes them: from bytes to normalised numbers, and from numbers in [0, 1], which attacks change."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..data.file_list import ImageFiles
from ..data.images import Images
from ..models.normalised import Normalised
from .base import BaseTask
from .class_shift import ClassShift
from .image_augment import ResizedCrop

Batch = tuple[Tensor, ...]


class ImageInputs(BaseTask[Batch]):
    """What tasks of images do to them before a model sees them. ``scale`` and ``shift`` turn bytes into what the model
    takes, ``unit_scale`` and ``shift`` numbers from 0 to 1; ``crops`` resizes and cuts, where the recipe says so."""

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
        """Images to be evaluated as numbers from 0 to 1, on the device. They are bytes of the task's data, or others of
        the same size whose white is ``highest``."""
        return self._ordered(self._test_cut(images).float() / (highest or self.data.highest))

    def normalise(self, images: Tensor) -> Tensor:
        """Images in [0, 1] as the model takes them."""
        return self._ordered(images * self.unit_scale + self.shift)

    def unit_model(self, model: nn.Module) -> Normalised:
        """The model on images in [0, 1], with the logits that evaluations see."""
        return Normalised(model, self.unit_scale, self.shift, self.shifts[-1].scale).to(self.device)

    def attacked(self, images: Tensor) -> Tensor:
        """Test images from 0 to 1 as the data has them, before they are resized: what an attack may change."""
        return self.unit(images) if self.crops is None else self._ordered(images.to(self.device) / self.data.highest)

    def attacked_model(self, model: nn.Module) -> Normalised:
        """The model on those: it resizes and cuts them itself, without rounding to bytes."""
        cut = None if self.crops is None else lambda images: self._ordered(self._test_cut(images))
        return Normalised(model, self.unit_scale, self.shift, self.shifts[-1].scale, cut).to(self.device)

    def _test_cut(self, images: Tensor) -> Tensor:
        whole = images.to(self.device)
        return whole if self.crops is None else self.crops.test(whole)
