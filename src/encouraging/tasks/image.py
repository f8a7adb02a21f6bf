"""Image classification on sets that fit the device: they live there as bytes and are augmented there in batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional as F

from ..curves import Curve
from ..data import dataset, load
from ..imbalance import effective_weights
from ..metrics import Reader, accuracy, excess_risk, read, summary
from ..metrics._calibration import nll
from ..metrics._teaching import usual
from ..models import Classifier, build_model
from .draw import generator
from .objective import Lesson
from .setting import Conclusion, Setting

Batch = tuple[Tensor, ...]
PAD = 4


class Options(BaseModel):
    """The ``options`` table of an image recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    augment: Literal["none", "crop_flip"] = "none"
    ood: tuple[str, ...] = ()
    validation: int = Field(default=0, ge=0)
    normalise: bool = True


class ImageTask:
    """A dataset, a network and a loss; accuracy in percent on the whole test set."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.options = Options(**setting.options)
        self.known = dataset(setting.data)
        self.device = setting.device
        images, labels = load(setting.data, "train", setting.root)
        held = self.options.validation
        if held:  # the same examples for every seed, so that seeds are compared on equal terms
            order = torch.randperm(len(images), generator=generator(0))
            self.validation = self._place(images[order[:held]], labels[order[:held]])
            images, labels = images[order[held:]], labels[order[held:]]
        self.train = self._place(images, labels)
        self.test = self._place(*load(setting.data, "test", setting.root))
        # Read now, although used last: what is missing must be said before hours of training and not after.
        self.outside = {name: load(name, "test", setting.root)[0] for name in self.options.ood}
        padded = (PAD,) * 4 if self.options.augment == "crop_flip" else (0,) * 4
        self.source = F.pad(self.train[0], padded)
        self.weight = None
        if any(objective.reweight_from_epoch for objective in setting.objectives):
            counts = torch.bincount(labels, minlength=self.known.classes)
            self.weight = effective_weights(counts, setting.objectives[0].reweight_beta).to(self.device)
        mean, std = (torch.tensor(numbers, device=self.device)[:, None, None] if self.options.normalise else default
                     for numbers, default in ((self.known.mean, 0.0), (self.known.std, 1.0)))
        self.scale, self.shift = 1 / (self.known.highest * std), -mean / std

    def build(self) -> nn.Module:
        margin = self.setting.objectives[0].margin
        return build_model(self.setting.model, self.known.classes, self.known.shape[0], margin).to(self.device)

    def lesson(self, stage: int, epoch: int) -> Lesson:
        return self.setting.objectives[stage - 1].lesson(epoch)

    def length(self, stage: int, epoch: int) -> int:
        return -(-len(self.source) // self.setting.trains[stage - 1].batch_size)

    def batches(self, stage: int, epoch: int, start: int, rank: int, world: int) -> Iterator[Batch]:
        train, count = self.setting.trains[stage - 1], len(self.source)
        draw = generator(self.setting.seed, stage, epoch)
        order = torch.randperm(count, generator=draw) if train.shuffle else torch.arange(count)
        columns = [order]
        if self.options.augment == "crop_flip":
            columns += [torch.randint(high, (count,), generator=draw) for high in (2 * PAD + 1, 2 * PAD + 1, 2)]
        columns = [column.to(self.device) for column in columns]
        for first in range(start * train.batch_size, count, train.batch_size):
            last = min(first + train.batch_size, count)
            yield tuple(column[first + rank : last : world] for column in columns)

    def loss(self, model: nn.Module, batch: Batch, lesson: Lesson) -> tuple[Tensor, int]:
        index = batch[0]
        target = self.train[1][index]
        logits = model(self._floats(self._cut(batch)), target)
        return lesson.loss(logits, target, self.weight), len(index)

    def _cut(self, batch: Batch) -> Tensor:
        """The images of a batch; with augmentation, crop and flip are one gather."""
        index, *moves = batch
        if not moves:
            return self.source[index]
        top, left, flip = moves
        side = torch.arange(self.known.shape[1], device=self.device)
        rows = top[:, None] + side
        columns = left[:, None] + torch.where(flip[:, None] == 1, side.flip(0), side)
        cut = self.source.permute(0, 2, 3, 1)[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        return cut.permute(0, 3, 1, 2)

    def _floats(self, images: Tensor) -> Tensor:
        out = images.float() * self.scale + self.shift
        return out.contiguous(memory_format=torch.channels_last) if self.device.type == "cuda" else out.contiguous()

    def _place(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return images.to(self.device), labels.to(self.device)

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        """What the model says about bytes, in pieces that fit."""
        return torch.cat([model(self._floats(piece)) for piece in torch.split(images, 2000)])

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        numbers = self._judge(model, self.test, "accuracy", "test_loss")
        if self.options.validation:
            numbers |= self._judge(model, self.validation, "val_accuracy", "val_loss")
        return numbers

    def _judge(self, model: nn.Module, part: tuple[Tensor, Tensor], accuracy: str, loss: str) -> dict[str, float]:
        logits, labels = self.logits(model, part[0]), part[1]
        right = (logits.argmax(1) == labels).sum().double()
        right, cost = torch.stack([right, F.cross_entropy(logits, labels).double()]).tolist()
        return {accuracy: 100 * right / len(labels), loss: cost}

    def conclude(self, model: nn.Module) -> Conclusion:
        model.eval()
        images, labels = self.test
        kept = {"logits": self.logits(model, images), "labels": labels}
        reader = Reader(self.known.classes)
        reader.update(kept["logits"], labels)
        for number, (name, outside) in enumerate(self.outside.items()):
            logits = self.logits(model, outside.to(self.device))
            kept["ood_logits" if number == 0 else f"ood_logits.{name}"] = logits
            reader.update_outside(logits, name)
        taught = read(self.logits(model, self.train[0]), self.train[1])
        found = reader.diagnosis(counts=self._rare_counts(), curves=self._taught_curves(), taught=taught)
        numbers: dict[str, Any] = summary(found)
        numbers["train_accuracy"] = accuracy(taught)
        numbers["train_ce"] = nll(taught)
        numbers["excess_risk"] = excess_risk(taught, reader.readings)
        return Conclusion(numbers, kept, found)

    def _rare_counts(self) -> Tensor | None:
        """Accuracy by shots is asked for where some classes are rarer than others."""
        counts = torch.bincount(self.train[1], minlength=self.known.classes).cpu()
        return counts if int(counts.min()) * 2 < int(counts.max()) else None

    def _taught_curves(self) -> dict[str, Curve]:
        """The arm's own loss beside the usual ones."""
        own = self.lesson(1, 1_000_000).curve
        return usual() | ({repr(own): own} if own is not None and own not in usual().values() else {})

    def head(self, model: nn.Module) -> nn.Module:
        assert isinstance(model, Classifier)
        return model.head
