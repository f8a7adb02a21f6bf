"""Image classification on sets that fit the device: they live there as bytes and are augmented there in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn
from torch.nn import functional as F

from .. import curves
from ..curves import Curve
from ..data import ClassBalanced, Clock, ResidentSource, Sampler, Shuffled, Source, dataset, generator
from ..data.images import check_images, read_images
from ..engine import Conclusion, Loss, Metric, Needs, Predictions, Task
from ..engine.explain import explain
from ..errors import RecipeError
from ..imbalance import effective_weights
from ..metrics import Reader, accuracy, correct, excess_risk, read, summary
from ..metrics._calibration import nll
from ..metrics._teaching import usual
from ..models import Classifier
from ..models.named import build_named, check_named, extras_of
from .base import BaseTask
from .class_shift import ClassShift
from .image_augment import PIECE, AugmentOptions, Mixed, MixedSource, ResizedCrop
from .image_check import check_tail, check_together, classes_by_name
from .image_tail import Shots, Tail, TailOptions, class_energies, tail_metrics
from .objective import Objective
from .spec import TaskSpec

Batch = tuple[Tensor, ...]
PAD = 4
PERCENT: dict[str, Any] = {"unit": "%", "low": 0, "high": 100}


class Options(AugmentOptions, TailOptions):
    """The ``options`` table of an image recipe."""

    ood: tuple[str, ...] = ()
    validation: int = Field(default=0, ge=0)
    normalise: bool = True
    size: int | None = Field(default=None, gt=0)
    profiles: tuple[str, ...] = ()


def metrics_of(options: Options) -> list[Metric]:
    """What an image recipe measures."""
    hidden: dict[str, Any] = {"shown": False}
    metrics = [
        Metric("accuracy", "accuracy", **PERCENT, primary=True, about="Accuracy is that of the last epoch."),
        Metric("best_accuracy", "best accuracy", **PERCENT, about="Best accuracy is that of the best test epoch."),
        Metric("test_loss", "test cross-entropy", "nats", 3, better="lower", log=True, **hidden),
        Metric("excess_risk", "excess risk", "%", better="lower",
               about="Excess risk is training minus test accuracy."),
        Metric("ece", "calibration error", digits=4, better="lower", low=0, high=1,
               about="Margins, energies and calibration are those of the last epoch’s model."),
        Metric("nll", "negative log-likelihood", digits=3, better="lower", low=0, **hidden),
        Metric("margin.median", "median margin"),
        Metric("margin.mean", "mean margin", **hidden),
        Metric("energy.label", "energy on the data", better="lower"),
        Metric("energy.rival", "lowest rival energy"),
        Metric("energy.rival_zeroed", "lowest rival energy, zeroed", **hidden),
        Metric("energy.free", "free energy", better="lower", **hidden),
        Metric("train_accuracy", "training accuracy", **PERCENT, **hidden),
        Metric("batch_accuracy", "accuracy on training batches", **PERCENT, **hidden),
        Metric("batch_excess_risk", "excess risk on training batches", "%", better="lower", **hidden),
        Metric("first_updates.grad_norm", "gradient norm of the first updates", digits=3, log=True, **hidden),
        Metric("first_updates.confidence", "confidence in the first updates", **PERCENT, **hidden),
        Metric("gradient_norm_ratio.ce", "gradient norm over cross-entropy's", **hidden),
        *(Metric(f"class_energy.{name}", f"energy on the data, class {name}", better="lower", **hidden)
          for name in options.profiles),
        *tail_metrics(options),
    ]
    if options.validation:
        metrics.insert(1, Metric("val_accuracy", "validation accuracy", **PERCENT))
    for name in options.ood:
        path, words = ("ood", "out-of-distribution data") if len(options.ood) == 1 else (f"ood.{name}", name)
        metrics += [Metric(f"{path}.min_energy.auroc", f"AUROC, {words}", **PERCENT),
                    Metric(f"{path}.min_energy.fpr95", f"FPR95, {words}", **PERCENT, better="lower")]
    return metrics


class ImageTask(BaseTask[Batch]):
    """A dataset, a network and a loss; accuracy in percent on the whole test set."""

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        # How sure the model is costs a softmax per update: only where the first updates are traced.
        self.traces = any(stage.train.trace for stage in spec.stages)
        self.sums = ("correct", "examples", *(("confidence",) if self.traces else ()))
        self.options = Options(**spec.options)
        self.metrics = metrics_of(self.options)
        data = read_images(spec.data, spec.root, size=self.options.size, folder=spec.folder,
                           imbalance=self.options.imbalance)
        self.data, self.classes = data, data.classes
        images, labels = data.splits["train"]
        held = self.options.validation
        if held:  # the same examples for every seed, so that seeds are compared on equal terms
            order = torch.randperm(len(images), generator=generator(0))
            self.validation = self._place(images[order[:held]], labels[order[:held]])
            images, labels = images[order[held:]], labels[order[held:]]
        self.train = self._place(images, labels)
        self.test = self._place(*data.splits["test"])
        # Read now, although used last: what is missing must be said before hours of training and not after.
        self.ood = {name: read_images(name, spec.root, splits=("test",), size=self.options.size,
                                      folder=spec.folder).splits["test"][0] for name in self.options.ood}
        self.side = images.shape[2:]
        padded = (PAD,) * 4 if self.options.augment == "crop_flip" else (0,) * 4
        self.pixels = F.pad(self.train[0], padded)
        self.crops = ResizedCrop(self.options, self.device) if self.options.augment == "resized_crop" else None
        self.piece = self.crops.piece if self.crops is not None else PIECE
        self.counts = torch.bincount(labels, minlength=self.classes)
        self.profiled = classes_by_name(self.options.profiles, data.names, spec.data)
        self.tail = Tail(self.options.shots, self.counts) if self.options.shots is not None else None
        self.shifts = [ClassShift(stage.objective, self.counts, self.device) for stage in spec.stages]
        self.weights = [self._class_weights(stage.objective.reweight_beta)
                        if stage.objective.reweight_from_epoch else None for stage in spec.stages]
        mean, std = (torch.tensor(numbers, device=self.device)[:, None, None] if self.options.normalise else default
                     for numbers, default in ((data.mean, 0.0), (data.std, 1.0)))
        self.scale, self.shift = 1 / (data.highest * std), -mean / std
        self.channels_last = self.device.type == "cuda" and spec.stages[0].train.channels_last

    @classmethod
    def check(cls, spec: TaskSpec) -> Needs:
        try:
            options = Options(**spec.options)
        except ValidationError as error:
            raise RecipeError(explain(error, ("options",), lambda _: list(Options.model_fields))) from error
        check_together(spec, options)
        check_tail(spec.data, options)
        margins = {stage.objective.margin for stage in spec.stages}
        check_named(spec.model, spec.model_options, next((m for m in margins if m is not None), None), spec.folder)
        for key, name in (("data", spec.data), *(("options.ood", name) for name in options.ood)):
            check_images(name, key, spec.folder)
        named = [name for name in (spec.data, *options.ood) if ":" not in name]
        if spec.data in named:
            facts = dataset(spec.data, options.imbalance)
            classes_by_name(options.profiles, facts.names, spec.data)
        datasets = [(name, ("train", "test") if name == spec.data else ("test",)) for name in named]
        return Needs(datasets, extras_of(spec.model), metrics_of(options))

    def build(self) -> nn.Module:
        model = build_named(self.spec.model, self.classes, self.data.channels, self.spec.stages[0].objective.margin,
                            self.spec.model_options, self.spec.folder)
        return model.to(self.device)

    def parts(self, model: nn.Module) -> Mapping[str, nn.Module]:
        assert isinstance(model, Classifier)
        return {"head": model.head, "body": model.body}

    def source(self, stage: int) -> Source[Batch]:
        here, count = self.spec.stages[stage - 1], len(self.pixels)
        sampling, size = here.sampling, here.train.batch_size
        sampler: Sampler
        if sampling.kind == "class_balanced":
            sampler = ClassBalanced(self.train[1], size, sampling.per_class)
        else:
            sampler = Shuffled(count, size, here.train.shuffle and sampling.kind == "shuffled")
        source = ResidentSource(sampler, self.spec.seed, self.device, self._drawn)
        return MixedSource(source, self.options.mixup) if self.options.mixup else source

    def _drawn(self, count: int, draw: torch.Generator) -> list[Tensor]:
        """What is drawn for each image of an epoch."""
        if self.crops is not None:
            return self.crops.draw(count, self.side, draw)
        return self._moves(count, draw) if self.options.augment == "crop_flip" else []

    @staticmethod
    def _moves(count: int, draw: torch.Generator) -> list[Tensor]:
        """Where each image of an epoch is cut, and whether it is flipped."""
        return [torch.randint(high, (count,), generator=draw) for high in (2 * PAD + 1, 2 * PAD + 1, 2)]

    def objective(self, clock: Clock) -> tuple[int, Objective]:
        return clock.stage, self.spec.stages[clock.stage - 1].objective.at(clock)

    def probes(self, clock: Clock) -> dict[str, tuple[int, Objective]]:
        return {"ce": (clock.stage, Objective(curves.cross_entropy()))}

    def loss(self, model: nn.Module, batch: Batch, objective: tuple[int, Objective]) -> Loss:
        if self.options.mixup:
            return self._mixed_loss(model, Mixed.of(batch), objective[1])
        stage, taught = objective
        target = self.train[1][batch[0]]
        logits = model(self._floats(self._cut(batch)), target)
        loss = taught.loss(self.shifts[stage - 1](logits, target), target, self.weights[stage - 1])
        return replace(loss, sums=self._sums(logits.detach(), correct(logits, target).sum()))

    def _mixed_loss(self, model: nn.Module, mixed: Mixed, taught: Objective) -> Loss:
        own, other = (self.train[1][part[0]] for part in (mixed.own, mixed.other))
        logits = model(mixed.images(*(self._floats(self._cut(part)) for part in (mixed.own, mixed.other))))
        loss = taught.loss(logits, mixed.target(own, other, self.classes))
        right = mixed.correct(*(correct(logits, labels) for labels in (own, other)))
        return replace(loss, sums=self._sums(logits.detach(), right))

    def _sums(self, logits: Tensor, right: Tensor) -> dict[str, Tensor | float]:
        confidence = {"confidence": logits.softmax(-1).amax(-1).sum()} if self.traces else {}
        return {"correct": right, "examples": len(logits), **confidence}

    def training_numbers(self, sums: Mapping[str, float]) -> dict[str, float]:
        examples = max(sums["examples"], 1)
        more = {"confidence": 100 * sums["confidence"] / examples} if self.traces else {}
        return {"batch_accuracy": 100 * sums["correct"] / examples, **more}

    def _cut(self, batch: Batch) -> Tensor:
        """The images of a batch; with augmentation, crop and flip are one gather."""
        index, *moves = batch
        if self.crops is not None:
            return self.crops.train(self.pixels[index], *moves)
        if not moves:
            return self.pixels[index]
        upper, left, flip = moves
        down, across = (torch.arange(length, device=self.device) for length in self.side)
        rows = upper[:, None] + down
        columns = left[:, None] + torch.where(flip[:, None] == 1, across.flip(0), across)
        cut = self.pixels.permute(0, 2, 3, 1)[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        return cut.permute(0, 3, 1, 2)

    def _floats(self, images: Tensor) -> Tensor:
        out = images.float() * self.scale + self.shift
        return out.contiguous(memory_format=torch.channels_last) if self.channels_last else out.contiguous()

    def _place(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return images.to(self.device), labels.to(self.device)

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[Predictions]:
        """Logits of the test set and, where they are asked for, of the others, in pieces that fit."""
        sets = {"test": self.test[0]}
        if self.options.validation:
            sets["validation"] = self.validation[0]
        if final:
            sets |= {"train": self.train[0], **{f"ood.{name}": images for name, images in self.ood.items()}}
        for name, images in sets.items():
            pieces = torch.split(images, self.piece)
            for number in range(rank, len(pieces), world):
                whole = pieces[number].to(self.device)
                logits = model(self._floats(whole if self.crops is None else self.crops.test(whole)))
                yield {"set": name, "number": number, "logits": self.shifts[-1].evaluated(logits)}

    def evaluate(self, predictions: Sequence[Predictions]) -> dict[str, float]:
        logits = _joined(predictions)
        numbers = self._measure(logits["test"], self.test[1], "accuracy", "test_loss")
        if self.tail is not None:
            labels = self.test[1].to(logits["test"].device)
            numbers |= self.tail.accuracies(correct(logits["test"], labels), labels)
        if self.options.validation:
            numbers |= self._measure(logits["validation"], self.validation[1], "val_accuracy", "val_loss")
        return numbers

    def _measure(self, logits: Tensor, labels: Tensor, accuracy: str, loss: str) -> dict[str, float]:
        labels = labels.to(logits.device)
        right = correct(logits, labels).sum().double()
        right, cost = torch.stack([right, F.cross_entropy(logits, labels).double()]).tolist()
        return {accuracy: 100 * right / len(labels), loss: cost}

    def conclude(self, predictions: Sequence[Predictions], last: Mapping[str, Any]) -> Conclusion:
        logits = _joined(predictions)
        labels = self.test[1].to(logits["test"].device)
        kept = {"logits": logits["test"], "labels": labels}
        reader = Reader(self.classes)
        reader.update(kept["logits"], labels)
        for number, name in enumerate(self.ood):
            kept["ood_logits" if number == 0 else f"ood_logits.{name}"] = logits[f"ood.{name}"]
            reader.update_outside(logits[f"ood.{name}"], name)
        taught = read(logits["train"], self.train[1].to(labels.device))
        bounds = self.options.shots or Shots()
        diagnosis = reader.diagnosis(counts=self._rare_counts(), curves=self._taught_curves(), taught=taught,
                                     many=bounds.many, few=bounds.few)
        numbers: dict[str, Any] = summary(diagnosis)
        if self.tail is not None:
            diagnosis["shot_bounds"] = bounds.model_dump()
            numbers["adjusted"] = self.tail.adjusted(kept["logits"], labels)
        if self.profiled:
            diagnosis |= {"class_names": list(self.data.names), "profiled": list(self.profiled.values())}
            numbers["class_energy"] = class_energies(diagnosis, self.profiled)
        numbers["train_accuracy"] = accuracy(taught)
        numbers["train_ce"] = nll(taught)
        numbers["excess_risk"] = excess_risk(taught, reader.readings)
        if "batch_accuracy" in last:  # as the paper measures it: augmented batches, in training mode
            numbers["batch_excess_risk"] = last["batch_accuracy"] - accuracy(reader.readings)
        return Conclusion(numbers, kept, diagnosis)

    def _class_weights(self, beta: float) -> Tensor:
        return effective_weights(self.counts, beta).to(self.device)

    def _rare_counts(self) -> Tensor | None:
        """Accuracy by class frequency is shown where some classes are rarer than others."""
        return self.counts.cpu() if int(self.counts.min()) * 2 < int(self.counts.max()) else None

    def _taught_curves(self) -> dict[str, Curve]:
        """The arm's own loss beside the usual ones."""
        own = self.spec.stages[0].objective.at(Clock(1, 1_000_000, 1_000_000_000)).curve
        return usual() | ({repr(own): own} if own is not None and own not in usual().values() else {})


def _joined(predictions: Sequence[Predictions]) -> dict[str, Tensor]:
    """The logits of every set, its pieces in order, whichever ranks made them."""
    sets: dict[str, dict[int, Tensor]] = {}
    for piece in predictions:
        sets.setdefault(piece["set"], {})[piece["number"]] = piece["logits"]
    return {name: torch.cat([pieces[number] for number in sorted(pieces)]) for name, pieces in sets.items()}


_: type[Task[Batch]] = ImageTask  # mypy: an image task is a task
