"""Image classification on datasets that fit on the device: they stay there as bytes and are augmented in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..data import ResidentSource, Source, dataset
from ..data.fit import fit_images
from ..data.images import check_images, read_images
from ..engine import Conclusion, Loss, Needs, Predictions, Task
from ..imbalance import effective_weights
from ..metrics import Reader, accuracy, correct, excess_risk, read, summary
from ..metrics._calibration import nll
from ..models import Classifier
from ..models.named import build_named, check_named, packages_of
from .adversarial import Adversary
from .class_shift import ClassShift
from .classification import readable_curve
from .image_augment import PIECE, Mixed, MixedSource, ResizedCrop
from .image_check import check_tail, check_together, classes_by_name
from .image_inputs import Batch, ImageInputs
from .image_options import Options, chosen, metrics_of, monitors_of, option_words
from .image_parts import few_images, training_parts
from .image_tail import Shots, Tail, class_energies
from .joined import joined
from .objective import Objective
from .objective_config import compared_curves
from .options import read_options
from .spec import TaskSpec

__all__ = ["Batch", "ImageTask", "Options", "metrics_of"]

PAD = 4


class ImageTask(ImageInputs):
    """A dataset, a network and a loss; accuracy in percent on the test images."""

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        self._declare(Options(**spec.options))
        data = read_images(spec.data, spec.root, size=self.options.size, folder=spec.folder,
                           imbalance=self.options.imbalance)
        self.data = data
        train, validation, labels = training_parts(data.splits["train"], self.options, spec.data)
        if validation is not None:
            self.validation = self._to_device(*validation)
        self.train = self._to_device(*train)
        self.test: tuple[Any, Tensor] = self._to_device(*few_images(data.splits["test"], self.options.test_images))
        self.side = train[0].shape[2:]
        # Read now, although used last: missing data must be reported before hours of training and not after.
        self.ood: Mapping[str, Any] = {name: self._other_images(name) for name in self.options.ood_sets}
        padding = (PAD,) * 4 if self.options.augment == "crop_flip" else (0,) * 4
        self.pixels = F.pad(self.train[0], padding)
        self.crops = ResizedCrop(self.options, self.device) if self.options.augment == "resized_crop" else None
        self.piece = self.crops.piece if self.crops is not None else PIECE
        self._prepare(labels)

    def _declare(self, options: Options) -> None:
        """Set the options, the metrics and the sums of the loss."""
        # Confidence costs a softmax per update: it is measured only if the first updates are traced.
        self.traces = any(stage.train.trace for stage in self.spec.stages)
        self.sums: tuple[str, ...] = ("correct", "examples", *(("confidence",) if self.traces else ()))
        self.options = options
        self.metrics = metrics_of(options)

    def _prepare(self, labels: Tensor) -> None:
        """Set what depends on the labels of the training images and on the data's mean and standard deviation."""
        spec, data = self.spec, self.data
        self.classes = data.classes
        self.counts = torch.bincount(labels, minlength=self.classes)
        self.profiled = classes_by_name(self.options.profiles, data.names, spec.data)
        self.tail = Tail(self.options.shots, self.counts) if self.options.shots is not None else None
        self.shifts = [ClassShift(stage.objective, self.counts, self.device) for stage in spec.stages]
        self.weights = [self._class_weights(stage.objective.reweight_beta)
                        if stage.objective.reweight_from_epoch else None for stage in spec.stages]
        mean, std = (torch.tensor(numbers, device=self.device)[:, None, None] if self.options.normalise else default
                     for numbers, default in ((data.mean, 0.0), (data.std, 1.0)))
        self.scale, self.shift = 1 / (data.highest * std), -mean / std
        self.unit_scale = 1 / std  # for images in [0, 1]
        self.adversary = (Adversary(self.options.adversarial, self.unit_model, self.attacked_model)
                          if self.options.adversarial else None)
        self.predicts_with_gradients = self.adversary is not None
        self.channels_last = self.device.type == "cuda" and spec.stages[0].train.channels_last

    @classmethod
    def check(cls, spec: TaskSpec) -> Needs:
        options = read_options(Options, spec.options, option_words)
        check_together(spec, options)
        check_tail(spec.data, options)
        margins = {stage.objective.margin for stage in spec.stages}
        check_named(spec.model, spec.model_options, next((m for m in margins if m is not None), None), spec.folder)
        for key, name in (("data", spec.data), *(("options.ood", name) for name in options.ood_sets)):
            check_images(name, key, spec.folder)
        named = [name for name in (spec.data, *options.ood_sets) if ":" not in name]
        if spec.data in named:
            facts = dataset(spec.data, options.imbalance)
            classes_by_name(options.profiles, facts.names, spec.data)
        datasets = [(name, ("train", "test") if name == spec.data else ("test",)) for name in named]
        return Needs(datasets, packages_of(spec.model), metrics_of(options), monitors=monitors_of(options),
                     examples="images")

    def _other_images(self, name: str) -> Tensor:
        """Test images of another dataset, in the format that this task's model takes."""
        other = read_images(name, self.spec.root, splits=("test",), size=self.options.size, folder=self.spec.folder)
        images, _ = few_images(other.splits["test"], self.options.test_images)
        images = fit_images(images, self.data.channels, (self.side[0], self.side[1]))
        if other.highest != self.data.highest:
            images = (images.float() * (self.data.highest / other.highest)).round().to(torch.uint8)
        return images

    def kept_bytes(self) -> int:
        outside = sum(len(images) for images in self.ood.values())
        return 4 * self.classes * (len(self.test[1]) + outside) + 8 * len(self.test[1])  # logits, and labels

    def build(self) -> nn.Module:
        model = build_named(self.spec.model, self.classes, self.data.channels, self.spec.stages[0].objective.margin,
                            self.spec.model_options, self.spec.folder)
        return model.to(self.device)

    def parts(self, model: nn.Module) -> Mapping[str, nn.Module]:
        assert isinstance(model, Classifier)
        return {"head": model.head, "body": model.body}

    def source(self, stage: int) -> Source[Batch]:
        random = self.options.augment != "none" or self.adversary is not None
        source = ResidentSource(self.spec.stages[stage - 1].sampler(self.train[1]), self.spec.seed, self.device,
                                self._draw if random else None)
        return MixedSource(source, self.options.mixup) if self.options.mixup else source

    def _draw(self, count: int, generator: torch.Generator) -> list[Tensor]:
        """The random numbers for each image of an epoch."""
        if self.crops is not None:
            augmentation = self.crops.draw(count, self.side, generator)
        else:
            augmentation = self._draw_crops(count, generator) if self.options.augment == "crop_flip" else []
        return [*augmentation, *([self.adversary.draw(count, generator)] if self.adversary else [])]

    @staticmethod
    def _draw_crops(count: int, generator: torch.Generator) -> list[Tensor]:
        """Top and left of each crop, and whether it is flipped."""
        return [torch.randint(high, (count,), generator=generator) for high in (2 * PAD + 1, 2 * PAD + 1, 2)]

    def loss(self, model: nn.Module, batch: Batch, objective: tuple[int, Objective]) -> Loss:
        if self.options.mixup:
            return self._mixed_loss(model, Mixed.of(batch), objective[1])
        stage, current = objective
        target = self.train[1][batch[0]]
        logits = model(self._training_images(model, batch, target), target)
        loss = current.loss(self.shifts[stage - 1](logits, target), target, self.weights[stage - 1])
        return replace(loss, sums=self._sums(logits.detach(), correct(logits, target).sum()))

    def _training_images(self, model: nn.Module, batch: Batch, target: Tensor) -> Tensor:
        if self.adversary is None:
            return self._floats(self._cut(batch))
        *crops, noise = batch
        clean = self._cut(tuple(crops)).float() / self.data.highest
        return self.normalise(self.adversary.train(model, self._ordered(clean), target, noise))

    def _mixed_loss(self, model: nn.Module, mixed: Mixed, objective: Objective) -> Loss:
        own, other = (self.train[1][part[0]] for part in (mixed.own, mixed.other))
        logits = model(mixed.images(*(self._floats(self._cut(part)) for part in (mixed.own, mixed.other))))
        loss = objective.loss(logits, mixed.target(own, other, self.classes))
        right = mixed.correct(*(correct(logits, labels) for labels in (own, other)))
        return replace(loss, sums=self._sums(logits.detach(), right))

    def _sums(self, logits: Tensor, right: Tensor) -> dict[str, Tensor | float]:
        confidence = {"confidence": logits.softmax(-1).amax(-1).sum()} if self.traces else {}
        return {"correct": right, "examples": len(logits), **confidence}

    def training_numbers(self, sums: Mapping[str, float]) -> dict[str, float]:
        examples = max(sums["examples"], 1)
        confidence = {"confidence": 100 * sums["confidence"] / examples} if self.traces else {}
        return {"batch_accuracy": 100 * sums["correct"] / examples, **confidence}

    def _cut(self, batch: Batch) -> Tensor:
        """The images of a batch; with augmentation, crop and flip are one gather."""
        index, *augmentation = batch
        if self.crops is not None:
            return self.crops.train(self.pixels[index], *augmentation)
        if not augmentation:
            return self.pixels[index]
        top, left, flip = augmentation
        down, across = (torch.arange(length, device=self.device) for length in self.side)
        rows = top[:, None] + down
        columns = left[:, None] + torch.where(flip[:, None] == 1, across.flip(0), across)
        cropped = self.pixels.permute(0, 2, 3, 1)[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        return cropped.permute(0, 3, 1, 2)

    def _to_device(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return images.to(self.device), labels.to(self.device)

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[Predictions]:
        """Logits of the test and validation images; in the final evaluation also of training, out-of-distribution and
        attacked images."""
        sets = {"test": self.test[0]}
        if self.options.validation:
            sets["validation"] = self.validation[0]
        if final:
            sets |= {"train": self.train[0], **{f"ood.{name}": images for name, images in self.ood.items()}}
        for name, images in sets.items():
            pieces = torch.split(images, self.piece)
            for number in range(rank, len(pieces), world):
                with torch.no_grad():
                    logits = model(self._floats(self._test_cut(pieces[number])))
                yield {"set": name, "number": number, "logits": self.shifts[-1].evaluated(logits)}
        if final and self.adversary is not None:
            yield from self.adversary.predict(model, self.attacked, *self.test, self.piece, rank, world)

    def evaluate(self, predictions: Sequence[Predictions]) -> dict[str, float]:
        logits = joined(predictions)
        numbers = self._measure(logits["test"], self.test[1])
        if self.tail is not None:
            labels = self.test[1].to(logits["test"].device)
            numbers |= self.tail.accuracies(correct(logits["test"], labels), labels)
        if self.options.validation:
            numbers |= self._measure(logits["validation"], self.validation[1], "val_")
        return numbers

    def conclude(self, predictions: Sequence[Predictions], last: Mapping[str, Any]) -> Conclusion:
        logits = joined(predictions)
        labels = self._labels("test", predictions).to(logits["test"].device)
        tensors = {"logits": logits["test"], "labels": labels}
        reader = Reader(self.classes)
        reader.update(tensors["logits"], labels)
        for number, name in enumerate(self.ood):
            tensors["ood_logits" if number == 0 else f"ood_logits.{name}"] = logits[f"ood.{name}"]
            reader.update_outside(logits[f"ood.{name}"], name)
        train_readings = read(logits["train"], self._labels("train", predictions).to(labels.device))
        bounds = self.options.shots or Shots()
        diagnosis = reader.diagnosis(counts=self._rare_counts(), curves=compared_curves(self.spec.stages[0].objective),
                                     trained_with=readable_curve(self.spec.stages[-1], last),
                                     taught=train_readings, many=bounds.many, few=bounds.few,
                                     groups=self.options.ood_groups)
        numbers: dict[str, Any] = summary(diagnosis)
        if self.adversary is not None:
            numbers["attacked"], diagnosis["attacked"] = self.adversary.measure(read(logits["attacked"], labels))
        if self.tail is not None:
            diagnosis["shot_bounds"] = bounds.model_dump()
            numbers["adjusted"] = self.tail.adjusted(tensors["logits"], labels)
        if self.profiled:
            diagnosis |= {"class_names": list(self.data.names), "profiled": list(self.profiled.values())}
            numbers["class_energy"] = class_energies(diagnosis, self.profiled)
        numbers["train_accuracy"] = accuracy(train_readings)
        numbers["train_ce"] = nll(train_readings)
        numbers["excess_risk"] = excess_risk(train_readings, reader.readings)
        if self.options.validation:
            numbers["chosen"] = chosen(last["lines"])
        if "batch_accuracy" in last:  # as the paper measures it: augmented batches, in training mode
            numbers["batch_excess_risk"] = last["batch_accuracy"] - accuracy(reader.readings)
        return Conclusion(numbers, tensors, diagnosis)

    def _labels(self, part: str, predictions: Sequence[Predictions]) -> Tensor:
        """The labels of the images that were predicted."""
        return self.test[1] if part == "test" else self.train[1]

    def _class_weights(self, beta: float) -> Tensor:
        return effective_weights(self.counts, beta).to(self.device)

    def _rare_counts(self) -> Tensor | None:
        """The training images per class if they differ much: only then accuracy is shown by class frequency."""
        return self.counts.cpu() if int(self.counts.min()) * 2 < int(self.counts.max()) else None


_: type[Task[Batch]] = ImageTask  # mypy: an image task is a task
