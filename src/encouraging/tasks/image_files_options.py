"""The options of a recipe whose images stay in files."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from ..engine import Metric
from ..engine.metric import HIDDEN
from .image_options import Options, metrics_of
from .image_tail import Shots
from .rand_augment import check_rand_augment

_RESIDENT = ("mixup", "adversarial", "size", "imbalance", "validation")  # options that need all images on the device


class FileOptions(Options):
    """The ``options`` table of a recipe with ``task = "image_files"``.

    Training images are always cropped by RandomResizedCrop to ``train_size``, with ``interpolation`` (``random``:
    bilinear or bicubic, per image), and flipped; ``rand_augment`` is a string as timm takes it. ``erase`` is the
    probability with which a box of an image becomes noise. ``decay = "weights"`` applies no weight decay to biases and
    norms. ``broken`` says whether to skip or to refuse a file that cannot be read completely. ``train_sample`` is the
    number of training images in the final evaluation.
    """

    augment: Literal["resized_crop"] = "resized_crop"
    train_size: int | None = Field(default=224, gt=0)
    interpolation: Literal["bilinear", "bicubic", "random"] = "bilinear"
    test_interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    rand_augment: str | None = None
    erase: float = Field(default=0.0, ge=0, le=1)
    decay: Literal["all", "weights"] = "all"
    broken: Literal["skip", "refuse"] = "skip"
    train_sample: int = Field(default=20_000, gt=0)

    @property
    def side(self) -> int:
        assert self.train_size is not None
        return self.train_size

    @property
    def resize(self) -> int:
        return self.test_resize or round(self.side * 8 / 7)

    @field_validator("rand_augment")
    @classmethod
    def _check_rand_augment(cls, value: str | None) -> str | None:
        if value is not None:
            check_rand_augment(value)
        return value

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if self.train_size is None:
            raise ValueError("train_size is missing: set the side of the training crops, for example 224")
        for name in _RESIDENT:
            if getattr(self, name) != FileOptions.model_fields[name].default:
                raise ValueError(f"{name} belongs to task = 'image', whose images are all on the device")
        return self


def file_metrics(options: FileOptions) -> list[Metric]:
    """The metrics of images on the device, and the numbers of broken files."""
    return [*metrics_of(options),
            Metric("broken", "broken training files", digits=0, better="lower", low=0, **HIDDEN),
            Metric("broken_test", "broken test files", digits=0, better="lower", low=0, **HIDDEN)]


def file_option_words(parents: tuple[Any, ...]) -> list[str]:
    """The allowed keys of the options, or of a table in them."""
    if "shots" in parents:
        return list(Shots.model_fields)
    return [name for name in FileOptions.model_fields if name not in _RESIDENT]
