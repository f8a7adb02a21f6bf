"""Image classification on datasets that do not fit on the device: workers decode and crop, the device normalises and
erases."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..data import Clock, FileSplit, Source, generator, is_large, read_image_files
from ..data.file_examples import FileExamples, Loaded
from ..data.file_loader import FileLoader
from ..data.picture_transforms import erase, evaluation_transform, training_transform
from ..data.samplers import RankBatches
from ..engine import Conclusion, Loss, Needs, ParameterGroup, Predictions, Task
from ..engine.environment import cores
from ..errors import DataError, RecipeError
from ..metrics import correct
from ..models.named import check_named, packages_of
from .base import BaseTask
from .broken_files import BrokenFiles
from .file_source import FileSource
from .image import Batch, ImageTask
from .image_check import check_together
from .image_files_options import FileOptions, file_metrics, file_option_words
from .image_options import monitors_of
from .image_parts import few_positions
from .joined import joined
from .objective import Objective
from .options import read_options
from .spec import TaskSpec

PIECE = 250  # images per batch of an evaluation, at 224 pixels


class ImageFilesTask(ImageTask):
    """A dataset of files, a network and a loss; accuracy in percent on the test images."""

    options: FileOptions

    def __init__(self, spec: TaskSpec) -> None:
        BaseTask.__init__(self, spec)
        options = FileOptions(**spec.options)
        self._declare(options)
        self.sums = (*self.sums, "broken")
        self.metrics = file_metrics(options)
        data = read_image_files(spec.data, spec.root, folder=spec.folder)
        self.data = data
        self.sets = {"train": _few(data.splits["train"], options.train_images),
                     "test": _few(data.splits["test"], options.test_images)}
        self.sample = self.sets["train"].sample(options.train_sample, generator(0))
        # Listed now, although used last: missing data must be reported before days of training and not after.
        self.ood = {name: _few(read_image_files(name, spec.root, splits=("test",), folder=spec.folder).splits["test"],
                               options.test_images) for name in options.ood_sets}
        self.broken = BrokenFiles(options.broken == "refuse", sum(map(len, self.sets.values())))
        self._test_loaders: dict[tuple[int, int], FileLoader] = {}
        self.crops = None
        self.side = torch.Size((options.resize, options.resize))
        self.piece = max(1, int(PIECE * (224 / options.side) ** 2))
        self.cut = evaluation_transform(options.resize, options.side, options.test_interpolation)
        self.test = _Decoded(FileExamples(self.sets["test"], self.cut, options.side)), self.sets["test"].labels
        self._prepare(data.splits["train"].labels)

    @classmethod
    def check(cls, spec: TaskSpec) -> Needs:
        options = read_options(FileOptions, spec.options, file_option_words)
        check_together(spec, options)
        check_named(spec.model, spec.model_options, next((stage.objective.margin for stage in spec.stages
                                                          if stage.objective.margin is not None), None), spec.folder)
        named = [name for name in (spec.data, *options.ood_sets) if not name.startswith("folder:")]
        for name in named:
            try:
                large = is_large(name)
            except DataError as error:
                raise RecipeError(f"{error} Your own are folder:PATH.", "data") from error
            if not large:
                raise RecipeError(f"{name} fits on the device: expected imagenet, inaturalist2018 or folder:PATH, or "
                                  "task = \"image\".", "data")
        datasets = [(name, ("train", "test") if name == spec.data else ("test",)) for name in named]
        packages = dict.fromkeys(("torchvision", *packages_of(spec.model),
                                  *(("timm",) if options.rand_augment is not None else ())))
        # broken is incidental: a run that finishes has skipped the same files, or had no broken ones.
        return Needs(datasets, tuple(packages), file_metrics(options), incidental=("broken",),
                     monitors=monitors_of(options), examples="images")

    def groups(self, model: nn.Module) -> Sequence[ParameterGroup]:
        if self.options.decay == "all":
            return super().groups(model)
        params = list(model.parameters())
        return [ParameterGroup([param for param in params if param.ndim > 1]),
                ParameterGroup([param for param in params if param.ndim <= 1], weight_decay=0.0)]

    def source(self, stage: int) -> Source[Batch]:
        options, split = self.options, self.sets["train"]
        transform = training_transform(options.side, options.interpolation, options.rand_augment, self.data.mean)
        examples = FileExamples(split, transform, options.side, options.erase)
        train = self.spec.stages[stage - 1].train
        sampler = self.spec.stages[stage - 1].sampler(split.labels)
        loader = self._loader(examples, sampler, train.batch_size, epochs=train.epochs)
        return FileSource(loader, self._to_batch, self.device)

    def _loader(self, examples: FileExamples, sampler: Any, batch: int, *, epochs: int = 0,
                batches: int | None = None) -> FileLoader:
        """A loader with at most one worker per batch if the number of ``batches`` is given, and none for one batch."""
        workers = self.workers if batches is None else 0 if batches < 2 else min(batches, self.workers)
        return FileLoader(examples, sampler, self.spec.seed, batch=min(batch, len(examples.split)), epochs=epochs,
                          workers=workers, pin=self.device.type == "cuda")

    @property
    def workers(self) -> int:
        """The number of loading processes: that of the recipe, or by default this rank's part of the cores, minus one
        core for training."""
        train = self.spec.stages[0].train
        if "workers" in train.model_fields_set:
            return train.workers
        return max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) - 1)

    def _to_batch(self, loaded: Loaded) -> Batch:
        """A batch on the device: images (N, C, H, W) in channels-last format, labels, boxes to erase, and the number of
        skipped files. All are tensors, so that a CUDA graph can record them."""
        if loaded.lost:
            raise DataError(loaded.lost[0])
        self.broken.note(loaded.faults)
        images, labels, boxes, skipped = (tensor.to(self.device, non_blocking=True) for tensor in loaded[:4])
        return images.permute(0, 3, 1, 2), labels, boxes, skipped

    def loss(self, model: nn.Module, batch: Batch, objective: tuple[int, Objective]) -> Loss:
        images, target, boxes, skipped = batch
        stage, current = objective
        if not len(images):
            return self._empty_loss(model, current, skipped)
        floats = self._floats(images)
        if self.options.erase:
            floats = erase(floats, boxes)
        logits = model(floats, target)
        loss = current.loss(self.shifts[stage - 1](logits, target), target, self.weights[stage - 1])
        sums = self._sums(logits.detach(), correct(logits, target).sum())
        return replace(loss, sums={**sums, "broken": skipped})

    def _empty_loss(self, model: nn.Module, objective: Objective, skipped: Tensor) -> Loss:
        """The loss of a rank that has no images of a batch. Other ranks wait for its gradient, so the model gets a grey
        image whose loss does not count; batch statistics must not include it."""
        with _eval_mode(model):
            grey = torch.zeros(1, 3, self.options.side, self.options.side, device=self.device)
            label = torch.zeros(1, dtype=torch.long, device=self.device)
            loss = objective.loss(model(self._ordered(grey), label), label[:0])
        return replace(loss, sums={**dict.fromkeys(self.sums, 0.0), "broken": skipped})

    def training_numbers(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {**super().training_numbers(sums), "broken": round(sums["broken"])}

    def _test_cut(self, images: Tensor) -> Tensor:
        """The central crop of images whose shorter side is already resized."""
        side = self.options.side
        top, left = ((length - side) // 2 for length in images.shape[2:])
        return images[:, :, top : top + side, left : left + side].to(self.device)

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[Predictions]:
        """After an epoch, correctness and loss of each test image; in the final evaluation the logits of all sets."""
        sets = {"test": self.sets["test"]}
        if final:
            sets |= {"train": self.sample, **{f"ood.{name}": split for name, split in self.ood.items()}}
        for name, split in sets.items():
            for number, loaded in self._evaluation_batches(split, rank, world):
                images, labels, _, _ = self._to_batch(loaded)
                logits = self.shifts[-1].evaluated(model(self._floats(images)))
                piece: dict[str, Any] = {"set": name, "number": number, "labels": labels, "broken": len(loaded.faults)}
                if final:
                    yield {**piece, "logits": logits}
                else:
                    yield {**piece, "correct": correct(logits, labels),
                           "loss": F.cross_entropy(logits, labels, reduction="none")}
        if final:
            yield {"set": "broken", "number": rank, "faults": list(self.broken.faults)}

    def _evaluation_batches(self, split: FileSplit, rank: int, world: int) -> Iterator[tuple[int, Loaded]]:
        rank_batches = RankBatches(len(split), self.piece, rank, world)
        # The test set is evaluated after every epoch, so its workers stay; those of other sets end with the loop.
        loader = self._test_loaders.get((rank, world)) if split is self.sets["test"] else None
        if loader is None:
            loader = self._loader(FileExamples(split, self.cut, self.options.side), rank_batches, self.piece,
                                  batches=len(rank_batches.numbers))
        if split is self.sets["test"]:
            self._test_loaders[rank, world] = loader
        yield from zip(rank_batches.numbers, loader.batches(Clock(0, 0), 0, 0, 1), strict=True)  # not random

    def evaluate(self, predictions: Sequence[Predictions]) -> dict[str, float]:
        right, labels, losses = (joined(predictions, key)["test"] for key in ("correct", "labels", "loss"))
        if not len(labels):
            raise DataError(f"{self.spec.data}: all test images are broken. Copy the data again.")
        numbers = {"accuracy": 100 * float(right.double().mean()), "test_loss": float(losses.double().mean()),
                   "broken_test": sum(piece["broken"] for piece in predictions)}
        return numbers if self.tail is None else numbers | self.tail.accuracies(right, labels)

    def _labels(self, part: str, predictions: Sequence[Predictions]) -> Tensor:
        return joined(predictions, "labels")[part]

    def conclude(self, predictions: Sequence[Predictions], last: Mapping[str, Any]) -> Conclusion:
        for piece in predictions:
            self.broken.faults |= dict.fromkeys(piece.get("faults", ()))
        conclusion = super().conclude([piece for piece in predictions if "logits" in piece], last)
        return replace(conclusion, files={"broken.txt": self.broken.text()}) if self.broken.faults else conclusion


def _few(split: FileSplit, count: int | None) -> FileSplit:
    """``count`` images of a split, for a rehearsal; all if it is None."""
    chosen = few_positions(split.labels, count)
    return split if chosen is None else split.part(chosen)


class _Decoded:
    """Test images that can be indexed like a tensor: a slice is decoded on access."""

    def __init__(self, examples: FileExamples) -> None:
        self.examples = examples

    def __getitem__(self, part: slice) -> Tensor:
        draw = generator(0)
        chosen = range(len(self.examples.split))[part]
        loaded = self.examples.collate([self.examples.example(index, draw) for index in chosen], draw)
        if loaded.lost or loaded.faults:
            raise DataError(f"{(loaded.lost + loaded.faults)[0]}. Repair it, or remove it from the data.")
        return loaded.images.permute(0, 3, 1, 2)


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the context: batch norm uses its running statistics and does not change them."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


_: type[Task[Batch]] = ImageFilesTask  # mypy: it is a task
